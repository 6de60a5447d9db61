package queue_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// newOrderedFixture makes a fixture whose subscription is ordered.
func newOrderedFixture(t *testing.T) fixture {
	t.Helper()
	x := newFixture(t)
	x.setOrdered(t, true)
	return x
}

func (x fixture) setOrdered(t *testing.T, ordered bool) {
	t.Helper()
	if _, err := x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.SubscriptionChange{Ordered: &ordered}); err != nil {
		t.Fatal(err)
	}
}

// publishMany publishes events in one transaction and returns their ids.
func (x fixture) publishMany(t *testing.T, n int) (ids []string) {
	t.Helper()
	events := make([]webhook.NewEvent, n)
	for i := range events {
		events[i] = webhook.NewEvent{Type: "user.created", Data: []byte(`{}`)}
	}
	published, err := x.Queue.PublishEvents(t.Context(), x.Org(), events)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range published {
		ids = append(ids, p.ID)
	}
	return ids
}

// inOrder returns the pending deliveries as an ordered subscription gets them.
func (x fixture) inOrder(t *testing.T) []webhook.Job {
	t.Helper()
	jobs, err := x.Queue.OrderedJobs(t.Context(), x.Sub.RowID, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

// eventsInOrder returns the events of inOrder.
func (x fixture) eventsInOrder(t *testing.T) (ids []string) {
	t.Helper()
	for _, j := range x.inOrder(t) {
		ids = append(ids, j.EventID)
	}
	return ids
}

// endNext makes the first attempt of the order, and returns its event.
func (x fixture) endNext(t *testing.T, succeeded bool) string {
	t.Helper()
	job := x.inOrder(t)[0]
	attempt := x.Begin(t, job)
	if attempt == 0 {
		t.Fatalf("the first of the order was refused: %+v", job)
	}
	x.End(t, job, attempt, succeeded)
	return job.EventID
}

func TestOrder(t *testing.T) {
	t.Parallel()

	t.Run("only the first delivery begins, until it is delivered or exhausted", func(t *testing.T) {
		t.Parallel()
		x := newOrderedFixture(t)
		want := x.publishMany(t, 3)
		jobs := x.inOrder(t)
		if x.Begin(t, jobs[1]) != 0 || x.Begin(t, jobs[2]) != 0 {
			t.Fatal("a later delivery has begun")
		}
		first := x.Begin(t, jobs[0])
		if first == 0 || x.Begin(t, jobs[1]) != 0 {
			t.Fatalf("the first begins as %d, and a second one beside it", first)
		}
		x.End(t, jobs[0], first, false)
		for range 4 { // its retries
			if got := x.inOrder(t)[1]; x.Begin(t, got) != 0 {
				t.Fatal("a later delivery began while the first waited for its next attempt")
			}
			if got := x.endNext(t, false); got != want[0] {
				t.Fatalf("%s was retried", got)
			}
		}
		if d := cmp.Diff(want[1:], x.eventsInOrder(t)); d != "" {
			t.Fatalf("after the first is exhausted (-want +got):\n%s", d)
		}
		if x.endNext(t, true) != want[1] || x.endNext(t, true) != want[2] {
			t.Error("the others came in another order")
		}
	})

	t.Run("of several in one call, one begins", func(t *testing.T) {
		t.Parallel()
		x := newOrderedFixture(t)
		want := x.publishMany(t, 1)
		x.endNext(t, true)
		x.redeliver(t, want[0])
		x.publishMany(t, 2)
		at, err := x.Queue.Target(t.Context(), x.Sub.RowID)
		if err != nil || !at.Ordered {
			t.Fatalf("%+v, error %v", at, err)
		}
		var starts []webhook.Start
		for _, j := range x.inOrder(t) {
			starts = append(starts, webhook.Start{Delivery: j.Delivery, Subscription: j.Subscription, Epoch: at.Epoch, Number: 1, Trigger: j.Trigger()})
		}
		rows, err := x.Queue.Begin(t.Context(), starts)
		if err != nil || len(rows) != 3 || rows[0] == 0 || rows[1] != 0 || rows[2] != 0 {
			t.Errorf("begun as %v, error %v", rows, err)
		}
	})

	t.Run("an interrupted attempt is repeated before the next delivery begins", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		x := fixtureOf(t, store)
		x.setOrdered(t, true)
		want := x.publishMany(t, 2)
		x.Begin(t, x.inOrder(t)[0])
		stop()
		x.Store, _ = storagetest.OpenWith(t, storagetest.Options(t, path))
		jobs := x.inOrder(t)
		if d := cmp.Diff(want, x.eventsInOrder(t)); d != "" || jobs[0].Number() != 2 || x.Begin(t, jobs[1]) != 0 {
			t.Errorf("(-want +got):\n%s first %+v", d, jobs[0])
		}
	})

	t.Run("a test in progress does not stop the order, and other subscriptions are not in it", func(t *testing.T) {
		t.Parallel()
		x := newOrderedFixture(t)
		other, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://other.example/", "user.created")
		x.publishMany(t, 2)
		if _, _, _, err := x.Queue.BeginTest(t.Context(), x.Org(), x.Sub.ID, ""); err != nil {
			t.Fatal(err)
		}
		if x.Begin(t, x.inOrder(t)[0]) == 0 {
			t.Error("refused")
		}
		if jobs, err := x.Queue.OrderedJobs(t.Context(), other.RowID, 10); err != nil || len(jobs) != 0 {
			t.Errorf("%d deliveries of an unordered subscription are in an order, error %v", len(jobs), err)
		}
		jobs, err := x.Queue.PendingJobs(t.Context(), other.RowID, 0, 10, nil)
		if err != nil || len(jobs) != 2 || x.Begin(t, jobs[1]) == 0 || x.Begin(t, jobs[0]) == 0 {
			t.Errorf("%d wait for the other, error %v", len(jobs), err)
		}
	})
}

// redeliver creates a redelivery of an event.
func (x fixture) redeliver(t *testing.T, event string) {
	t.Helper()
	list, err := x.Attempts(t.Context(), x.Org(), x.Sub.ID, webhook.AttemptFilter{EventID: event, Limit: 1})
	if err != nil || len(list) == 0 {
		t.Fatalf("%d attempts, error %v", len(list), err)
	}
	if err := x.Queue.Redeliver(t.Context(), x.Actor(), x.Org(), x.Sub.ID, list[0].ID); err != nil {
		t.Fatal(err)
	}
}

// exhaust makes all attempts of the first delivery fail, and returns its event.
func (x fixture) exhaust(t *testing.T) (event string) {
	t.Helper()
	for range webhook.DefaultPolicy().MaxAttempts {
		event = x.endNext(t, false)
	}
	return event
}

func TestNewDeliveriesInOrder(t *testing.T) {
	t.Parallel()

	t.Run("recovered and replayed events go before later events that wait", func(t *testing.T) {
		t.Parallel()
		for name, again := range map[string]func(x fixture) error{
			"recover": func(x fixture) error {
				_, err := x.Queue.Recover(context.Background(), x.Actor(), x.Org(), x.Sub.ID, recovering(1))
				return err
			},
			"replay": func(x fixture) error {
				_, err := x.Queue.Replay(context.Background(), x.Actor(), x.Org(), x.Sub.ID, webhook.Replay{Since: 1, Only: webhook.OnlyFailed})
				return err
			},
		} {
			x := newOrderedFixture(t)
			events := x.publishMany(t, 4)
			x.endNext(t, true)
			x.exhaust(t)
			x.exhaust(t)
			if err := again(x); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(events[1:], x.eventsInOrder(t)[:3]); d != "" {
				t.Errorf("%s (-want +got):\n%s", name, d)
			}
			if last := x.inOrder(t)[2]; last.Cause != webhook.ByEvent || x.Begin(t, last) != 0 {
				t.Errorf("%s: the event that waited began before the old ones", name)
			}
			if x.endNext(t, true) != events[1] {
				t.Errorf("%s: another event came first", name)
			}
		}
	})

	t.Run("a redelivery waits for no other delivery, and no other waits for it", func(t *testing.T) {
		t.Parallel()
		x := newOrderedFixture(t)
		events := x.publishMany(t, 3)
		x.endNext(t, true)
		first := x.inOrder(t)[0]
		x.redeliver(t, events[0])
		jobs := x.inOrder(t)
		if jobs[0].EventID != events[0] || jobs[0].Sequence != 0 || jobs[1].Delivery != first.Delivery {
			t.Fatalf("in order %v", x.eventsInOrder(t))
		}
		x.End(t, first, x.Begin(t, first), false) // it waits for its next attempt
		sent := x.Begin(t, jobs[0])
		if sent == 0 {
			t.Fatal("the redelivery was refused")
		}
		first.Attempts++
		if x.Begin(t, first) != 0 {
			t.Error("two attempts are in progress")
		}
		x.End(t, jobs[0], sent, false)
		if x.Begin(t, first) == 0 {
			t.Error("the order waits for a redelivery that failed")
		}
	})
}

func TestFirstAttemptsInOrder(t *testing.T) {
	t.Parallel()

	t.Run("the first attempt begins with its event only if nothing is in front", func(t *testing.T) {
		t.Parallel()
		x := newOrderedFixture(t)
		p := &places{free: 10}
		x.Queue.Watch(p)
		x.publishMany(t, 3)
		if begun := p.begun(); begun != 1 || !p.fresh[0].Begun || p.free != 9 {
			t.Fatalf("%d have begun, %d places are free", begun, p.free)
		}
		x.publishMany(t, 3)
		if begun := p.begun(); begun != 1 {
			t.Fatalf("%d have begun while one is in progress", begun)
		}
		x.End(t, p.fresh[0], p.fresh[0].Delivery<<8|1, true)
		x.publishMany(t, 3)
		if begun := p.begun(); begun != 1 {
			t.Errorf("%d have begun while others wait", begun)
		}
		for len(x.inOrder(t)) > 0 {
			x.endNext(t, true)
		}
		x.publishMany(t, 1)
		if begun := p.begun(); begun != 2 || p.free != 8 {
			t.Errorf("%d have begun, %d places are free", begun, p.free)
		}
	})

	t.Run("a place that comes free within the transaction does not let the second event overtake the first", func(t *testing.T) {
		t.Parallel()
		x := newOrderedFixture(t)
		p := &latePlaces{}
		p.free = 10
		x.Queue.Watch(p)
		x.publishMany(t, 4)
		if p.begun() != 0 || p.free != 10 || p.returned == 0 {
			t.Errorf("%d have begun, %d places are free, %d were returned", p.begun(), p.free, p.returned)
		}
		if len(x.inOrder(t)) != 4 {
			t.Errorf("%d wait", len(x.inOrder(t)))
		}
	})
}

// latePlaces has no place for the first delivery that asks.
type latePlaces struct {
	places
	asked bool
}

func (p *latePlaces) TakePlace(organization, subscription int64) bool {
	if !p.asked {
		p.asked = true
		return false
	}
	return p.places.TakePlace(organization, subscription)
}

func TestSetOrdered(t *testing.T) {
	t.Parallel()

	t.Run("what waits is put in order, with attempts in progress", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		events := x.publishMany(t, 3)
		jobs := x.Jobs(t)
		second, third := x.Begin(t, jobs[1]), x.Begin(t, jobs[2])
		before := x.Sub.Epoch
		x.setOrdered(t, true)
		if sub, err := x.History.Subscription(t.Context(), x.Org(), x.Sub.ID); err != nil || !sub.Ordered || sub.Epoch != before+1 {
			t.Errorf("%+v, error %v", sub, err)
		}
		if x.Begin(t, jobs[0]) != 0 {
			t.Error("begun while attempts from before are in progress")
		}
		x.End(t, jobs[1], second, false)
		if err := x.Queue.UndoBegin(t.Context(), []int64{third}); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(events, x.eventsInOrder(t)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		x.setOrdered(t, false)
		events = append(events, x.publishMany(t, 1)...)
		if len(x.inOrder(t)) != 3 {
			t.Error("an unordered subscription got another place in the order")
		}
		x.setOrdered(t, true)
		if d := cmp.Diff(events, x.eventsInOrder(t)); d != "" {
			t.Errorf("ordered again (-want +got):\n%s", d)
		}
	})

	t.Run("too many deliveries are not put in order, and nothing changes", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		for range 10 {
			x.publishMany(t, 1000)
		}
		x.publishMany(t, 1)
		yes := true
		for _, types := range []*webhook.Types{{"other"}, nil} { // of the first change, pending audit events must be dropped, too
			_, err := x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.SubscriptionChange{
				Ordered: &yes, Description: new("x"), EventTypes: types,
			})
			storagetest.ExpectFault(t, err, fault.Conflict, "too_many_pending")
		}
		if sub, err := x.History.Subscription(t.Context(), x.Org(), x.Sub.ID); err != nil || sub.Ordered || sub.Description != "" || slices.Contains(sub.EventTypes, "other") {
			t.Errorf("%+v, error %v", sub, err)
		}
		jobs := x.Jobs(t)
		x.End(t, jobs[0], x.Begin(t, jobs[0]), true)
		x.setOrdered(t, true)
		if n := len(x.inOrder(t)); n != 1000 {
			t.Errorf("%d are in order", n)
		}
	})

	t.Run("the change is in the audit log", func(t *testing.T) {
		t.Parallel()
		x := newOrderedFixture(t)
		log, err := x.AuditEvents(t.Context(), x.Org(), access.AuditFilter{Limit: 1})
		if err != nil || string(log[0].Details) != `{"ordered":true}` {
			t.Errorf("%+v, error %v", log, err)
		}
	})
}

// TestFrontOfABatch has a batch, whose events have one time, and a later event.
func TestFrontOfABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newOrderedFixture(t)
		x.EndAll(t, true) // the audit event
		events := x.publishMany(t, 2)
		time.Sleep(time.Second)
		events = append(events, x.publishMany(t, 1)...)
		for i, want := range []bool{true, false, false} {
			facts := must[webhook.EventFacts](t)(x.History.EventFacts(t.Context(), x.Org(), events[2]))
			page := must[access.Page[webhook.ReceiverFacts]](t)(x.History.ReceiverPage(t.Context(), x.Org(), facts, webhook.ReceiverFilter{ID: x.Sub.ID}))
			if f := page.Rows[0].Front; f == nil || f.EventID != events[i] || f.SharesAt != want {
				t.Errorf("in front of the others, event %d: %+v", i, f)
			}
			job := x.inOrder(t)[0]
			x.End(t, job, x.Begin(t, job), true)
		}
	})
}

// TestOrderPlans checks that the first of the order is one step into an index, however many wait.
func TestOrderPlans(t *testing.T) {
	t.Parallel()
	x := newOrderedFixture(t)
	x.Queue.Watch(&places{free: 1})
	x.publishMany(t, 2)
	x.setOrdered(t, false)
	x.setOrdered(t, true)
	events := x.publishMany(t, 1)
	x.Begin(t, x.inOrder(t)[0])
	if _, err := x.Survey.Lanes(t.Context()); err != nil {
		t.Fatal(err)
	}
	facts, err := x.History.EventFacts(t.Context(), x.Org(), events[0])
	if err != nil {
		t.Fatal(err)
	}
	page, err := x.History.ReceiverPage(t.Context(), x.Org(), facts, webhook.ReceiverFilter{ID: x.Sub.ID})
	if err != nil || page.Rows[0].Front == nil || !page.Rows[0].Front.Sending {
		t.Fatalf("%+v, error %v", page, err)
	}
	plans := storagetest.QueryPlans(t, x.Store)
	found := 0
	for text, plan := range plans {
		if !strings.Contains(text, "deliveries_ordered") {
			continue
		}
		found++
		growing := slices.DeleteFunc(slices.Clone(plan), func(step string) bool { return !storagetest.Grows.MatchString(step) })
		if len(growing) > strings.Count(text, "LIMIT 20) own") { // facts sort the deliveries of one event to one subscription
			t.Errorf("%s\n  %s", text, strings.Join(plan, "\n  "))
		}
	}
	if found < 5 {
		t.Errorf("only %d statements read the order", found)
	}
}
