package cli_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/cli"
)

func TestEventsExplain(t *testing.T) {
	t.Parallel()
	const (
		unwanted = `,
			{"subscription_id":"sub_01h455vb4pex5vsknk084sn04s","url_host":"c.example","verdict":"not_wanted","detail":"Not wanted.","advice":null,"next_attempt_at":null,"attempts":0}`
		event = "evt_01h455vb4pex5vsknk084sn02q"
		sub   = "sub_01h455vb4pex5vsknk084sn02q"
		other = "sub_01h455vb4pex5vsknk084sn03r"
		body  = `{"data":[
			{"subscription_id":"` + sub + `","url_host":"a.example","verdict":"held_paused","detail":"Paused by ana.\u001b[2J","hint":"check_secret","advice":"keyhook subscriptions reactivate ` + sub + `","next_attempt_at":null,"attempts":1},
			{"subscription_id":"` + other + `","url_host":"b.example","verdict":"delivered","detail":"Delivered.","advice":null,"next_attempt_at":null,"attempts":2}` + unwanted + `],
			"has_more":false,"next_cursor":null}`
		list = "GET /api/v1/events/" + event + "/explain/?limit=50 Bearer " + aToken
		one  = "GET /api/v1/events/" + event + "/explain/?limit=50&subscription_id=" + sub + " Bearer " + aToken
	)
	for name, tt := range map[string]struct{ command, asked, want string }{
		"prints a table, and below it what happened and what mends it": {"events explain " + event, list, `SUBSCRIPTION ID                 URL HOST   VERDICT      ATTEMPTS  NEXT ATTEMPT AT
sub_01h455vb4pex5vsknk084sn02q  a.example  held_paused  1         -
sub_01h455vb4pex5vsknk084sn03r  b.example  delivered    2         -

sub_01h455vb4pex5vsknk084sn02q: Paused by ana.\x1b[2J
    The receiver refuses the request. Compare the signing secret, the clocks, and the request headers that the receiver wants.
    keyhook subscriptions reactivate sub_01h455vb4pex5vsknk084sn02q

sub_01h455vb4pex5vsknk084sn03r: Delivered.
`},
		"asks about one subscription":   {"events explain " + event + " " + sub + " -q", one, "held_paused\ndelivered\nnot_wanted\n"},
		"prints only verdicts with -q":  {"events explain " + event + " -q", list, "held_paused\ndelivered\nnot_wanted\n"},
		"prints the response as it was": {"events explain " + event + " --json", list, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, says(200, jsonType, body))
			code, stdout, stderr := s.ask(t, aToken, tt.command)
			if code != cli.ExitOK || strings.Contains(stderr, "not_wanted: 1 subscription.") != strings.HasPrefix(name, "prints a table") {
				t.Errorf("code %d, errors %q", code, stderr)
			}
			if d := cmp.Diff([]string{tt.asked}, s.asked); d != "" {
				t.Errorf("requests (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.want, stdout); tt.want != "" && d != "" {
				t.Errorf("output (-want +got):\n%s", d)
			}
			if tt.want == "" && !strings.Contains(stdout, `"advice":"keyhook subscriptions reactivate `+sub+`"`) {
				t.Errorf("output %s", stdout)
			}
		})
	}
	for _, command := range []string{"events explain", "events explain " + event + " " + sub + " " + sub} {
		s := newStub(t, says(200, jsonType, body))
		if code, _, stderr := s.ask(t, aToken, command); code != cli.ExitUsage || len(s.asked) != 0 {
			t.Errorf("%s: code %d, errors %q", command, code, stderr)
		}
	}
}
