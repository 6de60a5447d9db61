package cli_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/cli"
)

func TestQueueDiscard(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args, in string
		asked    int // requests
	}{
		"drops nothing without an answer":                     {"queue discard", "", 0},
		"drops nothing after an answer that no terminal sent": {"queue discard", "yes\n", 0},
		"does not ask with --yes":                             {"queue discard --yes", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked++
				if r.Method != http.MethodPost || r.URL.Path != "/api/v1/queue/discard/" || r.Header.Get("Authorization") != "Bearer t" {
					t.Errorf("%s %s %v", r.Method, r.URL.Path, r.Header)
				}
				_, _ = w.Write([]byte(`{"held":false,"pending_deliveries":1,"pending_subscriptions":1,"pending":[],"dropped":2}`))
			}))
			defer server.Close()
			var out, errs bytes.Buffer
			root := cli.New(cli.Options{In: strings.NewReader(tt.in), Out: &out, Err: &errs})
			code := cli.Run(t.Context(), root, append(strings.Fields(tt.args), "--url="+server.URL+"/", "--token=t"))
			if asked != tt.asked || (code == cli.ExitUsage) != (tt.asked == 0) {
				t.Errorf("%d requests, code %d, output %q, errors %q", asked, code, out.String(), errs.String())
			}
			if want := "dropped                2\n"; asked == 1 && !strings.Contains(out.String(), want) {
				t.Errorf("output %q", out.String())
			}
		})
	}
}
