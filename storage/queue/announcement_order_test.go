package queue_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// announcements notes the order in which the store tells a watcher of deliveries and changes.
type announcements struct{ told []string }

func (*announcements) TakePlace(int64, int64) bool { return true }
func (*announcements) ReturnPlace(int64, int64)    {}
func (a *announcements) DeliveriesCreated(jobs []webhook.Job) {
	for _, j := range jobs {
		a.told = append(a.told, j.EventType)
	}
}
func (*announcements) BodiesChanged([]int64)           {}
func (a *announcements) SubscriptionsChanged(...int64) { a.told = append(a.told, "changed") }

// TestOrderOfAnnouncements publishes before and after a change of the subscription, all in one transaction. A delivery that
// was told before the change could be sent to the old address.
func TestOrderOfAnnouncements(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := fixtureOf(t, storagetest.Open(t))
		told := &announcements{}
		x.Queue.Watch(told)
		publish := func(eventType string) func() {
			return func() { storagetest.Publish(t, x.Store, x.Owner, eventType) }
		}
		limit := func() {
			if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{RateLimitPerSecond: new(new(int64(10)))}); err != nil {
				t.Error(err)
			}
		}
		together(t, x.Store, publish("user.created"), limit, publish("user.updated"), publish("user.deleted"))
		publish("user.created")()
		if want := []string{"user.created", "changed", "user.updated", "user.deleted", "user.created"}; !slices.Equal(told.told, want) {
			t.Errorf("told %q, want %q", told.told, want)
		}
	})
}
