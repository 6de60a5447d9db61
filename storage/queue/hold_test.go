package queue_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// holder returns an operator of an organization without subscriptions. Otherwise the event about the hold would be
// pending too.
func holder(t *testing.T, x fixture) access.Actor {
	t.Helper()
	return storagetest.Operator(t, x.Store).Actor("127.0.0.1", "test")
}

func holdQueue(t *testing.T, x fixture) {
	t.Helper()
	if err := x.Queue.HoldQueue(t.Context(), holder(t, x), "a test"); err != nil {
		t.Fatal(err)
	}
}

func TestHold(t *testing.T) {
	t.Parallel()

	t.Run("no attempt begins until the release, and publishing works", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		storagetest.Publish(t, x.Store, x.Owner, "a")
		before := must[webhook.Target](t)(x.Queue.Target(t.Context(), x.Sub.RowID))
		holdQueue(t, x)
		storagetest.Publish(t, x.Store, x.Owner, "b")
		at := must[webhook.Target](t)(x.Queue.Target(t.Context(), x.Sub.RowID))
		if !at.Shut() || before.Shut() || at.Epoch != before.Epoch {
			t.Errorf("before %+v, held %+v", before, at)
		}
		jobs := x.Jobs(t)
		if len(jobs) != 2 || x.Begin(t, jobs[0]) != 0 || x.Begin(t, jobs[1]) != 0 {
			t.Errorf("%d pending, or one of them began", len(jobs))
		}
		if _, _, _, err := x.Queue.BeginTest(t.Context(), x.Org(), x.Sub.ID, ""); fault.KindOf(err) != fault.Conflict {
			t.Errorf("a test began: %v", err)
		}
		if n := must[int64](t)(x.Queue.ReleaseQueue(t.Context(), holder(t, x))); n != 2 {
			t.Errorf("%d released", n)
		}
		if x.Begin(t, jobs[0]) == 0 || x.Begin(t, jobs[1]) == 0 {
			t.Error("one did not begin after the release")
		}
	})

	t.Run("a hold applies in its own transaction and survives a rollback", func(t *testing.T) {
		t.Parallel()
		store, err := storage.Open(t.Context(), storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db")))
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		held := func(tx *queue.Tx) bool { return must[bool](t)(tx.Holds()) }
		err = store.Together(
			func(tx *queue.Tx) error { return store.HoldIn(tx, "a test") },
			func(tx *queue.Tx) error {
				if !held(tx) {
					t.Error("the next write of the transaction is not held")
				}
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Together(func(tx *queue.Tx) error { return tx.Run("broken") }); err == nil {
			t.Fatal("a broken statement was run")
		}
		if err := store.Together(func(tx *queue.Tx) error {
			if !held(tx) {
				t.Error("a rollback released the queue")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("a held queue takes another reason, and nothing else changes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := fixtureOf(t, storagetest.Open(t))
			storagetest.Publish(t, x.Store, x.Owner, "a")
			holdQueue(t, x)
			first := *x.Queue.Hold()
			time.Sleep(time.Second)
			storagetest.Publish(t, x.Store, x.Owner, "b")
			for _, reason := range []string{"another", "another", ""} {
				if err := x.Queue.HoldQueue(t.Context(), holder(t, x), reason); err != nil {
					t.Fatal(err)
				}
			}
			if want := (webhook.Hold{Since: first.Since, Reason: "another", Last: first.Last}); *x.Queue.Hold() != want {
				t.Errorf("held as %+v, want %+v", *x.Queue.Hold(), want)
			}
			var reasons []string
			for _, e := range must[[]access.AuditEvent](t)(x.AuditEvents(t.Context(), 1, access.AuditFilter{Type: access.QueueHeld, Limit: 9})) {
				reasons = append(reasons, e.Details)
			}
			if d := cmp.Diff([]string{`{"reason":"another"}`, `{"reason":"a test"}`}, reasons); d != "" {
				t.Errorf("audit events (-want +got):\n%s", d)
			}
			if n := must[int64](t)(x.Queue.DiscardQueue(t.Context(), holder(t, x))); n != 1 || x.Pending(t) != 1 {
				t.Errorf("%d dropped, %d pending", n, x.Pending(t))
			}
		})
	})

	t.Run("a hold survives a restart", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		x := fixtureOf(t, store)
		storagetest.Publish(t, store, x.Owner, "a")
		holdQueue(t, x)
		first := *store.Queue.Hold()
		stop()
		store, _ = storagetest.OpenWith(t, storagetest.Options(t, path))
		if again := store.Queue.Hold(); again == nil || *again != first || first.Reason != "a test" {
			t.Errorf("held as %+v, then %+v", first, again)
		}
		x.Store = store
		if x.Begin(t, x.Jobs(t)[0]) != 0 {
			t.Error("it began after a restart")
		}
	})
}

func TestDiscardedHold(t *testing.T) {
	t.Parallel()

	t.Run("a discard drops earlier deliveries in batches and keeps later ones", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		const many = 1200 // more than two batches
		events := make([]webhook.NewEvent, many)
		for i := range events {
			events[i] = webhook.NewEvent{Type: "a", Data: []byte("{}")}
		}
		published := must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), x.Org(), events))
		delivered := x.Jobs(t)[0]
		x.End(t, delivered, x.Begin(t, delivered), true)
		holdQueue(t, x)
		late := storagetest.Publish(t, x.Store, x.Owner, "a")
		if n := must[int64](t)(x.Queue.DiscardQueue(t.Context(), holder(t, x))); n != many-1 {
			t.Errorf("%d dropped", n)
		}
		if jobs := x.Jobs(t); len(jobs) != 1 || jobs[0].EventID != late.ID || x.Begin(t, jobs[0]) == 0 {
			t.Errorf("%d pending, or it does not begin", len(jobs))
		}
		states := map[webhook.DeliveryState]int{}
		for _, p := range published {
			_, deliveries, err := x.History.Event(t.Context(), x.Org(), p.ID)
			if err != nil {
				t.Fatal(err)
			}
			states[deliveries[0].State]++
		}
		if d := cmp.Diff(map[webhook.DeliveryState]int{webhook.Delivered: 1, webhook.Dropped: many - 1}, states); d != "" {
			t.Errorf("states (-want +got):\n%s", d)
		}
		if q := must[webhook.Queue](t)(x.Survey.QueueSummary(t.Context())); q.Hold != nil || q.Deliveries != 1 {
			t.Errorf("%+v", q)
		}
	})

	t.Run("a discard without a hold is refused", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		storagetest.Publish(t, x.Store, x.Owner, "a")
		if _, err := x.Queue.DiscardQueue(t.Context(), holder(t, x)); fault.KindOf(err) != fault.Conflict || len(x.Jobs(t)) != 1 {
			t.Errorf("error %v, %d pending", err, len(x.Jobs(t)))
		}
	})

	t.Run("a delivery on the wire may still succeed after a discard", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		storagetest.Publish(t, x.Store, x.Owner, "a")
		job := x.Jobs(t)[0]
		attempt := x.Begin(t, job)
		holdQueue(t, x)
		if _, err := x.Queue.DiscardQueue(t.Context(), holder(t, x)); err != nil {
			t.Fatal(err)
		}
		x.End(t, job, attempt, true)
		_, deliveries, err := x.History.Event(t.Context(), x.Org(), job.EventID)
		if err != nil || deliveries[0].State != webhook.Delivered {
			t.Errorf("%+v, error %v", deliveries, err)
		}
	})
}

// TestQueueOrder: subscriptions with the same number of deliveries keep their order. All count, and only some are listed.
func TestQueueOrder(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	must[access.Organization](t)(x.Directory.UpdateOrganization(t.Context(), holder(t, x), x.Owner.Organization.ID, access.OrganizationChange{Plan: new("enterprise")}))
	for range webhook.MaxQueued {
		storagetest.Subscription(t, x.Store, x.Owner, "https://other.example/hook", "z")
	}
	storagetest.Publish(t, x.Store, x.Owner, "z")
	q := must[webhook.Queue](t)(x.Survey.QueueSummary(t.Context()))
	if len(q.Largest) != webhook.MaxQueued || q.Subscriptions != webhook.MaxQueued+1 || !slices.IsSortedFunc(q.Largest[1:], func(a, b webhook.Queued) int { return strings.Compare(a.SubscriptionID, b.SubscriptionID) }) {
		t.Errorf("%+v", q.Largest)
	}
}

func TestEffectsOfHold(t *testing.T) {
	t.Parallel()

	t.Run("each change of the hold is in the audit log once", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		storagetest.Publish(t, x.Store, x.Owner, "a")
		holdQueue(t, x)
		holdQueue(t, x)
		for range 2 {
			if _, err := x.Queue.ReleaseQueue(t.Context(), holder(t, x)); err != nil {
				t.Fatal(err)
			}
		}
		holdQueue(t, x)
		if _, err := x.Queue.DiscardQueue(t.Context(), holder(t, x)); err != nil {
			t.Fatal(err)
		}
		var types []string
		for _, e := range must[[]access.AuditEvent](t)(x.AuditEvents(t.Context(), storagetest.Operator(t, x.Store).Organization.RowID, access.AuditFilter{Limit: 4})) {
			types = append(types, e.Type)
		}
		if d := cmp.Diff([]string{access.QueueDiscarded, access.QueueHeld, access.QueueReleased, access.QueueHeld}, types); d != "" {
			t.Errorf("audit events (-want +got):\n%s", d)
		}
	})

	t.Run("neither a hold nor its end makes deliveries late", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := newFixture(t)
			storagetest.Publish(t, x.Store, x.Owner, "a")
			holdQueue(t, x)
			time.Sleep(time.Hour)
			if b := must[webhook.Backlog](t)(x.Survey.Backlog(t.Context())); !b.Held || b.OldestDue != 0 {
				t.Errorf("backlog %+v", b)
			}
			if _, err := x.Queue.ReleaseQueue(t.Context(), holder(t, x)); err != nil {
				t.Fatal(err)
			}
			now := time.Now().UnixMilli()
			if b := must[webhook.Backlog](t)(x.Survey.Backlog(t.Context())); b.Held || b.OldestDue != now {
				t.Errorf("at %d the backlog is %+v", now, b)
			}
		})
	})

	t.Run("old events stay until the hold ends", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
			o.KeepEvents = time.Hour
			store, stop := storagetest.OpenWith(t, o)
			defer stop()
			x := fixtureOf(t, store)
			p := storagetest.Publish(t, store, x.Owner, "a")
			x.End(t, x.Jobs(t)[0], x.Begin(t, x.Jobs(t)[0]), true)
			holdQueue(t, x)
			time.Sleep(3 * time.Hour)
			if _, _, err := x.History.Event(t.Context(), x.Org(), p.ID); err != nil {
				t.Errorf("gone while held: %v", err)
			}
			if _, err := x.Queue.ReleaseQueue(t.Context(), holder(t, x)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if _, _, err := x.History.Event(t.Context(), x.Org(), p.ID); fault.KindOf(err) != fault.NotFound {
				t.Errorf("still there after the release: %v", err)
			}
		})
	})

	t.Run("the queue lists the subscriptions with most pending deliveries first", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		other, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://other.example/hook", "b")
		for _, eventType := range []string{"a", "b", "c"} { // the first subscription wants every type, and gets the event about the second
			storagetest.Publish(t, x.Store, x.Owner, eventType)
		}
		due := x.Jobs(t)[0].DueAt
		holdQueue(t, x)
		q := must[webhook.Queue](t)(x.Survey.QueueSummary(t.Context()))
		if q.Hold == nil || q.Deliveries != 5 || q.Subscriptions != 2 || len(q.Largest) != 2 {
			t.Fatalf("%+v", q)
		}
		org, name := x.Owner.Organization.ID, x.Owner.Organization.Name
		want := []webhook.Queued{
			{SubscriptionID: x.Sub.ID, OrganizationID: org, OrganizationName: name, URL: x.Sub.URL, Pending: 4, OldestDue: due},
			{SubscriptionID: other.ID, OrganizationID: org, OrganizationName: name, URL: other.URL, Pending: 1, OldestDue: q.Largest[1].OldestDue},
		}
		if d := cmp.Diff(want, q.Largest); d != "" {
			t.Errorf("largest (-want +got):\n%s", d)
		}
	})

	t.Run("no statement of a hold reads a table that grows", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		storagetest.Publish(t, x.Store, x.Owner, "a")
		holdQueue(t, x)
		if _, err := x.Survey.QueueSummary(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := x.Queue.DiscardQueue(t.Context(), holder(t, x)); err != nil {
			t.Fatal(err)
		}
		storagetest.NoneGrows(t, x.Store, nil)
	})
}

// TestARecoveryOfAHeldQueue says that nothing is sent before the release.
func TestARecoveryOfAHeldQueue(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	for _, want := range []webhook.Block{webhook.NotBlocked, webhook.BlockedByHold} {
		r, err := x.CountRecovery(t.Context(), webhook.RecoveryRequest{})
		if err != nil || r.BlockedBy != want {
			t.Errorf("blocked by %q, want %q, error %v", r.BlockedBy, want, err)
		}
		if err := x.Queue.HoldQueue(t.Context(), x.Actor(), "an incident"); err != nil {
			t.Fatal(err)
		}
	}
}
