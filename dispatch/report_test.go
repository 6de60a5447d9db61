package dispatch_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestLog(t *testing.T) {
	t.Parallel()

	t.Run("each attempt has one line with everything about it and no secret", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			var log logBuffer
			x := newFixture(t, dispatch.Options{Logger: log.logger()})
			sub, secret := x.subscribeWithSecret(t, "a.example", respond(503))
			event := x.publish(t, 1)[0]
			time.Sleep(17 * time.Minute)
			x.setReceiver("a.example", respond(200))
			x.publish(t, 1)
			time.Sleep(20 * time.Minute)
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			if len(lines) != len(x.requests("a.example")) {
				t.Fatalf("%d lines for %d attempts:\n%s", len(lines), len(x.requests("a.example")), log.String())
			}
			for i, line := range lines[:4] {
				contains(t, line, `"level":"INFO"`, `"msg":"attempt failed"`, `"subscription":"`+sub.ID+`"`, `"event":"`+event+`"`,
					`"organization":"`+x.owner.Organization.ID+`"`, `"event_type":"order.paid"`, `"attempt":`+strconv.Itoa(i+1),
					`"status":503`, `"error":"http_status: 503"`, `"duration_ms":`, `"delivery_state":"pending"`, `"due_at":"2000-01-01T0`, `"health":"healthy"`)
			}
			contains(t, lines[4], `"level":"WARN"`, `"delivery_state":"exhausted"`, `"health":"failing"`)
			contains(t, lines[5], `"level":"INFO"`, `"msg":"attempt succeeded"`, `"status":200`, `"health":"healthy"`)
			checkNoSecrets(t, log.String(), secret, "said")
		})
	})

	t.Run("the last attempt is a warning without a change of the health, and so is such a change before the last attempt", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			var log logBuffer
			x := newFixture(t, dispatch.Options{Logger: log.logger()})
			x.subscribe(t, "a.example", respond(503))
			x.publish(t, 2) // of the second event, the third attempt makes the subscription failing
			time.Sleep(3 * time.Hour)
			for what, want := range map[string]int{`"delivery_state":"exhausted"`: 2, `"mend":`: 1} {
				got := 0
				for line := range strings.Lines(log.String()) {
					if strings.Contains(line, what) && strings.Contains(line, `"level":"WARN"`) {
						got++
					}
				}
				if got != want {
					t.Errorf("%d warnings with %s, want %d:\n%s", got, what, want, log.String())
				}
			}
		})
	})
}

// checkNoSecrets fails the test if a log holds the secret of a subscription, its URL, a credential, an address, or one of the
// other texts.
func checkNoSecrets(t *testing.T, log string, secret webhook.Secret, others ...string) {
	t.Helper()
	for _, text := range append(others, secret.Reveal(), "/hook", "Authorization", "127.0.0.1", "::1") {
		if strings.Contains(log, text) {
			t.Errorf("the log contains %q", text)
		}
	}
}
