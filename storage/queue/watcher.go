package queue

import (
	"maps"
	"slices"

	"github.com/keyhook/keyhook/storage/fanout"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The watcher is the dispatcher: it gives places to first attempts, and learns of every change after the commit.

// Watch registers w, which receives the changes of every later commit. Call it once, before Run.
func (q *Queue) Watch(w webhook.Watcher) { q.watcher.Store(&w) }

// place allows the first attempt of a new delivery to begin. The dispatcher has a limited number of places.
type place struct{ organization, subscription int64 }

// setFirstAttempt sets the number of a new delivery in the order of its subscription, and whether its first attempt begins in this
// transaction. Then the delivery is sent after the commit, without a transaction for its beginning.
func (t *tx) setFirstAttempt(sub *fanout.Subscription, j *webhook.Job) (err error) {
	j.Epoch = sub.Epoch
	if sub.Ordered {
		j.Sequence = j.Event
	}
	j.Begun, err = t.takePlace(sub, j)
	return err
}

// takePlace asks the dispatcher for a place for the first attempt of a new delivery.
func (t *tx) takePlace(sub *fanout.Subscription, j *webhook.Job) (bool, error) {
	w := t.watcher.Load()
	if w == nil {
		return false, nil
	}
	if hold, err := t.hold(); err != nil || hold != nil {
		return false, err
	}
	if sub.Why() != webhook.NotBlocked || sub.Status != webhook.Healthy || sub.Ordered && t.pending.Of(j.Subscription) > 0 || !(*w).TakePlace(j.Organization, j.Subscription) {
		return false, nil
	}
	t.UndoIfFailed()
	if len(t.places) == 0 {
		t.OnCommit(func() { t.places = t.places[:0] })
	}
	t.places = append(t.places, place{j.Organization, j.Subscription})
	if !sub.Ordered {
		return true, nil
	}
	var first bool
	err := t.Get(&first, nothingInFront, j.Subscription)
	if err == nil && !first {
		t.places = t.places[:len(t.places)-1]
		(*w).ReturnPlace(j.Organization, j.Subscription)
	}
	return first, err
}

// announceDeliveries passes new pending deliveries of one organization to the pending count and to the dispatcher, after the commit.
func (t *tx) announceDeliveries(jobs []webhook.Job) {
	if len(jobs) == 0 {
		return
	}
	if t.created == nil {
		created := map[int64][]webhook.Job{}
		t.created = created
		t.OnCommit(func() {
			t.created = nil
			w := t.watcher.Load()
			for _, organization := range slices.Sorted(maps.Keys(created)) { // the same order in each replay of a simulation
				t.pending.AddAll(created[organization])
				if w != nil {
					(*w).DeliveriesCreated(created[organization])
				}
			}
		})
	}
	organization := jobs[0].Organization
	if before := t.created[organization]; before != nil {
		jobs = append(before, jobs...)
	}
	t.created[organization] = jobs
}

// SubscriptionsChanged tells the dispatcher, after the commit, that these subscriptions have changed.
func (q *Queue) SubscriptionsChanged(now *sqlite.Tx, subscriptions ...int64) {
	if len(subscriptions) > 0 {
		q.o.Memory.with(now).announceChange(subscriptions...)
	}
}

// AllSubscriptionsChanged tells it that any may have changed. Then each is read again, which takes time.
func (q *Queue) AllSubscriptionsChanged(now *sqlite.Tx) { q.o.Memory.with(now).announceChange() }

// announceChange without arguments announces that any subscription may have changed.
func (t *tx) announceChange(subscriptions ...int64) {
	t.Fanout.Invalidate(subscriptions...)
	t.created = nil // the watcher receives later deliveries after this change
	t.OnCommit(func() {
		if w := t.watcher.Load(); w != nil {
			(*w).SubscriptionsChanged(subscriptions...)
		}
	})
}

// BodiesChanged tells the dispatcher, after the commit, that these events have other bodies now.
func (q *Queue) BodiesChanged(now *sqlite.Tx, events []int64) {
	now.OnCommit(func() {
		if w := q.watcher.Load(); w != nil {
			(*w).BodiesChanged(events)
		}
	})
}
