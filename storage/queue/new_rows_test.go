package queue_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// together runs writes of an organization in one transaction. It must be called in a synctest bubble.
func together(t *testing.T, store *storage.Store, writes ...func()) {
	t.Helper()
	release := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		if err := store.Queue.Write(t.Context(), func(*queue.Tx) error { <-release; return nil }); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	for _, write := range writes {
		all.Go(write)
		synctest.Wait()
	}
	close(release)
	all.Wait()
}

func TestNewRows(t *testing.T) {
	t.Parallel()

	t.Run("any number of events of a transaction is stored and announced together", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := fixtureOf(t, storagetest.Open(t))
			other, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/other", "user.created")
			told := &calls{}
			x.Queue.Watch(told)
			const n = 101 // 64 + 2*16 + 4 + 1
			var writes []func()
			var mu sync.Mutex
			ids := map[string]bool{}
			for range n {
				writes = append(writes, func() {
					p := storagetest.Publish(t, x.Store, x.Owner, "user.created")
					mu.Lock()
					defer mu.Unlock()
					ids[p.ID] = p.Deliveries == 2
				})
			}
			together(t, x.Store, writes...)
			if told.calls != 1 || len(told.fresh) != 2*n {
				t.Errorf("%d deliveries were announced in %d calls", len(told.fresh), told.calls)
			}
			announced := map[int64]webhook.Job{}
			for _, j := range told.fresh {
				announced[j.Delivery] = j
			}
			for _, row := range []int64{x.Sub.RowID, other.RowID} {
				jobs := must[[]webhook.Job](t)(x.Queue.PendingJobs(t.Context(), row, 0, 2*n, nil))
				jobs = slices.DeleteFunc(jobs, func(j webhook.Job) bool { return j.EventType != "user.created" })
				if len(jobs) != n {
					t.Errorf("%d deliveries are pending", len(jobs))
				}
				for _, j := range jobs {
					if a := announced[j.Delivery]; !ids[j.EventID] || a.EventID != j.EventID || a.Subscription != row || string(a.Body) != string(j.Body) {
						t.Fatalf("pending is %+v, announced was %+v", j, a)
					}
				}
			}
		})
	})

	t.Run("a statement sees the events before it in the transaction", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		if err := x.Queue.Write(t.Context(), func(t *queue.Tx) error {
			if err := x.PublishIn(t, x.Org(), "user.created"); err != nil {
				return err
			}
			if t.Delayed() != 1 {
				return errors.New("the event is in the table already")
			}
			var events, deliveries int
			if err := errors.Join(t.Get(&events, "SELECT count(*) FROM events WHERE type = 'user.created'"), t.Get(&deliveries, "SELECT count(*) FROM deliveries d JOIN events e ON e.id = d.event_id WHERE e.type = 'user.created'")); err != nil {
				return err
			}
			if events != 1 || deliveries != 1 || t.Delayed() != 0 {
				return fmt.Errorf("%d events and %d deliveries", events, deliveries)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})

	t.Run("a key twice in a transaction is one event", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := fixtureOf(t, storagetest.Open(t))
			p := &places{free: 9}
			x.Queue.Watch(p)
			event := webhook.NewEvent{Type: "user.created", Data: []byte(`{}`), IdempotencyKey: "once"}
			var published [3][]webhook.Published
			var writes []func()
			for i := range published {
				writes = append(writes, func() {
					published[i] = must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{event}))
				})
			}
			together(t, x.Store, writes...)
			if a, b, c := published[0][0], published[1][0], published[2][0]; a.Repeated || !b.Repeated || !c.Repeated || a.ID != b.ID || a.ID != c.ID {
				t.Errorf("answered %+v", published)
			}
			if p.taken != 1 || p.returned != 0 { // a transaction with two events of one key would be undone
				t.Errorf("%d deliveries have begun, and %d were undone", p.taken, p.returned)
			}
		})
	})
}

// calls counts the calls with new deliveries.
type calls struct {
	listener
	calls int
}

func (c *calls) DeliveriesCreated(jobs []webhook.Job) {
	c.calls++
	c.listener.DeliveriesCreated(jobs)
}

func TestFailingWriteAmongNewRows(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(x fixture) func(*queue.Tx) error{
		"fails at once": func(fixture) func(*queue.Tx) error { return refuse },
		"fails after it has published": func(x fixture) func(*queue.Tx) error {
			return func(t *queue.Tx) error { return errors.Join(x.PublishIn(t, x.Org(), "user.created"), errRefused) }
		},
		"has new rows that cannot be written": func(x fixture) func(*queue.Tx) error { // which shows only in a later write
			return func(t *queue.Tx) error {
				e := webhook.NewEvent{Type: "user.created", Data: []byte(`{}`), IdempotencyKey: "taken"}
				return errors.Join(x.PublishEventIn(t, x.Org(), e), x.PublishEventIn(t, x.Org(), e))
			}
		},
		"panics": func(x fixture) func(*queue.Tx) error {
			return func(t *queue.Tx) error { panic(x.PublishIn(t, x.Org(), "user.created")) }
		},
	} {
		t.Run("only the write that "+name+" fails", func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "keyhook.db")
			synctest.Test(t, func(t *testing.T) {
				store, _ := storagetest.OpenWith(t, storagetest.Options(t, path))
				x := fixtureOf(t, store)
				told := &listener{}
				x.Queue.Watch(told)
				var mu sync.Mutex
				var events []string
				publish := func() {
					id := storagetest.Publish(t, x.Store, x.Owner, "user.created").ID
					mu.Lock()
					defer mu.Unlock()
					events = append(events, id)
				}
				together(t, x.Store, publish, publish, func() {
					if err := x.WriteFor(t.Context(), x.Org(), 8, false, fail(x)); err == nil {
						t.Error("it has succeeded")
					}
				}, publish, func() {
					if _, err := x.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{{Type: "user.created", Data: []byte(`{}`), IdempotencyKey: "own"}}); err != nil {
						t.Error(err)
					}
				}, publish)
				if jobs := x.Jobs(t); len(jobs) != 5 || len(told.fresh) != 5 {
					t.Errorf("%d deliveries are pending and %d were announced, want 5", len(jobs), len(told.fresh))
				}
				for _, event := range events {
					if _, _, err := x.History.Event(t.Context(), x.Org(), event); err != nil {
						t.Errorf("an acknowledged event: %v", err)
					}
				}
			})
		})
	}
}

// TestNumbersOfDeliveriesNeverGoBack deletes the newest deliveries after the queue was held, and restarts.
func TestNumbersOfDeliveriesNeverGoBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
	x := fixtureOf(t, store)
	newest := func() int64 { jobs := x.Jobs(t); return jobs[len(jobs)-1].Delivery }
	storagetest.Publish(t, x.Store, x.Owner, "user.created")
	x.End(t, x.Jobs(t)[0], x.Begin(t, x.Jobs(t)[0]), false)
	storagetest.Publish(t, x.Store, x.Owner, "user.created")
	before := newest()
	remove := func(t *queue.Tx) error { return t.Run("DELETE FROM deliveries WHERE id >= ?", before) }
	if err := x.Queue.Write(t.Context(), remove); err != nil {
		t.Fatal(err)
	}
	x.undo(t, func(t *queue.Tx) error { return x.PublishIn(t, x.Org(), "user.created") })
	storagetest.Publish(t, x.Store, x.Owner, "user.created")
	if after := newest(); after <= before {
		t.Errorf("delivery %d follows %d", after, before)
	}
	if err := x.Queue.HoldQueue(t.Context(), x.Actor(), "an incident"); err != nil {
		t.Fatal(err)
	}
	before = x.Queue.Hold().Last // the audit event of the hold has a later delivery
	if err := x.Queue.Write(t.Context(), remove); err != nil {
		t.Fatal(err)
	}
	stop()
	x.Store, _ = storagetest.OpenWith(t, storagetest.Options(t, path))
	old := int64(len(x.Jobs(t)))
	event := storagetest.Publish(t, x.Store, x.Owner, "user.created")
	if n, err := x.Queue.DiscardQueue(t.Context(), x.Actor()); err != nil || n != old {
		t.Errorf("%d discarded, error %v", n, err)
	}
	if got := x.stateOf(t, event.ID); got != webhook.Pending {
		t.Errorf("a delivery from after the hold is %v", got)
	}
}
