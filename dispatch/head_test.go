package dispatch_test

import (
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch"
)

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
