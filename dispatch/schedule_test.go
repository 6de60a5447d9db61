package dispatch_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestRetries(t *testing.T) {
	t.Parallel()

	t.Run("a receiver that always fails gets five attempts, ever later, each signed afresh", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			x := newRig(t, dispatch.Options{Policy: webhook.Policy{MaxAttempts: 5, FailingAfter: 50, DisabledAfter: 100}})
			sub, secret := x.subscribeSecret(t, "a.example", says(500))
			x.publish(t, 1)
			time.Sleep(24 * time.Hour)
			synctest.Wait()

			got := x.requests("a.example")
			if len(got) != 5 {
				t.Fatalf("%d requests, want 5", len(got))
			}
			want := []time.Duration{15 * time.Second, time.Minute, 4 * time.Minute, 10 * time.Minute}
			signatures := map[string]bool{}
			for i, q := range got {
				if err := signature.Verify(secret.Reveal(), q.header, []byte(q.body), q.at, time.Second); err != nil {
					t.Errorf("attempt %d: %v", i+1, err)
				}
				if err := signature.VerifyStandard(secret.Reveal(), q.header, []byte(q.body), q.at, time.Second); err != nil {
					t.Errorf("attempt %d: %v", i+1, err)
				}
				signatures[q.header.Get("X-Service-Signature")] = true
				if n := q.header.Get("X-Service-Attempt"); n != strconv.Itoa(i+1) {
					t.Errorf("attempt %d says it is %s", i+1, n)
				}
				if q.body != got[0].body {
					t.Errorf("attempt %d has another body", i+1)
				}
				if i == 0 {
					continue
				}
				wait := q.at.Sub(got[i-1].at)
				if low, high := want[i-1]*8/10, min(want[i-1]*12/10, 10*time.Minute)+time.Second; wait < low || wait > high {
					t.Errorf("attempt %d came %s after the one before, want %s to %s", i+1, wait, low, high)
				}
			}
			if len(signatures) != 5 {
				t.Errorf("%d different signatures, want 5", len(signatures))
			}
			if n := x.outcomes(t, sub)[webhook.Failed]; n != 5 {
				t.Errorf("%d failed attempts on record, want 5", n)
			}
			if n := x.health(t, sub).PendingDeliveries; n != 0 {
				t.Errorf("%d deliveries pending, want 0", n)
			}
		})
	})
}
