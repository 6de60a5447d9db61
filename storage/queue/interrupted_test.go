package queue_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestInterruptedAttemptsOfEndedDeliveries opens a file whose owner died while an attempt was on the wire. The delivery of
// that attempt had ended by then, so the attempt must not bring it back.
func TestInterruptedAttemptsOfEndedDeliveries(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		// send begins an attempt that does not end, and returns its event.
		send  func(t *testing.T, x fixture) (event string)
		state webhook.DeliveryState
	}{
		{"of a test is not made up for", func(t *testing.T, x fixture) string {
			_, job, _, err := x.Queue.BeginTest(t.Context(), x.Org(), x.Sub.ID, "")
			if err != nil {
				t.Fatal(err)
			}
			return job.EventID
		}, webhook.Exhausted},
		{"of a delivery that was discarded stays dropped", func(t *testing.T, x fixture) string {
			published := storagetest.Publish(t, x.Store, x.Owner, "user.created")
			x.Begin(t, x.Jobs(t)[0])
			if err := x.Queue.HoldQueue(t.Context(), x.Actor(), "an incident"); err != nil {
				t.Fatal(err)
			}
			if n, err := x.Queue.DiscardQueue(t.Context(), x.Actor()); err != nil || n != 1 {
				t.Fatalf("%d discarded, error %v", n, err)
			}
			return published.ID
		}, webhook.Dropped},
		{"of a subscription that was removed stays dropped", func(t *testing.T, x fixture) string {
			published := storagetest.Publish(t, x.Store, x.Owner, "user.created")
			x.Begin(t, x.Jobs(t)[0])
			if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second) // upkeep drops what is pending
			return published.ID
		}, webhook.Dropped},
	} {
		t.Run("one "+tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "keyhook.db")
			synctest.Test(t, func(t *testing.T) {
				store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
				x := fixtureOf(t, store)
				event := tt.send(t, x)
				stop()
				x.Store, _ = storagetest.OpenWith(t, storagetest.Options(t, path))
				for _, job := range x.Jobs(t) {
					if job.EventID == event {
						t.Errorf("it is pending: %+v", job)
					}
				}
				_, deliveries, err := x.History.Event(t.Context(), x.Org(), event)
				if err != nil || len(deliveries) != 1 || deliveries[0].State != tt.state {
					t.Errorf("the delivery is %+v, error %v", deliveries, err)
				}
				list, err := x.Attempts(t.Context(), x.Org(), x.Sub.ID, webhook.AttemptFilter{EventID: event, Limit: 10})
				if err != nil || len(list) != 1 || list[0].Outcome != webhook.Interrupted {
					t.Errorf("attempts %+v, error %v", list, err)
				}
			})
		})
	}
}
