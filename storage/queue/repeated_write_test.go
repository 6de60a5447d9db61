package queue_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// rerun has writes share one batch that is rolled back, so the writer runs each of them a second time, alone. The writes must
// be work of the given organization, 0 for Keyhook's own, because only writes of one payer keep their order. It must be
// called in a synctest bubble.
func rerun(t *testing.T, store *storage.Store, organization int64, writes ...func()) {
	t.Helper()
	release := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		if err := store.Queue.Write(context.Background(), func(*queue.Tx) error { <-release; return nil }); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	for _, write := range append(writes, func() {
		if err := store.WriteWhole(context.Background(), organization, func(t *queue.Tx) error {
			return errors.Join(t.Run("INSERT INTO instance (name, value) VALUES ('undone', x'00')"), errRefused)
		}); !errors.Is(err, errRefused) {
			t.Errorf("the write that undoes the batch: %v", err)
		}
	}) {
		all.Go(write)
		synctest.Wait() // so that the writes run in this order
	}
	close(release)
	all.Wait()
}

// onceThen is a write that does first in the shared batch, and second when it runs again.
func onceThen(store *storage.Store, organization int64, first, second func(*queue.Tx) error) func() {
	runs := 0
	return func() {
		_ = store.WriteFor(context.Background(), organization, 8, false, func(t *queue.Tx) error { // it may fail
			if runs++; runs == 1 {
				return first(t)
			}
			return second(t)
		})
	}
}

var (
	errRefused = errors.New("refused")
	refuse     = func(*queue.Tx) error { return errRefused }
	nothing    = func(*queue.Tx) error { return nil }
)

// listener notes what the store tells a watcher.
type listener struct {
	fresh   []webhook.Job
	changed int
}

func (*listener) TakePlace(int64, int64) bool            { return false }
func (*listener) ReturnPlace(int64, int64)               {}
func (l *listener) DeliveriesCreated(jobs []webhook.Job) { l.fresh = append(l.fresh, jobs...) }
func (*listener) BodiesChanged([]int64)                  {}
func (l *listener) SubscriptionsChanged(...int64)        { l.changed++ }

func TestAPublicationThatRunsAgain(t *testing.T) {
	t.Parallel()

	t.Run("is not answered with an event that was rolled back", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := fixtureOf(t, storagetest.Open(t))
			event := webhook.NewEvent{Type: "user.created", Data: []byte(`{}`), IdempotencyKey: "once"}
			// Another publication with the same key comes first. It succeeds in the shared batch and fails alone.
			other := func(t *queue.Tx) error {
				return t.Run(`INSERT INTO events (id, organization_id, type, created_at, body, idempotency_key, request_digest)
					VALUES (1000, ?, ?, ?, x'00', ?, ?)`, x.Org(), event.Type, t.Now(), event.IdempotencyKey, event.Digest[:])
			}
			var published []webhook.Published
			rerun(t, x.Store, x.Org(), onceThen(x.Store, x.Org(), other, refuse), func() {
				var err error
				if published, err = x.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{event}); err != nil {
					t.Error(err)
				}
			})
			if published[0].Repeated || published[0].Deliveries != 1 {
				t.Errorf("answered %+v", published[0])
			}
			if _, _, err := x.History.Event(t.Context(), x.Org(), published[0].ID); err != nil {
				t.Errorf("the acknowledged event: %v", err)
			}
		})
	})

	t.Run("stores the event once, announces it once and counts it once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := fixtureOf(t, storagetest.Open(t))
			told := &listener{}
			x.Queue.Watch(told)
			before, err := x.StoredToday(t.Context(), x.Org())
			if err != nil {
				t.Fatal(err)
			}
			storagetest.Publish(t, x.Store, x.Owner, "user.created")
			single, err := x.StoredToday(t.Context(), x.Org())
			if err != nil {
				t.Fatal(err)
			}
			rerun(t, x.Store, x.Org(), func() { storagetest.Publish(t, x.Store, x.Owner, "user.created") })
			if jobs := x.Jobs(t); len(jobs) != 2 || len(told.fresh) != 2 {
				t.Errorf("%d deliveries are pending and %d were announced, want 2 and 2", len(jobs), len(told.fresh))
			}
			if sub, err := x.History.Subscription(t.Context(), x.Org(), x.Sub.ID); err != nil || sub.PendingDeliveries != 2 {
				t.Errorf("%d are counted as pending, error %v", sub.PendingDeliveries, err)
			}
			if both, err := x.StoredToday(t.Context(), x.Org()); err != nil || both-single != single-before {
				t.Errorf("the first event took %d bytes of the day and the second %d, error %v", single-before, both-single, err)
			}
		})
	})
}

func TestABeginningThatRunsAgain(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(x fixture) func(*queue.Tx) error{
		"the queue is held": func(x fixture) func(*queue.Tx) error {
			return func(t *queue.Tx) error { return x.HoldIn(t, "an incident") }
		},
		"the subscription is closed": func(x fixture) func(*queue.Tx) error {
			return func(t *queue.Tx) error { return t.WriteHealth(x.Sub.RowID, x.Sub.Deactivate("nobody")) }
		},
		"the delivery has ended": func(x fixture) func(*queue.Tx) error {
			return func(t *queue.Tx) error { return t.Run("UPDATE deliveries SET state = 3") }
		},
	} {
		t.Run("returns no attempt where "+name+" by then", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := fixtureOf(t, storagetest.Open(t))
				storagetest.Publish(t, x.Store, x.Owner, "user.created")
				job := x.Jobs(t)[0]
				attempt := int64(-1)
				rerun(t, x.Store, 0, onceThen(x.Store, 0, nothing, change(x)), func() { attempt = x.Begin(t, job) })
				if attempt != 0 {
					t.Errorf("attempt %d may be sent", attempt)
				}
				list, err := x.Attempts(t.Context(), x.Org(), x.Sub.ID, webhook.AttemptFilter{Limit: 10})
				if err != nil || len(list) != 0 {
					t.Errorf("on record are %+v, error %v", list, err)
				}
			})
		})
	}
}

// TestResultsThatRunAgain records a result in a batch that is rolled back.
func TestResultsThatRunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := fixtureOf(t, storagetest.Open(t))
		for range 4 { // one more failure makes it failing
			storagetest.Publish(t, x.Store, x.Owner, "user.created")
			job := x.Jobs(t)[0]
			x.End(t, job, x.Begin(t, job), false)
		}
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
		jobs := x.Jobs(t)
		job := jobs[len(jobs)-1]
		attempt := x.Begin(t, job)
		rerun(t, x.Store, 0, func() { x.End(t, job, attempt, false) })
		sub, err := x.History.Subscription(t.Context(), x.Org(), x.Sub.ID)
		if err != nil || sub.ConsecutiveFailures != 5 || sub.Status != webhook.Failing {
			t.Errorf("%d failures, %v, error %v", sub.ConsecutiveFailures, sub.Status, err)
		}
		told, err := x.AuditEvents(t.Context(), x.Org(), access.AuditFilter{Type: access.SubscriptionFailing, Limit: 10})
		if err != nil || len(told) != 1 {
			t.Errorf("the audit log tells it %d times, error %v", len(told), err)
		}
		minute := time.Now().Unix() / 60
		points, err := x.History.Series(t.Context(), x.Org(), "", minute, minute+1, 1)
		if err != nil || len(points) != 1 || points[0].Failed != 5 {
			t.Errorf("counted are %+v, want 5 failures, error %v", points, err)
		}
	})
}
