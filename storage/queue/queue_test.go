package queue_test

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// beginUnder begins the next attempt of a job for a caller that knows this epoch.
func (x fixture) beginUnder(t *testing.T, job webhook.Job, epoch int64) int64 {
	t.Helper()
	ids, err := x.Queue.Begin(t.Context(), []webhook.Start{{
		Delivery: job.Delivery, Subscription: job.Subscription, Epoch: epoch, Number: job.Number(), Trigger: job.Trigger(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return ids[0]
}

func TestQueue(t *testing.T) {
	t.Parallel()

	t.Run("an event becomes a delivery, an attempt, and is delivered", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		published := storagetest.Publish(t, x.Store, x.Owner, "user.created")
		if published.Deliveries != 1 {
			t.Fatalf("%d deliveries", published.Deliveries)
		}
		jobs := x.Jobs(t)
		if len(jobs) != 1 || jobs[0].EventID != published.ID || jobs[0].EventType != "user.created" {
			t.Fatalf("pending: %+v", jobs)
		}
		attempt := x.Begin(t, jobs[0])
		settled := x.End(t, jobs[0], attempt, true)
		if settled.State != webhook.Delivered || len(x.Jobs(t)) != 0 {
			t.Errorf("settled %+v, pending %v", settled, x.Jobs(t))
		}
		list, err := x.Attempts(t.Context(), x.Org(), x.Sub.ID, webhook.AttemptFilter{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		status := 200
		want := []webhook.Attempt{{
			SubscriptionID: x.Sub.ID, EventID: published.ID, EventType: "user.created", EventAt: published.At, Number: 1,
			Trigger: webhook.ByEvent, Outcome: webhook.Succeeded, ResponseStatus: &status, DurationMS: 12,
		}}
		if d := cmp.Diff(want, list, cmpopts.IgnoreFields(webhook.Attempt{}, "RowID", "ID", "EventRow", "AttemptedAt")); d != "" {
			t.Errorf("attempts (-want +got):\n%s", d)
		}
	})

	t.Run("an attempt for the delivery of another subscription does not begin", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		other, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/other", "other")
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
		rows, err := x.Queue.Begin(t.Context(), []webhook.Start{{Delivery: x.Jobs(t)[0].Delivery, Subscription: other.RowID, Epoch: other.Epoch, Number: 1}})
		if err != nil || rows[0] != 0 {
			t.Errorf("begun as %v, error %v", rows, err)
		}
	})

	t.Run("the body is the envelope, byte for byte, with the event's own id", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		published := storagetest.Publish(t, x.Store, x.Owner, "user.created")
		want := `{"id":"` + published.ID + `","type":"user.created","timestamp":"` + string(webhook.AppendTime(nil, published.At)) +
			`","organization_id":"` + x.Owner.Organization.ID + `","data":{"n":1}}`
		if got := string(x.Jobs(t)[0].Body); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})

	t.Run("a delivery is claimed once", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
		job := x.Jobs(t)[0]
		at, err := x.Queue.Target(t.Context(), x.Sub.RowID)
		if err != nil {
			t.Fatal(err)
		}
		start := webhook.Start{Delivery: job.Delivery, Subscription: job.Subscription, Epoch: at.Epoch, Number: 1}
		if _, err := x.Queue.Begin(t.Context(), []webhook.Start{start}); err != nil {
			t.Fatal(err)
		}
		if ids, err := x.Queue.Begin(t.Context(), []webhook.Start{start}); err != nil || ids[0] != 0 {
			t.Errorf("the same attempt was begun twice: %v, %v", ids, err)
		}
		other := start
		other.Number = 2
		if ids, err := x.Queue.Begin(t.Context(), []webhook.Start{other}); err != nil || ids[0] != 0 {
			t.Errorf("attempt 2 was begun while 1 is under way: %v, %v", ids, err)
		}
	})
}

func TestBeginAttempts(t *testing.T) {
	t.Parallel()

	t.Run("nothing begins under another epoch, without the plan, disabled or removed", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
		job := x.Jobs(t)[0]
		no, yes := false, true
		operator := storagetest.Operator(t, x.Store).Actor("", "")
		at, _ := x.Queue.Target(t.Context(), x.Sub.RowID)
		if id := x.beginUnder(t, job, at.Epoch+1); id != 0 {
			t.Error("begun under an epoch to come")
		}
		if _, _, err := x.Subscriptions.RotateSecret(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.Rotation{}); err != nil {
			t.Fatal(err)
		}
		if id := x.beginUnder(t, job, at.Epoch); id != 0 {
			t.Error("begun with a secret that is no more")
		}
		if _, err := x.Directory.UpdatePlan(t.Context(), operator, "growth", access.PlanChange{Webhooks: &no}); err != nil {
			t.Fatal(err)
		}
		if id := x.Begin(t, job); id != 0 {
			t.Error("begun without the plan")
		}
		if _, err := x.Directory.UpdatePlan(t.Context(), operator, "growth", access.PlanChange{Webhooks: &yes}); err != nil {
			t.Fatal(err)
		}
		if _, err := x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.SubscriptionChange{IsActive: &no}); err != nil {
			t.Fatal(err)
		}
		if id := x.Begin(t, job); id != 0 {
			t.Error("begun while disabled")
		}
		if _, err := x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.SubscriptionChange{IsActive: &yes}); err != nil {
			t.Fatal(err)
		}
		if id := x.Begin(t, job); id == 0 {
			t.Error("not begun though all is well again")
		} else if err := x.Queue.UndoBegin(t.Context(), []int64{id}); err != nil {
			t.Fatal(err)
		}
		if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID); err != nil {
			t.Fatal(err)
		}
		if id := x.Begin(t, job); id != 0 {
			t.Error("begun for a removed subscription")
		}
	})

	t.Run("an attempt that was undone can begin again with the same number", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
		job := x.Jobs(t)[0]
		if err := x.Queue.UndoBegin(t.Context(), []int64{x.Begin(t, job)}); err != nil {
			t.Fatal(err)
		}
		if id := x.Begin(t, job); id == 0 {
			t.Error("refused")
		}
	})
}

func TestResultsOfOtherAttempts(t *testing.T) {
	t.Parallel()
	t.Run("a result of an earlier or a later attempt does not end the attempt in progress", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
		first := x.Jobs(t)[0]
		row := x.Begin(t, first)
		x.End(t, first, row, false)
		second := x.Jobs(t)[0]
		next := x.Begin(t, second)
		for _, other := range []int64{row, next + 1} {
			r := webhook.Result{Attempt: other, Delivery: first.Delivery, Subscription: first.Subscription, Number: 1, Succeeded: true}
			if _, err := x.Queue.Record(t.Context(), r); err == nil {
				t.Errorf("the result of attempt %d was saved", other)
			}
		}
		if settled := x.End(t, second, next, true); settled.State != webhook.Delivered {
			t.Errorf("the second attempt ended in state %s", settled.State)
		}
	})
}

func TestFailedAttempts(t *testing.T) {
	t.Parallel()

	t.Run("five failures exhaust a delivery and make the subscription failing", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
		for n := 1; n <= 5; n++ {
			job := x.Jobs(t)[0]
			if job.Number() != n {
				t.Fatalf("attempt %d is numbered %d", n, job.Number())
			}
			settled := x.End(t, job, x.Begin(t, job), false)
			if want := n == 5; (settled.State == webhook.Exhausted) != want || settled.Changed != want {
				t.Errorf("attempt %d: %+v", n, settled)
			}
		}
		sub, err := x.History.Subscription(t.Context(), x.Org(), x.Sub.ID)
		if err != nil {
			t.Fatal(err)
		}
		if sub.Status != webhook.Failing || sub.ConsecutiveFailures != 5 || sub.LastError != "http_status: 503" || sub.PendingDeliveries != 0 {
			t.Errorf("%+v", sub)
		}
		log, err := x.AuditEvents(t.Context(), x.Org(), access.AuditFilter{Limit: 1})
		if err != nil || len(log) != 1 || log[0].Type != access.SubscriptionFailing {
			t.Errorf("audit log %+v, error %v", log, err)
		}
	})

	t.Run("a subscription receives no events about itself", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		other, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://other.example/") // another host, because events about health do not go to the same host
		no := false
		if _, err := x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), other.ID, webhook.SubscriptionChange{URL: &other.URL}); err != nil {
			t.Fatal(err)
		}
		if _, err := x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), other.ID, webhook.SubscriptionChange{IsActive: &no}); err != nil {
			t.Fatal(err)
		}
		if jobs, err := x.Queue.PendingJobs(t.Context(), other.RowID, 0, 10, nil); err != nil || len(jobs) != 0 {
			t.Errorf("the other has pending %v, error %v", jobs, err)
		}
		if jobs := x.Jobs(t); len(jobs) != 4 {
			t.Errorf("the first heard of %d changes, want 4", len(jobs))
		}
	})

	t.Run("concurrent failures are all counted", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		for range 4 {
			storagetest.Publish(t, x.Store, x.Owner, "user.created")
		}
		var all sync.WaitGroup
		for _, job := range x.Jobs(t) {
			id := x.Begin(t, job)
			all.Go(func() { x.End(t, job, id, false) })
		}
		all.Wait()
		if sub, _ := x.History.Subscription(t.Context(), x.Org(), x.Sub.ID); sub.ConsecutiveFailures != 4 {
			t.Errorf("%d failures counted", sub.ConsecutiveFailures)
		}
	})
}

func TestInterruptedAttempts(t *testing.T) {
	t.Parallel()

	t.Run("an unfinished attempt of the last owner is interrupted, keeps its number, and is due again", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		x := fixtureOf(t, store)
		storagetest.Publish(t, store, x.Owner, "user.created")
		x.Begin(t, x.Jobs(t)[0])
		stop()
		for restart := 2; restart <= 10; restart++ {
			x.Store, stop = storagetest.OpenWith(t, storagetest.Options(t, path))
			jobs := x.Jobs(t)
			if len(jobs) != 1 || jobs[0].Number() != restart {
				t.Fatalf("restart %d: pending %+v", restart, jobs)
			}
			x.Begin(t, jobs[0])
			stop()
		}
		x.Store, _ = storagetest.OpenWith(t, storagetest.Options(t, path))
		if jobs := x.Jobs(t); len(jobs) != 0 {
			t.Errorf("what was cut off ten times is pending still: %+v", jobs)
		}
		list, err := x.Attempts(t.Context(), x.Org(), x.Sub.ID, webhook.AttemptFilter{Limit: 20})
		if err != nil || len(list) != 10 || list[0].Outcome != webhook.Interrupted || list[0].Number != 10 {
			t.Errorf("attempts %+v, error %v", list, err)
		}
		if sub, _ := x.History.Subscription(t.Context(), x.Org(), x.Sub.ID); sub.Status != webhook.Healthy || sub.ConsecutiveFailures != 0 {
			t.Errorf("our own stop counted as the receiver's failure: %+v", sub)
		}
	})

	t.Run("a policy of more attempts than a row id can number is refused", func(t *testing.T) {
		t.Parallel()
		o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
		o.Policy = webhook.Policy{MaxAttempts: 250, FailingAfter: 5, DisabledAfter: 15}
		_, stop := storagetest.OpenWith(t, o)
		stop()
		o.Policy.MaxAttempts++
		if store, err := storage.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "at most 250") {
			t.Errorf("opened: %v, error %v", store != nil, err)
		}
	})

	t.Run("the last attempt is made again once if it is interrupted", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		x := fixtureOf(t, store)
		storagetest.Publish(t, store, x.Owner, "user.created")
		for range 4 {
			job := x.Jobs(t)[0]
			x.End(t, job, x.Begin(t, job), false)
		}
		x.Begin(t, x.Jobs(t)[0])
		stop()
		x.Store, _ = storagetest.OpenWith(t, storagetest.Options(t, path))
		jobs := x.Jobs(t)
		if len(jobs) != 1 || jobs[0].Number() != 6 {
			t.Fatalf("pending %+v", jobs)
		}
		if settled := x.End(t, jobs[0], x.Begin(t, jobs[0]), false); settled.State != webhook.Exhausted {
			t.Errorf("%+v", settled)
		}
	})
}

func TestQueueOfRemovedSubscription(t *testing.T) {
	t.Parallel()

	t.Run("the pending deliveries of a deleted subscription are dropped, and its log stays", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		synctest.Test(t, func(t *testing.T) {
			store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
			x := fixtureOf(t, store)
			events := make([]webhook.NewEvent, 700)
			for i := range events {
				events[i] = webhook.NewEvent{Type: "user.created", Data: []byte(`{}`)}
			}
			published, err := x.Queue.PublishEvents(t.Context(), x.Org(), events)
			if err != nil {
				t.Fatal(err)
			}
			if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second + time.Millisecond)
			if n := len(x.Jobs(t)); n != 200 { // the first batch leaves them
				t.Errorf("%d are pending after a second", n)
			}
			stop()
			x.Store, _ = storagetest.OpenWith(t, storagetest.Options(t, path)) // a restart does not forget the rest
			time.Sleep(time.Second + time.Millisecond)
			if n := len(x.Jobs(t)); n != 0 {
				t.Errorf("%d are pending after two", n)
			}
			_, deliveries, err := x.History.Event(t.Context(), x.Org(), published[699].ID)
			if err != nil || len(deliveries) != 1 || deliveries[0].State != webhook.Dropped {
				t.Errorf("%+v, %v", deliveries, err)
			}
		})
	})
}

func TestTestDelivery(t *testing.T) {
	t.Parallel()

	t.Run("a test is recorded, never pending, and leaves the health alone", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		_, job, attempt, err := x.Queue.BeginTest(t.Context(), x.Org(), x.Sub.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		if n := len(x.Jobs(t)); n != 0 {
			t.Errorf("%d pending", n)
		}
		x.End(t, job, attempt, false)
		if sub, _ := x.History.Subscription(t.Context(), x.Org(), x.Sub.ID); sub.ConsecutiveFailures != 0 || sub.LastFailureAt != nil {
			t.Errorf("%+v", sub)
		}
		if _, d, err := x.History.Event(t.Context(), x.Org(), job.EventID); err != nil || len(d) != 1 || d[0].State != webhook.Exhausted || d[0].Attempts != 1 {
			t.Errorf("its delivery: %+v, %v", d, err)
		}
		a, err := x.History.Attempt(t.Context(), attempt)
		if err != nil || a.Trigger != webhook.ByTest || a.Outcome != webhook.Failed || a.EventType != webhook.TestType || a.NextAttemptAt != nil {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

func TestRedeliver(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	published := storagetest.Publish(t, x.Store, x.Owner, "user.created")
	job := x.Jobs(t)[0]
	id := x.Begin(t, job)
	x.End(t, job, id, true)
	a, err := x.History.Attempt(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Queue.Redeliver(t.Context(), x.Actor(), x.Org(), x.Sub.ID, a.ID); err != nil {
		t.Fatal(err)
	}
	jobs := x.Jobs(t)
	if len(jobs) != 1 || jobs[0].EventID != published.ID || jobs[0].Trigger() != webhook.ByHand || jobs[0].Number() != 1 || string(jobs[0].Body) != string(job.Body) {
		t.Errorf("pending %+v", jobs)
	}
	e, deliveries, err := x.History.Event(t.Context(), x.Org(), published.ID)
	if err != nil || e.Deliveries != 1 || len(deliveries) != 2 {
		t.Errorf("event %+v, deliveries %+v, error %v", e, deliveries, err)
	}
}

// TestRedeliverOfTheAuditLog redelivers an old audit event without audit:read.
func TestRedeliverOfTheAuditLog(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	storagetest.Publish(t, x.Store, x.Owner, access.KeyCreated)
	job := x.Jobs(t)[0]
	id := x.Begin(t, job)
	x.End(t, job, id, true)
	a := must[webhook.Attempt](t)(x.History.Attempt(t.Context(), id))
	_, key := storagetest.Key(t, x.Store, x.Owner, access.WebhooksWrite, access.EventsRead)
	narrow := must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), key.Digest()))
	storagetest.ExpectFault(t, x.Queue.Redeliver(t.Context(), narrow.Actor("", ""), x.Org(), x.Sub.ID, a.ID), fault.Forbidden, "permission_denied")
	if err := x.Queue.Redeliver(t.Context(), x.Actor(), x.Org(), x.Sub.ID, a.ID); err != nil {
		t.Error(err)
	}
}
