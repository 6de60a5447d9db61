package cli_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/cli"
)

const (
	ailingSub   = "sub_01h455vb4pex5vsknk084sn02q"
	ailingOwner = "org_01h455vb4pex5vsknk084sn02q"
)

// ailing is the record of a subscription that is blocked.
func ailing(id, blockedBy string) string {
	return fmt.Sprintf(`{"id":%q,"status":"disabled","blocked_by":%q,"organization_id":%q}`, id, blockedBy, ailingOwner)
}

func TestASubscriptionNamesTheCommandThatMendsIt(t *testing.T) {
	t.Parallel()
	page := func(items ...string) string {
		return `{"data":[` + strings.Join(items, ",") + `],"has_more":false,"next_cursor":null}`
	}
	var many []string
	for i := range 7 {
		many = append(many, ailing(fmt.Sprintf("%s%d", ailingSub[:len(ailingSub)-1], i), "disabled"))
	}
	const recover, reactivate = "When the receiver works again, run: keyhook subscriptions recover ", "To send again, run: keyhook subscriptions reactivate "
	for name, tt := range map[string]struct {
		command, body, want string
	}{
		"disabled by failures":                {"subscriptions get " + ailingSub, ailing(ailingSub, "disabled"), recover + ailingSub + "\n"},
		"disabled by hand":                    {"subscriptions get " + ailingSub, ailing(ailingSub, "paused"), reactivate + ailingSub + "\n"},
		"without webhooks in its plan":        {"subscriptions get " + ailingSub, ailing(ailingSub, "plan"), "an operator runs: keyhook organizations update " + ailingOwner + " --plan gold\n"},
		"while the queue is held":             {"subscriptions list", page(ailing(ailingSub, "queue_held")), "an operator runs: keyhook queue release\n"},
		"in the organization that is named":   {"subscriptions get " + ailingSub + " --organization " + ailingOwner, ailing(ailingSub, "disabled"), recover + ailingSub + " --organization " + ailingOwner + "\n"},
		"in a list of all organizations":      {"subscriptions list --organization all", page(ailing(ailingSub, "disabled")), recover + ailingSub + " --organization " + ailingOwner + "\n"},
		"in a list, each with its own":        {"subscriptions list", page(ailing(ailingSub, "paused"), ailing(ailingSub, "disabled")), reactivate + ailingSub + "\n" + recover + ailingSub + "\n"},
		"in a long list, the first few items": {"subscriptions list", page(many...), recover + ailingSub[:len(ailingSub)-1] + "4\nOther items need the same.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/api/v1/plans/" {
					says(200, jsonType, page(`{"name":"new","webhooks":true}`, `{"name":"gold","webhooks":true}`, `{"name":"free","webhooks":false}`))(w, r)
					return
				}
				says(200, jsonType, tt.body)(w, r)
			})
			code, _, stderr := s.ask(t, aToken, tt.command)
			if code != cli.ExitOK || !strings.HasSuffix(stderr, tt.want) || strings.Count(stderr, "run: ") > 5 {
				t.Errorf("code %d, remarks %q, want %q at the end", code, stderr, tt.want)
			}
		})
	}
}

func TestARecoverySaysWhatItSends(t *testing.T) {
	t.Parallel()
	const recovery = `{"deliveries":2,"pending":5,"since":"2030-01-31T13:35:00.000Z","blocked_by":%s}`
	for name, tt := range map[string]struct{ flags, status, blockedBy, want string }{
		"while the queue is held": {"", "disabled", `"queue_held"`, "had failed since 2030-01-31T13:35:00.000Z.\n" +
			"An operator has stopped all sending. To send again, an operator runs: keyhook queue release\n"},
		"of a disabled subscription": {"", "disabled", "null", "\nSends 5 that wait; sends 2 again that had failed since 2030-01-31T13:35:00.000Z.\n"},
		"of a failing one":           {"--yes", "failing", "null", "\nSends 5 that wait; sends 2 again that had failed since 2030-01-31T13:35:00.000Z.\n"},
		"dry":                        {"--dry-run", "disabled", "null", "\nWould send 5 that wait; would send 2 again that had failed since 2030-01-31T13:35:00.000Z.\n"},
		"of a healthy one": {"", "healthy", "null", "\nThe subscription is healthy, so there is no outage to recover from. Deliveries that are already pending: 5.\n" +
			"Sends 2 again that had failed since 2030-01-31T13:35:00.000Z.\n"},
		"of a healthy one, dry": {"--dry-run", "healthy", "null", "\nWould send 2 again that had failed since 2030-01-31T13:35:00.000Z.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					says(200, jsonType, `{"status":"`+tt.status+`"}`)(w, r)
					return
				}
				says(202, jsonType, fmt.Sprintf(recovery, tt.blockedBy))(w, r)
			})
			code, stdout, stderr := s.ask(t, aToken, "subscriptions recover "+ailingSub+" "+tt.flags)
			if code != cli.ExitOK || !strings.HasSuffix(stderr, tt.want) || !strings.Contains(stdout, "pending     5") {
				t.Errorf("code %d, output %q, remarks %q, want %q at the end", code, stdout, stderr, tt.want)
			}
		})
	}

	t.Run("without the permission to read the subscription, it says the same", func(t *testing.T) {
		t.Parallel()
		s := newStub(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				says(403, "application/problem+json", `{"code":"permission_denied"}`)(w, r)
				return
			}
			says(202, jsonType, fmt.Sprintf(recovery, "null"))(w, r)
		})
		if code, _, stderr := s.ask(t, aToken, "subscriptions recover "+ailingSub); code != cli.ExitOK || !strings.Contains(stderr, "Sends 5 that wait") {
			t.Errorf("code %d, remarks %q", code, stderr)
		}
	})
}
