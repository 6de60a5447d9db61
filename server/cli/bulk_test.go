package cli_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/cli"
)

// TestAListIsSentAgain looks at the requests: a dry run for the question, and the request with the same filters.
func TestAListIsSentAgain(t *testing.T) {
	t.Parallel()
	const since = ` --since 2030-01-31T00:00:00Z`
	recovers, redelivers := "POST /api/v1/webhooks/recover/ Bearer "+aToken+" ", "POST /api/v1/webhooks/redeliver/ Bearer "+aToken+" "
	for name, tt := range map[string]struct {
		command string
		want    []string
	}{
		"without audit events, as in the list": {"events recover --state exhausted" + since, []string{
			recovers + `{"audit_events":false,"since":"2030-01-31T00:00:00.000Z","state":"exhausted"}`,
		}},
		"without a dry run": {"events recover --dry-run=false --state exhausted" + since, []string{
			recovers + `{"audit_events":false,"dry_run":false,"since":"2030-01-31T00:00:00.000Z","state":"exhausted"}`,
		}},
		"with audit events": {"events recover --audit --dry-run --state dropped" + since, []string{
			recovers + `{"audit_events":true,"dry_run":true,"since":"2030-01-31T00:00:00.000Z","state":"dropped"}`,
		}},
		"with the audit events of a type, and all filters": {"events redeliver --dry-run --state delivered --type api_key_created --subscription s --until 2031-01-31T00:00:00Z" + since, []string{
			redelivers + `{"dry_run":true,"event_type":"api_key_created","since":"2030-01-31T00:00:00.000Z","state":"delivered","subscription_id":"s","until":"2031-01-31T00:00:00.000Z"}`,
		}},
		"of no state":       {"events recover" + since, nil},
		"of another state":  {"events recover --state delivered" + since, nil},
		"since no time":     {"events redeliver --state exhausted", nil},
		"of a pending list": {"events redeliver --state pending" + since, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, func(w http.ResponseWriter, r *http.Request) {
				says(202, jsonType, `{"events":2,"deliveries":3,"subscriptions":2,"pending":0,"blocked_by":"queue_held"}`)(w, r)
			})
			code, stdout, _ := s.ask(t, aToken, tt.command)
			if d := cmp.Diff(tt.want, slices.Clone(s.asked)); d != "" || (code == cli.ExitUsage) != (tt.want == nil) {
				t.Errorf("code %d, requests (-want +got):\n%s", code, d)
			}
			if tt.want != nil && !strings.Contains(stdout, "deliveries     3\n") {
				t.Errorf("output %q", stdout)
			}
		})
	}
}
