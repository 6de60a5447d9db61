package dispatch_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestTheProbeIsDueFirst publishes an event before each probe of a failing subscription. Each probe is the delivery that is due first.
func TestTheProbeIsDueFirst(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		x := newFixture(t, dispatch.Options{PerSubscription: 1})
		sub := x.subscribe(t, "a.example", respondAfter(time.Second, respond(500)))
		x.publish(t, 20)
		time.Sleep(6 * time.Second) // after the first failures
		for i := range 5 {
			failing := x.health(t, sub)
			x.publish(t, 1)
			synctest.Wait()
			jobs, err := x.Queue.PendingJobs(t.Context(), sub.RowID, 0, 1, nil)
			if err != nil || failing.Status != webhook.Failing {
				t.Fatalf("%+v, error %v", failing.Health, err)
			}
			before := len(x.requests("a.example"))
			time.Sleep(time.Until(time.UnixMilli(failing.ProbeAt)) + 2*time.Second)
			probes := x.requests("a.example")[before:]
			if len(probes) != 1 || probes[0].header.Get("Webhook-Id") != jobs[0].EventID {
				t.Errorf("probe %d of %d is not the delivery that was due first", i+1, len(probes))
			}
		}
	})
}

// TestNothingWaitsForDroppedDeliveries discards what a lane has in memory. A later event does not wait for it.
func TestNothingWaitsForDroppedDeliveries(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		x := newFixture(t, dispatch.Options{PerSubscription: 4})
		sub := x.subscribe(t, "a.example", respondAfter(10*time.Second, respond(200)))
		x.publish(t, 500)
		time.Sleep(time.Second)
		if _, err := x.Queue.Discard(t.Context(), x.actor(), x.org(), sub.ID, 0); err != nil {
			t.Fatal(err)
		}
		x.setReceiver("a.example", respond(200))
		before := len(x.requests("a.example"))
		later := x.publish(t, 1)[0]
		time.Sleep(11 * time.Second) // the requests in progress have ended
		if got := x.requests("a.example")[before:]; len(got) != 1 || got[0].header.Get("Webhook-Id") != later {
			t.Errorf("%d requests after the discard, want one with the later event", len(got))
		}
	})
}

// TestARecoveryWaitsForNoRetry recovers an ordered subscription whose first delivery waits for a retry.
func TestARecoveryWaitsForNoRetry(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		x := newFixture(t, dispatch.Options{Policy: policy(5, 2, 15)})
		sub := x.subscribe(t, "a.example", respond(500))
		x.setOrdered(t, sub, true)
		x.publish(t, 3)
		time.Sleep(2 * time.Minute) // the fourth attempt of the first delivery follows after four minutes
		x.setReceiver("a.example", respond(200))
		if r, err := x.Queue.Recover(t.Context(), x.actor(), x.org(), sub.ID, webhook.RecoveryRequest{}); err != nil || r.Pending != 3 {
			t.Fatalf("%+v, error %v", r, err)
		}
		time.Sleep(time.Second)
		if h := x.health(t, sub); h.PendingDeliveries != 0 {
			t.Errorf("%d deliveries wait after a recovery", h.PendingDeliveries)
		}
	})
}

// TestARecoveryOfAHealthySubscriptionWaitsForNoRetry has a receiver that fails for every second request. That is no outage.
func TestARecoveryOfAHealthySubscriptionWaitsForNoRetry(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		x := newFixture(t, dispatch.Options{})
		var requests atomic.Int64
		sub := x.subscribe(t, "a.example", func(r *http.Request) (*http.Response, error) {
			if requests.Add(1)%2 == 0 {
				return respond(500)(r)
			}
			return respond(200)(r)
		})
		for range 20 {
			x.publish(t, 100)
			time.Sleep(time.Second)
		}
		x.setReceiver("a.example", respond(200))
		if h := x.health(t, sub); h.Status != webhook.Healthy || h.PendingDeliveries <= 500 {
			t.Fatalf("%+v, %d pending", h.Health, h.PendingDeliveries)
		}
		if _, err := x.Queue.Recover(t.Context(), x.actor(), x.org(), sub.ID, webhook.RecoveryRequest{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if h := x.health(t, sub); h.PendingDeliveries != 0 {
			t.Errorf("%d deliveries wait after a recovery", h.PendingDeliveries)
		}
	})
}
