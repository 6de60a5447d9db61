package queue_test

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// places is a watcher with a number of places for new deliveries.
type places struct {
	mu                    sync.Mutex
	free, taken, returned int
	fresh                 []webhook.Job
}

func (p *places) TakePlace(organization, subscription int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if organization == 0 || subscription == 0 || p.free == 0 {
		return false
	}
	p.free--
	p.taken++
	return true
}

func (p *places) ReturnPlace(int64, int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free++
	p.returned++
}

func (p *places) DeliveriesCreated(jobs []webhook.Job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fresh = append(p.fresh, jobs...)
}

func (*places) BodiesChanged([]int64)         {}
func (*places) SubscriptionsChanged(...int64) {}

// begun returns how many of the announced deliveries have begun.
func (p *places) begun() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, j := range p.fresh {
		if j.Begun {
			n++
		}
	}
	return n
}

func TestDeliveryThatBeginsAtOnce(t *testing.T) {
	t.Parallel()

	t.Run("is in progress with the event, and its result can be recorded", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		p := &places{free: 1}
		x.Queue.Watch(p)
		event := storagetest.Publish(t, x.Store, x.Owner, "user.created")
		job := p.fresh[0]
		if !job.Begun || job.Epoch != x.Sub.Epoch || job.DueAt != event.At || job.Number() != 1 || len(x.Jobs(t)) != 0 {
			t.Fatalf("announced is %+v, and %d wait", job, len(x.Jobs(t)))
		}
		if a := x.all(t)[0]; a.Outcome != webhook.Sending || a.AttemptedAt != event.At || a.RowID != job.Delivery<<8|1 {
			t.Errorf("the attempt is %+v", a)
		}
		if attempt := x.Begin(t, job); attempt != 0 {
			t.Errorf("it has begun twice, as %d", attempt)
		}
		if settled := x.End(t, job, job.Delivery<<8|1, false); settled.State != webhook.Pending {
			t.Errorf("settled %+v", settled)
		}
		if jobs := x.Jobs(t); len(jobs) != 1 || jobs[0].Number() != 2 {
			t.Errorf("pending is %+v", jobs)
		}
	})

	t.Run("begins again after a crash", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		x := fixtureOf(t, store)
		x.Queue.Watch(&places{free: 1})
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
		stop()
		x.Store, _ = storagetest.OpenWith(t, storagetest.Options(t, path))
		if jobs := x.Jobs(t); len(jobs) != 1 || jobs[0].Number() != 2 || jobs[0].Trigger() != webhook.ByRetry {
			t.Errorf("pending is %+v", jobs)
		}
		if list := x.all(t); len(list) != 1 || list[0].Outcome != webhook.Interrupted || list[0].Trigger != webhook.ByEvent {
			t.Errorf("on record are %+v", list)
		}
	})

	t.Run("can be one of the store itself", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.SubscriptionChange{AuditEvents: new(true)}))
		p := &places{free: 1}
		x.Queue.Watch(p)
		storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/other", "never")
		if len(p.fresh) != 1 || !p.fresh[0].Begun || p.fresh[0].EventType != access.SubscriptionCreated {
			t.Errorf("announced is %+v", p.fresh)
		}
	})
}

func TestDeliveryThatWaits(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		places  int
		prepare func(t *testing.T, x fixture)
		create  func(t *testing.T, x fixture)
	}{
		"without a free place": {0, func(*testing.T, fixture) {}, nil},
		"while the queue is held": {9, func(t *testing.T, x fixture) {
			if err := x.Queue.HoldQueue(t.Context(), x.Actor(), "an incident"); err != nil {
				t.Fatal(err)
			}
		}, nil},
		"while its subscription is failing": {9, func(t *testing.T, x fixture) { x.Fail(t, 5) }, nil},
		"of a redelivery": {9, func(t *testing.T, x fixture) { x.Fail(t, 1) }, func(t *testing.T, x fixture) {
			if err := x.Queue.Redeliver(t.Context(), x.Actor(), x.Org(), x.Sub.ID, x.all(t)[0].ID); err != nil {
				t.Fatal(err)
			}
		}},
		"of a replay": {9, func(t *testing.T, x fixture) {
			for range 5 {
				x.Fail(t, 1)
			}
		}, func(t *testing.T, x fixture) {
			must[webhook.Replayed](t)(x.Queue.Replay(t.Context(), x.Actor(), x.Org(), x.Sub.ID, everything))
		}},
	} {
		t.Run("a delivery "+name+" waits", func(t *testing.T) {
			t.Parallel()
			x := newFixture(t)
			tt.prepare(t, x)
			p := &places{free: tt.places}
			x.Queue.Watch(p)
			if tt.create == nil {
				storagetest.Publish(t, x.Store, x.Owner, "user.created")
			} else {
				tt.create(t, x)
			}
			for _, j := range p.fresh {
				if j.Begun && !access.IsAuditType(j.EventType) {
					t.Errorf("it has begun: %+v", j)
				}
			}
			if len(x.Jobs(t)) == 0 {
				t.Error("nothing is pending")
			}
		})
	}
}

// TestPlacesAreReturnedOnce rolls transactions back that have taken places.
func TestPlacesAreReturnedOnce(t *testing.T) {
	t.Parallel()

	t.Run("by a write that fails alone", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		p := &places{free: 9}
		x.Queue.Watch(p)
		for range 2 {
			x.undo(t, func(t *queue.Tx) error {
				return errors.Join(x.PublishIn(t, x.Org(), "user.created"), x.PublishIn(t, x.Org(), "user.created"))
			})
		}
		if p.taken != 8 || p.returned != 8 || len(p.fresh) != 0 {
			t.Errorf("%d places were taken and %d returned, and %d deliveries announced", p.taken, p.returned, len(p.fresh))
		}
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
		if p.taken != 9 || p.returned != 8 || p.begun() != 1 {
			t.Errorf("after a commit: %d places were taken and %d returned, and %d deliveries have begun", p.taken, p.returned, p.begun())
		}
	})

	t.Run("by a write that fails before its first row", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		p := &places{free: 9}
		x.Queue.Watch(p)
		x.undo(t, func(t *queue.Tx) error { return x.TakePlaceIn(t, x.Org(), x.Sub.RowID) })
		if p.taken == 0 || p.returned != p.taken {
			t.Errorf("%d places were taken and %d returned", p.taken, p.returned)
		}
	})

	t.Run("by a write that is undone beside one that stands", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := fixtureOf(t, storagetest.Open(t))
			p := &places{free: 9}
			x.Queue.Watch(p)
			publish := func() { storagetest.Publish(t, x.Store, x.Owner, "user.created") }
			together(t, x.Store, publish, func() {
				err := x.WriteFor(t.Context(), x.Org(), 8, false, func(t *queue.Tx) error {
					return errors.Join(x.PublishIn(t, x.Org(), "user.created"), errRefused)
				})
				if !errors.Is(err, errRefused) {
					t.Error(err)
				}
			}, publish)
			if p.taken != 3 || p.returned != 1 || p.begun() != 2 || len(p.fresh) != 2 {
				t.Errorf("%d places were taken and %d returned, %d deliveries have begun and %d were announced, want 3, 1, 2 and 2",
					p.taken, p.returned, p.begun(), len(p.fresh))
			}
		})
	})

	t.Run("by a transaction that fails after one of its writes was undone", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := fixtureOf(t, storagetest.Open(t))
			p := &places{free: 9}
			x.Queue.Watch(p)
			fails := func(t *queue.Tx) error { return errors.Join(x.PublishIn(t, x.Org(), "user.created"), errRefused) }
			together(t, x.Store, func() { storagetest.Publish(t, x.Store, x.Owner, "user.created") }, func() {
				if err := x.WriteFor(t.Context(), x.Org(), 8, false, fails); !errors.Is(err, errRefused) {
					t.Error(err)
				}
			}, func() {
				if err := x.WriteWhole(t.Context(), x.Org(), fails); !errors.Is(err, errRefused) {
					t.Error(err)
				}
			})
			if p.taken != 6 || p.returned != 5 || p.begun() != 1 || len(p.fresh) != 1 {
				t.Errorf("%d places were taken and %d returned, %d deliveries have begun and %d were announced, want 6, 5, 1 and 1",
					p.taken, p.returned, p.begun(), len(p.fresh))
			}
		})
	})

	t.Run("by a batch that runs again", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := fixtureOf(t, storagetest.Open(t))
			p := &places{free: 9}
			x.Queue.Watch(p)
			publish := func() { storagetest.Publish(t, x.Store, x.Owner, "user.created") }
			rerun(t, x.Store, x.Org(), publish, publish, publish)
			if p.taken != 6 || p.returned != 3 || p.begun() != 3 {
				t.Errorf("%d places were taken and %d returned, and %d deliveries have begun, want 6, 3 and 3", p.taken, p.returned, p.begun())
			}
			sending := webhook.Sending
			if list := must[[]webhook.Attempt](t)(x.Attempts(t.Context(), x.Org(), x.Sub.ID, webhook.AttemptFilter{Outcome: &sending, Limit: 10})); len(list) != 3 {
				t.Errorf("in progress are %+v", list)
			}
		})
	})
}

func TestPlacesOfAnOrderedSubscription(t *testing.T) {
	t.Parallel()
	t.Run("are returned by the events that wait behind the first of their transaction", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.SubscriptionChange{Ordered: new(true)}))
		p := &places{free: 10}
		x.Queue.Watch(p)
		event := webhook.NewEvent{Type: "user.created", Data: []byte("{}")}
		must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{event, event, event}))
		if p.begun() != 1 || p.taken-p.returned != 1 {
			t.Errorf("%d attempts have begun, %d places were taken and %d returned, want 1 in use", p.begun(), p.taken, p.returned)
		}
	})
}
