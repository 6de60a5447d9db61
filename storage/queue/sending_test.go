package queue_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// all lists the attempts of the subscription.
func (x fixture) all(t *testing.T) []webhook.Attempt {
	t.Helper()
	return must[[]webhook.Attempt](t)(x.Attempts(t.Context(), x.Org(), x.Sub.ID, webhook.AttemptFilter{Limit: 200}))
}

// TestAttemptsInProgress has an attempt in progress. Only its delivery is in the file, but readers see an attempt.
func TestAttemptsInProgress(t *testing.T) {
	t.Parallel()

	t.Run("an attempt in progress has the id, time and cause that it has after its end", func(t *testing.T) {
		t.Parallel()
		for name, end := range map[string]func(t *testing.T, x fixture, job webhook.Job, attempt int64, path string) *storage.Store{
			"recorded": func(t *testing.T, x fixture, job webhook.Job, attempt int64, _ string) *storage.Store {
				x.End(t, job, attempt, true)
				return x.Store
			},
			"interrupted": func(t *testing.T, _ fixture, _ webhook.Job, _ int64, path string) *storage.Store {
				copied := filepath.Join(t.TempDir(), "copy.db")
				if _, err := storage.Backup(t.Context(), storage.BackupOptions{Path: path, To: copied}); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(copied+".key", must[[]byte](t)(os.ReadFile(path+".key")), 0o600); err != nil {
					t.Fatal(err)
				}
				store, _ := storagetest.OpenWith(t, storagetest.Options(t, copied))
				return store
			},
		} {
			for _, failed := range []int{0, 2} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
					store, _ := storagetest.OpenWith(t, o)
					x := fixtureOf(t, store)
					published := storagetest.Publish(t, x.Store, x.Owner, "user.created")
					for range failed {
						job := x.Jobs(t)[0]
						x.End(t, job, x.Begin(t, job), false)
					}
					job := x.Jobs(t)[0]
					attempt := x.Begin(t, job)
					cause := webhook.ByEvent
					if failed > 0 {
						cause = webhook.ByRetry
					}
					during := x.all(t)
					want := webhook.Attempt{
						SubscriptionID: x.Sub.ID, EventID: published.ID, EventType: "user.created", EventAt: published.At, Number: failed + 1,
						Trigger: cause, Outcome: webhook.Sending, RowID: attempt,
					}
					if d := cmp.Diff(want, during[0], cmpopts.IgnoreFields(webhook.Attempt{}, "ID", "EventRow", "AttemptedAt")); d != "" || len(during) != failed+1 {
						t.Errorf("%d attempts, the first (-want +got):\n%s", len(during), d)
					}
					if single := must[webhook.Attempt](t)(x.History.Attempt(t.Context(), attempt)); !cmp.Equal(single, during[0]) {
						t.Errorf("alone it is %+v", single)
					}
					x.Store = end(t, x, job, attempt, o.Path)
					after := x.all(t)
					if d := cmp.Diff(during, after, cmpopts.IgnoreFields(webhook.Attempt{}, "Outcome", "ResponseStatus", "DurationMS", "Error")); d != "" {
						t.Errorf("(-during +after):\n%s", d)
					}
					if after[0].Outcome == webhook.Sending {
						t.Error("it has not ended")
					}
				})
			}
		}
	})

	t.Run("its delivery counts as pending everywhere", func(t *testing.T) {
		t.Parallel()
		o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		event := storagetest.Publish(t, x.Store, x.Owner, "user.created").ID
		x.Begin(t, x.Jobs(t)[0])
		if len(x.Jobs(t)) != 0 {
			t.Error("it can be sent once more")
		}
		if got := x.stateOf(t, event); got != webhook.Pending {
			t.Errorf("its state is %v", got)
		}
		if sub, err := x.History.Subscription(t.Context(), x.Org(), x.Sub.ID); err != nil || sub.PendingDeliveries != 1 {
			t.Errorf("%d are counted, error %v", sub.PendingDeliveries, err)
		}
		queue := must[webhook.Queue](t)(x.Survey.QueueSummary(t.Context()))
		if queue.Deliveries != 1 || len(queue.Largest) != 1 || queue.Largest[0].OldestDue == 0 {
			t.Errorf("the queue is %+v", queue)
		}
		backlog := must[webhook.Backlog](t)(x.Survey.Backlog(t.Context()))
		if backlog.Healthy != (webhook.Waiting{Lanes: 1, Deliveries: 1}) || backlog.OldestDue == 0 {
			t.Errorf("the backlog is %+v", backlog)
		}
		if n, err := x.CountReplay(t.Context(), everything); err != nil || n.Total() != 0 {
			t.Errorf("a replay would create %d, error %v", n, err)
		}
		report, err := storage.Backup(t.Context(), storage.BackupOptions{Path: o.Path})
		if err != nil || report.Contents.Pending != 1 {
			t.Errorf("%d are pending in a backup, error %v", report.Contents.Pending, err)
		}
	})

	t.Run("its event can be delivered again", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		event := storagetest.Publish(t, x.Store, x.Owner, "user.created").ID
		x.Begin(t, x.Jobs(t)[0])
		during := x.all(t)[0].ID
		if err := x.Queue.Redeliver(t.Context(), x.Actor(), x.Org(), x.Sub.ID, during); err != nil {
			t.Fatal(err)
		}
		if job := x.Jobs(t)[0]; job.EventID != event || job.Cause != webhook.ByHand {
			t.Errorf("pending is %+v", job)
		}
	})
}

// TestReplayBesideARedelivery has an exhausted delivery, and another one of the same event in progress.
func TestReplayBesideARedelivery(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	storagetest.Publish(t, x.Store, x.Owner, "user.created")
	for range 5 {
		job := x.Jobs(t)[0]
		x.End(t, job, x.Begin(t, job), false)
	}
	if n, err := x.CountReplay(t.Context(), everything); err != nil || n.Total() != 1 {
		t.Fatalf("a replay would create %d, error %v", n, err)
	}
	if err := x.Queue.Redeliver(t.Context(), x.Actor(), x.Org(), x.Sub.ID, x.all(t)[0].ID); err != nil {
		t.Fatal(err)
	}
	x.Begin(t, x.Jobs(t)[0])
	if n, err := x.CountReplay(t.Context(), everything); err != nil || n.Total() != 0 {
		t.Errorf("a replay would create %d, error %v", n, err)
	}
}

func TestBeginTogether(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	other, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/other", "user.created")
	for range 100 {
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
	}
	jobs := append(x.Jobs(t), must[[]webhook.Job](t)(x.Queue.PendingJobs(t.Context(), other.RowID, 0, 100, nil))...)
	slices.SortFunc(jobs, func(a, b webhook.Job) int { return int(a.Delivery*7%101 - b.Delivery*7%101) }) // any order
	subscription := map[int64]webhook.Subscription{x.Sub.RowID: x.Sub, other.RowID: other}
	refused := map[int]bool{}
	starts := make([]webhook.Start, len(jobs))
	for i, j := range jobs {
		starts[i] = webhook.Start{Delivery: j.Delivery, Subscription: j.Subscription, Epoch: subscription[j.Subscription].Epoch, Number: 1}
		switch refused[i] = i%9 < 4; i % 9 {
		case 0:
			starts[i].Epoch++
		case 1:
			starts[i].Number++
		case 2:
			starts[i].Subscription = x.Sub.RowID + other.RowID - j.Subscription
			starts[i].Epoch = subscription[starts[i].Subscription].Epoch
		case 3:
			starts[i].Delivery += 1000
		}
	}
	refused[len(starts)] = true
	starts = slices.Concat(starts, starts[8:9]) // the same one again
	for i, id := range must[[]int64](t)(x.Queue.Begin(t.Context(), starts)) {
		if want := starts[i].Delivery<<8 | 1; refused[i] != (id == 0) || id != 0 && id != want {
			t.Errorf("start %d: %+v has begun as %d, want %d, or 0: %v", i, starts[i], id, want, refused[i])
		}
	}
	for text, plan := range storagetest.QueryPlans(t, x.Store) {
		if strings.Contains(text, "RETURNING id") && strings.Contains(text, "deliveries") && !slices.ContainsFunc(plan, func(step string) bool {
			return strings.Contains(step, "INTEGER PRIMARY KEY") // the other index has every pending delivery of the subscription
		}) {
			t.Errorf("%s\n  %s", text, strings.Join(plan, "\n  "))
		}
	}
}

// TestNoAttemptIsMissing lists attempts while they end.
func TestNoAttemptIsMissing(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	for range 100 {
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
	}
	jobs := x.Jobs(t)
	attempts := make([]int64, len(jobs))
	for i, job := range jobs {
		attempts[i] = x.Begin(t, job)
	}
	var ended atomic.Bool
	var ending sync.WaitGroup
	ending.Go(func() {
		for i, job := range jobs {
			x.End(t, job, attempts[i], true)
		}
		ended.Store(true)
	})
	for !ended.Load() {
		if n := len(x.all(t)); n != len(jobs) {
			t.Errorf("%d attempts, want %d", n, len(jobs))
			break
		}
		must[webhook.Attempt](t)(x.History.Attempt(t.Context(), attempts[len(attempts)/2]))
	}
	ending.Wait()
}

// TestDropOnTheWire drops deliveries while an attempt of them is on the wire, in each way.
func TestDropOnTheWire(t *testing.T) {
	t.Parallel()
	for name, drop := range map[string]func(t *testing.T, x fixture){
		"discards the queue": func(t *testing.T, x fixture) {
			if err := x.Queue.HoldQueue(t.Context(), x.Actor(), "an incident"); err != nil {
				t.Fatal(err)
			}
			must[int64](t)(x.Queue.DiscardQueue(t.Context(), x.Actor()))
		},
		"deletes the subscription": func(t *testing.T, x fixture) {
			if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		},
		"gives up audit events": func(t *testing.T, x fixture) {
			must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.SubscriptionChange{AuditEvents: new(false)}))
		},
	} {
		for how, succeeded := range map[string]bool{"and its attempt fails": false, "and its attempt succeeds": true} {
			t.Run("someone "+name+" "+how, func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(t.TempDir(), "keyhook.db")
				synctest.Test(t, func(t *testing.T) {
					store, _ := storagetest.OpenWith(t, storagetest.Options(t, path))
					x := fixtureOf(t, store)
					must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.SubscriptionChange{AuditEvents: new(true)}))
					event := must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{{Type: access.KeyCreated, Data: []byte(`{}`)}}))[0].ID
					job := x.Jobs(t)[0]
					attempt := x.Begin(t, job)
					drop(t, x)
					if got := x.stateOf(t, event); got != webhook.Dropped {
						t.Errorf("its state is %v, want dropped", got)
					}
					want := webhook.Dropped
					if succeeded {
						want = webhook.Delivered
					}
					if settled := x.End(t, job, attempt, succeeded); settled.State != want {
						t.Errorf("settled as %v", settled.State)
					}
					if got := x.stateOf(t, event); got != want {
						t.Errorf("after its attempt, its state is %v", got)
					}
					list := must[[]webhook.Attempt](t)(x.Attempts(t.Context(), x.Org(), x.Sub.ID, webhook.AttemptFilter{EventID: event, Limit: 10}))
					if len(list) != 1 || list[0].Outcome == webhook.Sending || list[0].NextAttemptAt != nil {
						t.Errorf("on record are %+v", list)
					}
				})
			})
		}
	}
}
