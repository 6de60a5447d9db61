package queue_test

import (
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// discarded publishes an event, fails some attempts, and drops its delivery while the next attempt is on the wire.
func (x fixture) discarded(t *testing.T, failed int) (event string, job webhook.Job, attempt int64) {
	t.Helper()
	event = storagetest.Publish(t, x.Store, x.Owner, "user.created").ID
	for range failed {
		job = x.Jobs(t)[0]
		x.End(t, job, x.Begin(t, job), false)
	}
	job = x.Jobs(t)[0]
	attempt = x.Begin(t, job)
	if err := x.Queue.HoldQueue(t.Context(), x.Actor(), "an incident"); err != nil {
		t.Fatal(err)
	}
	if n, err := x.Queue.DiscardQueue(t.Context(), x.Actor()); err != nil || n != 1 {
		t.Fatalf("%d discarded, error %v", n, err)
	}
	return event, job, attempt
}

// stateOf returns the state of an event's only delivery.
func (x fixture) stateOf(t *testing.T, event string) webhook.DeliveryState {
	t.Helper()
	_, deliveries, err := x.History.Event(t.Context(), x.Org(), event)
	if err != nil || len(deliveries) != 1 {
		t.Fatalf("%d deliveries, error %v", len(deliveries), err)
	}
	return deliveries[0].State
}

func TestResultsOfADroppedDelivery(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		failed    int // attempts before it was dropped
		succeeded bool
		want      webhook.DeliveryState
	}{
		"an attempt that fails leaves it dropped":       {0, false, webhook.Dropped},
		"the last attempt that fails leaves it dropped": {4, false, webhook.Dropped},
		"an attempt that arrives delivers it":           {0, true, webhook.Delivered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newFixture(t)
			event, job, attempt := x.discarded(t, tt.failed)
			x.End(t, job, attempt, tt.succeeded)
			if got := x.stateOf(t, event); got != tt.want {
				t.Errorf("its state is %v, want %v", got, tt.want)
			}
			for _, pending := range x.Jobs(t) {
				if pending.EventID == event {
					t.Error("it is pending again")
				}
			}
			if sub, err := x.History.Subscription(t.Context(), x.Org(), x.Sub.ID); err != nil || sub.PendingDeliveries != int64(len(x.Jobs(t))) {
				t.Errorf("%d are counted as pending of %d, error %v", sub.PendingDeliveries, len(x.Jobs(t)), err)
			}
		})
	}
}

func TestNoAttemptOfAnEndedDeliveryBegins(t *testing.T) {
	t.Parallel()
	t.Run("where it was delivered", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
		job := x.Jobs(t)[0]
		x.End(t, job, x.Begin(t, job), true)
		job.Attempts = 1
		if attempt := x.Begin(t, job); attempt != 0 {
			t.Errorf("attempt %d began after the delivery", attempt)
		}
	})
	t.Run("where it was dropped", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		_, job, attempt := x.discarded(t, 0)
		if err := x.Queue.UndoBegin(t.Context(), []int64{attempt}); err != nil {
			t.Fatal(err)
		}
		if attempt := x.Begin(t, job); attempt != 0 {
			t.Errorf("attempt %d began after the drop", attempt)
		}
	})
}

func TestAResultIsRecordedOnce(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	storagetest.Publish(t, x.Store, x.Owner, "user.created")
	job := x.Jobs(t)[0]
	r := webhook.Result{
		Attempt: x.Begin(t, job), Delivery: job.Delivery, Subscription: job.Subscription, Epoch: x.Sub.Epoch, Number: job.Number(),
		Trigger: job.Trigger(), RetryAt: 1000, Failure: webhook.Failure{Class: webhook.TimeoutError, Text: "none"},
	}
	if _, err := x.Queue.Record(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Queue.Record(t.Context(), r); err == nil || fault.KindOf(err) == fault.Unavailable {
		t.Errorf("the second time: %v", err)
	}
	if sub, err := x.History.Subscription(t.Context(), x.Org(), x.Sub.ID); err != nil || sub.ConsecutiveFailures != 1 || sub.PendingDeliveries != 1 {
		t.Errorf("%d failures and %d pending are counted, want 1 and 1, error %v", sub.ConsecutiveFailures, sub.PendingDeliveries, err)
	}
	if jobs := x.Jobs(t); len(jobs) != 1 || jobs[0].Number() != 2 {
		t.Errorf("pending is %+v", jobs)
	}
}

func TestReleaseTakesBackOnlyWhatWasNotSent(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	storagetest.Publish(t, x.Store, x.Owner, "user.created")
	job := x.Jobs(t)[0]
	attempt := x.Begin(t, job)
	x.End(t, job, attempt, false)
	if err := x.Queue.UndoBegin(t.Context(), []int64{attempt}); err != nil {
		t.Fatal(err)
	}
	list, err := x.Attempts(t.Context(), x.Org(), x.Sub.ID, webhook.AttemptFilter{Limit: 10})
	if err != nil || len(list) != 1 || list[0].Outcome != webhook.Failed {
		t.Errorf("on record are %+v, error %v", list, err)
	}
}

func TestReleaseOfAnotherAttempt(t *testing.T) {
	t.Parallel()

	t.Run("a late release of an earlier attempt leaves the one in progress", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
		job := x.Jobs(t)[0]
		first := x.Begin(t, job)
		x.End(t, job, first, false)
		second := x.Begin(t, x.Jobs(t)[0])
		if err := x.Queue.UndoBegin(t.Context(), []int64{first}); err != nil {
			t.Fatal(err)
		}
		if list := x.all(t); len(list) != 2 || list[0].Outcome != webhook.Sending {
			t.Errorf("attempt %d does not go on: %+v", second, list)
		}
	})

	t.Run("a result of a released attempt is not recorded", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		event := x.Publish(t, 1, "user.created")[0]
		job := x.Jobs(t)[0]
		attempt := x.Begin(t, job)
		if err := x.Queue.UndoBegin(t.Context(), []int64{attempt}); err != nil {
			t.Fatal(err)
		}
		_, err := x.Queue.Record(t.Context(), webhook.Result{Attempt: attempt, Delivery: job.Delivery, Subscription: job.Subscription, Epoch: 1, Number: 1, Succeeded: true})
		if got := x.stateOf(t, event); err == nil || got != webhook.Pending || len(x.all(t)) != 0 {
			t.Errorf("it is %v, error %v, attempts %+v", got, err, x.all(t))
		}
	})

	t.Run("a second release leaves what was dropped meanwhile, or is pending", func(t *testing.T) {
		t.Parallel()
		for name, drops := range map[string]bool{"dropped": true, "pending": false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				x := newFixture(t)
				event, want := x.Publish(t, 1, "user.created")[0], webhook.Pending
				attempt := x.Begin(t, x.Jobs(t)[0])
				for i := range 2 {
					if err := x.Queue.UndoBegin(t.Context(), []int64{attempt}); err != nil {
						t.Fatal(err)
					}
					if i == 0 && drops {
						want = webhook.Dropped
						must[int64](t)(x.Queue.Discard(t.Context(), x.Actor(), x.Org(), x.Sub.ID, 0))
					}
				}
				if got := x.stateOf(t, event); got != want {
					t.Errorf("it is %v, want %v", got, want)
				}
			})
		}
	})
}

// TestDiscardOfAnotherHold releases and holds the queue again after a caller asked to discard the first hold.
func TestDiscardOfAnotherHold(t *testing.T) {
	t.Parallel()
	for name, publish := range map[string]bool{"with deliveries": true, "without deliveries": false} {
		t.Run(name+" drops and releases nothing", func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "keyhook.db")
			synctest.Test(t, func(t *testing.T) {
				store, _ := storagetest.OpenWith(t, storagetest.Options(t, path))
				x := fixtureOf(t, store)
				release, calls := make(chan struct{}), sync.WaitGroup{}
				call := func(do func() error) {
					calls.Go(func() {
						if err := do(); err != nil {
							t.Error(err)
						}
					})
					synctest.Wait() // so that they come in this order
				}
				if publish {
					storagetest.Publish(t, store, x.Owner, "user.created")
				}
				if err := x.Queue.Write(t.Context(), func(t *queue.Tx) error { return x.HoldIn(t, "the first") }); err != nil {
					t.Fatal(err)
				}
				call(func() error {
					return x.Queue.Write(t.Context(), func(*queue.Tx) error { <-release; return nil })
				})
				call(func() error {
					return x.Queue.Write(t.Context(), func(t *queue.Tx) error { return t.Run("DELETE FROM instance WHERE name = 'hold'") })
				})
				call(func() error {
					return x.Queue.Write(t.Context(), func(t *queue.Tx) error { return x.HoldIn(t, "the second") })
				})
				call(func() error {
					if n, err := x.Queue.DiscardQueue(t.Context(), x.Actor()); n != 0 || fault.KindOf(err) != fault.Conflict {
						t.Errorf("%d dropped, error %v", n, err)
					}
					return nil
				})
				close(release)
				calls.Wait()
				if hold := x.Queue.Hold(); hold == nil || hold.Reason != "the second" {
					t.Errorf("the queue is held by %+v", hold)
				}
				if publish && len(x.Jobs(t)) == 0 {
					t.Error("the delivery is gone")
				}
			})
		})
	}
}

// TestWhatADeletedSubscriptionLeftIsDroppedAfterARestart deletes a subscription, and closes the file before upkeep drops what is pending.
func TestWhatADeletedSubscriptionLeftIsDroppedAfterARestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		x := storagetest.CustomerOf(t, store)
		x.Publish(t, 3, "a")
		if err := store.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID); err != nil {
			t.Fatal(err)
		}
		stop()
		pending := func() (n int64) {
			storagetest.Query(t, path, &n, "SELECT count(*) FROM deliveries WHERE state = 0")
			return n
		}
		if pending() == 0 {
			t.Fatal("nothing was left")
		}
		store, _ = storagetest.OpenWith(t, storagetest.Options(t, path))
		time.Sleep(time.Minute)
		if pending() != 0 || store.Pending() != 0 {
			t.Errorf("%d are pending in the file, and %d are counted", pending(), store.Pending())
		}
	})
}

func TestNoAttemptFollowsADroppedDelivery(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.EndAll(t, true)
	x.Publish(t, 1, "order.paid")
	job := x.Jobs(t)[0]
	r := x.Result(t, job, x.Begin(t, job), false)
	r.RetryAt = time.Now().Add(time.Hour).UnixMilli()
	must[[]webhook.Settled](t)(x.Queue.Record(t.Context(), r))
	for _, want := range []*int64{&r.RetryAt, nil} {
		if d := cmp.Diff(want, x.all(t)[0].NextAttemptAt); d != "" {
			t.Errorf("the time of the next attempt (-want +got):\n%s", d)
		}
		if _, err := x.Queue.Discard(t.Context(), x.Actor(), x.Org(), x.Sub.ID, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestADiscardDropsWhatFailsMeanwhile discards deliveries while the failures of their attempts are recorded.
func TestADiscardDropsWhatFailsMeanwhile(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.EndAll(t, true)
	for range 10 {
		const deliveries = 50
		x.Publish(t, deliveries, "order.paid")
		var results []webhook.Result
		for _, job := range x.Jobs(t) {
			r := x.Result(t, job, x.Begin(t, job), false)
			r.Epoch = 0 // the health stays as it is
			results = append(results, r)
		}
		var recording sync.WaitGroup
		recording.Go(func() {
			for _, r := range results {
				if _, err := x.Queue.Record(t.Context(), r); err != nil {
					t.Error(err)
				}
			}
		})
		n, err := x.Queue.Discard(t.Context(), x.Actor(), x.Org(), x.Sub.ID, 0)
		recording.Wait()
		if left := x.Jobs(t); err != nil || n != deliveries || len(left) > 0 {
			t.Fatalf("%d of %d are dropped, error %v, and %d wait", n, deliveries, err, len(left))
		}
	}
}

// TestADiscardInBatchesDropsWhatFailsMeanwhile discards more than a batch. While the first batch waits to be dropped, an attempt fails, and its next one is due before
// the last of that batch.
func TestADiscardInBatchesDropsWhatFailsMeanwhile(t *testing.T) {
	t.Parallel()
	for _, younger := range []bool{false, true} { // the others are younger than the time of the discard, so they stay
		discardsWhatFails(t, younger)
	}
}

func discardsWhatFails(t *testing.T, younger bool) {
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, storagetest.Options(t, path))
		x := fixtureOf(t, store)
		x.EndAll(t, true)
		const deliveries = 501
		x.Publish(t, deliveries, "order.paid")
		job := x.Jobs(t)[0]
		result := x.Result(t, job, x.Begin(t, job), false)
		result.RetryAt = time.Now().Add(15 * time.Second).UnixMilli()
		storagetest.Exec(t, store, "UPDATE deliveries SET due_at = ? WHERE state = 0", time.Now().Add(5*time.Minute).UnixMilli())
		before, stay := int64(0), 0
		if younger {
			before, stay = time.Now().UnixMilli(), deliveries-1
			storagetest.Exec(t, store, "UPDATE events SET created_at = created_at - 1 WHERE id = ?", job.Event)
		}
		hold := func(payer int64) (release func()) { // a write that goes on
			gate := make(chan struct{})
			go func() {
				err := store.File.Write(t.Context(), sqlite.Work{Payer: payer, Cost: 5000}, func(*sqlite.Tx) error { <-gate; return nil })
				if err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
			return func() { close(gate); synctest.Wait() }
		}
		releaseStart := hold(0)
		var dropped int64
		go func() { dropped = must[int64](t)(x.Queue.Discard(t.Context(), x.Actor(), x.Org(), x.Sub.ID, before)) }()
		synctest.Wait()
		releaseBatch := hold(x.Org()) // between the start of the discard and its first batch
		go func() { must[[]webhook.Settled](t)(x.Queue.Record(t.Context(), result)) }()
		synctest.Wait()
		releaseStart()
		releaseBatch()
		if left := x.Pending(t); dropped != int64(deliveries-stay) || left != int64(stay) {
			t.Errorf("younger %t: %d of %d are dropped, and %d wait", younger, dropped, deliveries, left)
		}
	})
}
