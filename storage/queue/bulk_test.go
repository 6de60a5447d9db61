package queue_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// listed is a bulk request for a state without other filters, and without audit events.
func listed(state webhook.EventState, recovers bool) webhook.BulkRequest {
	return webhook.BulkRequest{Events: webhook.EventFilter{State: state, Since: 1, WithoutAudit: true}, Recover: recovers}
}

// sends counts a bulk request and runs it. It expects these numbers from both, and that many pending deliveries of the subscription.
func (x fixture) sends(t *testing.T, r webhook.BulkRequest, want webhook.BulkResult, pending int64) {
	t.Helper()
	before := x.Pending(t)
	dry := r
	dry.DryRun = true
	if got, err := x.Queue.SendListed(t.Context(), x.Actor(), x.Org(), dry); err != nil || got != want || x.Pending(t) != before {
		t.Errorf("counted %+v, want %+v, error %v; pending %d, before %d", got, want, err, x.Pending(t), before)
	}
	if got, err := x.Queue.SendListed(t.Context(), x.Actor(), x.Org(), r); err != nil || got != want {
		t.Errorf("sent %+v, want %+v, error %v", got, want, err)
	}
	if n := x.Pending(t); n != pending {
		t.Errorf("%d are pending, want %d", n, pending)
	}
}

// newListed returns a fixture with an event in each state, and a second subscription to which one of them is exhausted too.
func newListed(t *testing.T) (x fixture, events map[webhook.EventState]string) {
	t.Helper()
	x = newOneAttemptFixture(t)
	if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{AuditEvents: new(false)}); err != nil {
		t.Fatal(err)
	}
	y := x
	y.Sub, _ = storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/second", "order.*")
	x.EndAll(t, true)
	events = map[webhook.EventState]string{webhook.AnyDelivered: x.Publish(t, 1, "user.created")[0]}
	x.EndAll(t, true)
	events[webhook.AnyExhausted] = x.Publish(t, 1, "order.paid")[0]
	x.EndAll(t, false)
	y.EndAll(t, false)
	events[webhook.AnyDropped] = x.Publish(t, 1, "user.created")[0]
	must[int64](t)(x.Queue.Discard(t.Context(), x.Actor(), x.Org(), x.Sub.ID, 0))
	x.Missed(t, 1, "user.created")
	x.Publish(t, 1, "user.created") // pending
	return x, events
}

func TestSendListed(t *testing.T) {
	t.Parallel()
	type result = webhook.BulkResult

	t.Run("a list is sent to its subscriptions, and not again while it waits", func(t *testing.T) {
		t.Parallel()
		for _, recovers := range []bool{true, false} {
			x, events := newListed(t)
			x.sends(t, listed(webhook.AnyExhausted, recovers), result{Events: 1, Deliveries: 2, Subscriptions: 2, Pending: 1}, 2)
			x.sends(t, listed(webhook.AnyExhausted, recovers), result{Events: 1, Subscriptions: 2, Pending: 3}, 2)
			x.sends(t, listed(webhook.AnyDropped, recovers), result{Events: 1, Deliveries: 1, Subscriptions: 1, Pending: 2}, 3)
			jobs := x.Jobs(t)
			if jobs[1].EventID != events[webhook.AnyExhausted] || jobs[2].EventID != events[webhook.AnyDropped] || jobs[1].Cause != webhook.ByHand {
				t.Errorf("%+v", jobs)
			}
		}
	})

	t.Run("a recovery leaves out what has arrived since, and a redelivery does not", func(t *testing.T) {
		t.Parallel()
		x, events := newListed(t)
		x.EndAll(t, true)
		x.sends(t, listed(webhook.AnyExhausted, true), result{Events: 1, Deliveries: 2, Subscriptions: 2}, 1)
		x.EndAll(t, true)
		x.sends(t, listed(webhook.AnyExhausted, true), result{Events: 1, Subscriptions: 2, Pending: 1}, 0)
		x.sends(t, listed(webhook.AnyExhausted, false), result{Events: 1, Deliveries: 1, Subscriptions: 2, Pending: 1}, 1)
		r := listed(webhook.AnyDelivered, false)
		x.EndAll(t, false)
		x.sends(t, r, result{Events: 3, Deliveries: 3, Subscriptions: 1}, 3)
		r.Events.Type, r.Events.Subscription = "user.*", x.Sub.ID
		x.sends(t, r, result{Events: 2, Subscriptions: 1, Pending: 3}, 3)
		if jobs := x.Jobs(t); jobs[0].EventID != events[webhook.AnyDelivered] || jobs[1].EventID != events[webhook.AnyExhausted] {
			t.Errorf("the oldest is not the first: %+v", jobs)
		}
	})

	t.Run("the filters of the list select", func(t *testing.T) {
		t.Parallel()
		x, _ := newListed(t)
		r := listed(webhook.AnyExhausted, true)
		for name, change := range map[string]func(f *webhook.EventFilter){
			"type": func(f *webhook.EventFilter) { f.Type = "user.*" }, "since": func(f *webhook.EventFilter) { f.Since = time.Now().UnixMilli() + 1000 },
			"until": func(f *webhook.EventFilter) { f.Until = 2 },
		} {
			none := r
			none.DryRun = true
			change(&none.Events)
			if got, err := x.Queue.SendListed(t.Context(), x.Actor(), x.Org(), none); err != nil || got != (result{}) {
				t.Errorf("%s: %+v, error %v", name, got, err)
			}
		}
		r.Events.Subscription, r.Events.Type = x.Sub.ID, "order.*"
		x.sends(t, r, result{Events: 1, Deliveries: 1, Subscriptions: 1, Pending: 1}, 2)
	})
}

func TestWhatAListLeavesOut(t *testing.T) {
	t.Parallel()
	type result = webhook.BulkResult

	t.Run("tests, audit events, deleted subscriptions and feeds are left out", func(t *testing.T) {
		t.Parallel()
		x, _ := newListed(t)
		x.EndAll(t, true)
		if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{AuditEvents: new(true)}); err != nil {
			t.Fatal(err)
		}
		x.EndAll(t, true)                                       // the event about that
		storagetest.Key(t, x.Store, x.Owner, access.EventsRead) // an audit event
		_, job, attempt, err := x.Queue.BeginTest(t.Context(), x.Org(), x.Sub.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		x.End(t, job, attempt, false)
		x.EndAll(t, false)
		y, feed := x, x
		y.Sub, _ = storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/third", "a")
		feed.Sub, _ = storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/fourth", "a")
		x.EndAll(t, true) // the events about them
		x.Publish(t, 1, "a")
		for _, each := range []fixture{x, y, feed} {
			each.EndAll(t, false)
		}
		if err := feed.Change(t, x.Actor(), webhook.SubscriptionChange{URL: new("")}); err != nil {
			t.Fatal(err)
		}
		if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), y.Sub.ID); err != nil {
			t.Fatal(err)
		}
		x.EndAll(t, true) // the events about that
		withAudit := listed(webhook.AnyExhausted, true)
		withAudit.Events.WithoutAudit = false
		// Exhausted are the event of each type, the test, and the audit event. A list with a state has no tests.
		x.sends(t, listed(webhook.AnyExhausted, true), result{Events: 2, Deliveries: 3, Subscriptions: 2}, 2)
		x.sends(t, withAudit, result{Events: 3, Deliveries: 1, Subscriptions: 2, Pending: 3}, 3)
		if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{AuditEvents: new(false)}); err != nil {
			t.Fatal(err)
		}
		x.EndAll(t, false)
		withAudit.Recover = false // not even a redelivery gives audit events to a subscription that has no right to them
		x.sends(t, withAudit, result{Events: 3, Deliveries: 2, Subscriptions: 2, Pending: 1}, 2)
		named := listed(webhook.AnyExhausted, true)
		named.Events.Subscription = feed.Sub.ID
		_, err = x.Queue.SendListed(t.Context(), x.Actor(), x.Org(), named)
		storagetest.ExpectFault(t, err, fault.Conflict, "no_url")
	})

	t.Run("a recovery keeps to the present types and filter, and a redelivery does not", func(t *testing.T) {
		t.Parallel()
		x := newOneAttemptFixture(t)
		for _, n := range []int{10, 200} {
			x.amount(t, n, "")
		}
		x.Publish(t, 1, "user.created")
		x.EndAll(t, false)
		f := atLeast(t, 100)
		if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{EventTypes: &webhook.Types{"order.*"}, Filter: &f, AuditEvents: new(false)}); err != nil {
			t.Fatal(err)
		}
		x.sends(t, listed(webhook.AnyExhausted, true), result{Events: 3, Deliveries: 1, Subscriptions: 1}, 1)
		x.sends(t, listed(webhook.AnyExhausted, false), result{Events: 3, Deliveries: 2, Subscriptions: 1, Pending: 1}, 3)
	})

	t.Run("another organization is untouched", func(t *testing.T) {
		t.Parallel()
		x, _ := newListed(t)
		y := x
		y.Owner, _ = storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
		y.Sub, _ = storagetest.Subscription(t, x.Store, y.Owner, "https://example.org/", "order.*")
		y.Publish(t, 1, "order.paid")
		y.EndAll(t, false)
		before := y.deliveries(t)
		x.sends(t, listed(webhook.AnyExhausted, true), result{Events: 1, Deliveries: 2, Subscriptions: 2, Pending: 1}, 2)
		x.sends(t, listed(webhook.AnyDropped, false), result{Events: 1, Deliveries: 1, Subscriptions: 1, Pending: 2}, 3)
		if y.deliveries(t) != before {
			t.Error("the deliveries of the other one have changed")
		}
	})

	t.Run("its statements read no table as a whole", func(t *testing.T) {
		t.Parallel()
		x, _ := newListed(t)
		x.sends(t, listed(webhook.AnyExhausted, true), result{Events: 1, Deliveries: 2, Subscriptions: 2, Pending: 1}, 2)
		storagetest.NoneGrows(t, x.Store, map[string]string{"SELECT DISTINCT s.public_id": "TEMP B-TREE", "FROM deliveries own": "TEMP B-TREE", "FROM events WHERE id > ? ORDER BY id LIMIT": "SCAN e"})
	})
}

// TestSendListedAndTheHealth has a subscription that failures have disabled, and one that a person has paused.
func TestSendListedAndTheHealth(t *testing.T) {
	t.Parallel()
	x := newOutage(t)
	if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{AuditEvents: new(false)}); err != nil {
		t.Fatal(err)
	}
	paused := x
	paused.Sub, _ = storagetest.Subscription(t, x.Store, x.Owner, "https://example.net/", "lost")
	x.EndAll(t, true)
	x.Publish(t, 2, "lost")
	for _, each := range []fixture{x, paused} {
		each.EndAll(t, false)
		each.EndAll(t, false) // exhausted
	}
	paused.SetActive(t, false)
	status := func() [2]webhook.Status { return [2]webhook.Status{x.Read(t).Status, paused.Read(t).Status} }
	disabled := [2]webhook.Status{webhook.Disabled, webhook.Disabled}
	if got := status(); got != disabled {
		t.Fatal(got)
	}
	x.Publish(t, 1, "held")
	x.sends(t, listed(webhook.AnyExhausted, false), webhook.BulkResult{Events: 2, Deliveries: 4, Subscriptions: 2, Pending: 1}, 3)
	if got := status(); got != disabled {
		t.Errorf("a redelivery has changed the status: %s", got)
	}
	r := listed(webhook.AnyExhausted, true)
	r.Events.Until = time.Now().UnixMilli() + 1
	x.sends(t, r, webhook.BulkResult{Events: 2, Subscriptions: 2, Pending: 5}, 3)
	if got := status(); got != [2]webhook.Status{webhook.Healthy, webhook.Disabled} || !paused.Read(t).ByPerson() {
		t.Errorf("after the recovery: %s", got)
	}
	for eventType, want := range map[string]int{access.SubscriptionRecovered: 2, access.SubscriptionReplayed: 2} {
		log := must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), x.Org(), access.AuditFilter{Type: eventType, Limit: 10}))
		if len(log.Rows) != want || log.Rows[0].Actor.ID != x.Owner.User.ID {
			t.Errorf("%s: %+v", eventType, log.Rows)
		}
	}
}

// TestRecoverExpired recovers what retention is about to delete.
func TestRecoverExpired(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		o := storagetest.Options(t, path)
		o.KeepEvents, o.Policy = time.Hour, webhook.Policy{MaxAttempts: 9, FailingAfter: 1, DisabledAfter: 2}
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		x.Fail(t, 2)
		waiting := x.Pending(t)
		if s := x.Read(t).Status; s != webhook.Disabled {
			t.Fatal(s)
		}
		time.Sleep(time.Hour + time.Millisecond)
		x.sends(t, listed(webhook.AnyExpired, true), webhook.BulkResult{Events: 2, Subscriptions: 1, Pending: waiting}, waiting)
		if s := x.Read(t).Status; s != webhook.Healthy {
			t.Errorf("it is %s", s)
		}
		r := listed(webhook.AnyExpired, true)
		r.DryRun = true
		if got, err := x.Queue.SendListed(t.Context(), x.Actor(), x.Org(), r); err != nil || got != (webhook.BulkResult{}) {
			t.Errorf("still expired: %+v, error %v", got, err)
		}
	})
}

// TestSendListedInOrder sends again to an ordered subscription.
func TestSendListedInOrder(t *testing.T) {
	t.Parallel()
	for _, recovers := range []bool{true, false} {
		x := newOrderedFixture(t)
		events := x.publishMany(t, 4)
		x.endNext(t, true)
		x.exhaust(t)
		x.exhaust(t)
		x.sends(t, listed(webhook.AnyExhausted, recovers), webhook.BulkResult{Events: 2, Deliveries: 2, Subscriptions: 1, Pending: x.Pending(t)}, x.Pending(t)+2)
		if d := cmp.Diff(events[1:], x.eventsInOrder(t)[:3]); d != "" {
			t.Errorf("recovers %v (-want +got):\n%s", recovers, d)
		}
	}
}

// TestTooManyListed has as many events and deliveries as one request may send, and then one more.
func TestTooManyListed(t *testing.T) {
	t.Parallel()
	const most = 10_000
	x := newOneAttemptFixture(t)
	end := func(state webhook.DeliveryState) {
		storagetest.Exec(t, x.Store, "UPDATE deliveries SET state = ? WHERE state = 0 AND event_id IN (SELECT id FROM events WHERE type = 'a')", state)
	}
	made := func() (n int64) {
		if err := x.Queue.Write(t.Context(), func(tx *queue.Tx) error { return tx.Get(&n, "SELECT count(*) FROM deliveries WHERE cause = 2") }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	refused := func(why string, state webhook.EventState) {
		t.Helper()
		for _, dry := range []bool{true, false} {
			r := listed(state, true)
			r.DryRun = dry
			_, err := x.Queue.SendListed(t.Context(), x.Actor(), x.Org(), r)
			if storagetest.ExpectFault(t, err, fault.Invalid, "too_many_deliveries"); made() != 0 {
				t.Errorf("%s: %d were made", why, made())
			}
		}
	}
	for range most / 1000 {
		x.Publish(t, 1000, "a")
	}
	end(webhook.Exhausted)
	r := listed(webhook.AnyExhausted, true)
	r.DryRun = true
	if got, err := x.Queue.SendListed(t.Context(), x.Actor(), x.Org(), r); err != nil || got.Events != most || got.Deliveries != most {
		t.Errorf("%+v, error %v", got, err)
	}
	x.Publish(t, 1, "a")
	end(webhook.Exhausted)
	refused("one event more", webhook.AnyExhausted)

	storagetest.Subscription(t, x.Store, x.Owner, "https://example.net/", "a")
	for range most / 2 / 1000 {
		x.Publish(t, 1000, "a")
	}
	x.Publish(t, 1, "a")
	end(webhook.Dropped)
	refused("one event with two deliveries more", webhook.AnyDropped)
	if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID); err != nil {
		t.Fatal(err)
	}
	refused("one event more, whose deliveries are all to a deleted subscription", webhook.AnyExhausted)
}

// TestInterruptedBulkRecovery has two subscriptions. The second one fails, and the repetition continues with it.
func TestInterruptedBulkRecovery(t *testing.T) {
	t.Parallel()
	x := newOneAttemptFixture(t)
	y := x
	y.Sub, _ = storagetest.Subscription(t, x.Store, x.Owner, "https://example.net/", "a")
	x.EndAll(t, true)
	x.Publish(t, 3, "a")
	x.EndAll(t, false)
	y.EndAll(t, false)
	refusals{x.Store}.alter(t, "UPDATE subscriptions SET status = 'disabled', last_error = 'x', consecutive_failures = 2000, epoch = epoch + 1")
	refusals{x.Store}.refuse(t, sentAgain, "NEW.subscription_id = (SELECT max(id) FROM subscriptions)")
	if got, err := x.Queue.SendListed(t.Context(), x.Actor(), x.Org(), listed(webhook.AnyExhausted, true)); err == nil || got.Deliveries != 3 {
		t.Errorf("%+v, error %v", got, err)
	}
	if a, b := x.Read(t).Status, y.Read(t).Status; a != webhook.Healthy || b != webhook.Disabled {
		t.Errorf("they are %s and %s", a, b)
	}
	refusals{x.Store}.allow(t)
	if got, err := x.Queue.SendListed(t.Context(), x.Actor(), x.Org(), listed(webhook.AnyExhausted, true)); err != nil || got.Deliveries != 3 {
		t.Errorf("%+v, error %v", got, err)
	}
	if s := y.Read(t).Status; s != webhook.Healthy {
		t.Errorf("the second one is %s", s)
	}
}

// TestBulkRequestThatEndsEarly cancels a redelivery after its first transaction, and deletes the second subscription in that of another.
func TestBulkRequestThatEndsEarly(t *testing.T) {
	t.Parallel()
	x := newOneAttemptFixture(t)
	y := x
	y.Sub, _ = storagetest.Subscription(t, x.Store, x.Owner, "https://example.net/", "a")
	x.EndAll(t, true)
	x.Publish(t, 3, "a")
	x.EndAll(t, false)
	y.EndAll(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	x.Queue.Watch(onChange(cancel))
	_, err := x.Queue.SendListed(ctx, x.Actor(), x.Org(), listed(webhook.AnyExhausted, false))
	if storagetest.ExpectFault(t, err, fault.Unavailable, "replay_unfinished"); x.Pending(t)+y.Pending(t) != 3 {
		t.Errorf("%d and %d are pending", x.Pending(t), y.Pending(t))
	}
	x.EndAll(t, false)
	storagetest.Exec(t, x.Store, `CREATE TRIGGER deletes AFTER INSERT ON deliveries WHEN NEW.cause = 2 BEGIN
		UPDATE subscriptions SET deleted_at = 1 WHERE url = 'https://example.net/'; END`)
	if sent, err := x.Queue.SendListed(t.Context(), x.Actor(), x.Org(), listed(webhook.AnyExhausted, false)); err != nil || sent.Deliveries != 3 {
		t.Errorf("%+v, error %v", sent, err)
	}
}

// bulkFacts are what a bulk request must not break, of the deliveries after a row.
type bulkFacts struct {
	Made     int64 `db:"made"`
	Arrived  int64 `db:"arrived"`  // whose event has arrived before
	Twice    int64 `db:"twice"`    // whose event waits twice
	Foreign  int64 `db:"foreigns"` // of another organization
	Unlisted int64 `db:"unlisted"` // whose event has no other delivery in the state
	Paused   int64 `db:"paused"`   // subscriptions that a person has paused
	Last     int64 `db:"last"`
}

func (x fixture) bulkFacts(r *rapid.T, after int64, state webhook.DeliveryState) (f bulkFacts) {
	err := x.Queue.Write(context.Background(), func(tx *queue.Tx) error {
		return tx.Get(&f, `
			SELECT count(*) AS made, coalesce(sum(EXISTS (SELECT 1 FROM deliveries o WHERE o.event_id = d.event_id AND o.subscription_id = d.subscription_id AND o.state = 1)), 0) AS arrived,
			       coalesce(sum(EXISTS (SELECT 1 FROM deliveries o WHERE o.event_id = d.event_id AND o.subscription_id = d.subscription_id AND o.state IN (0, 4) AND o.id <> d.id)), 0) AS twice,
			       coalesce(sum(e.organization_id <> ?1), 0) AS foreigns,
			       coalesce(sum(NOT EXISTS (SELECT 1 FROM deliveries o WHERE o.event_id = d.event_id AND o.subscription_id = d.subscription_id AND o.state = ?3)), 0) AS unlisted,
			       (SELECT count(*) FROM subscriptions WHERE paused = 1) AS paused, (SELECT coalesce(max(id), 0) FROM deliveries) AS last
			FROM deliveries d JOIN events e ON e.id = d.event_id WHERE d.id > ?2 AND d.cause = 2`, x.Org(), after, state)
	})
	if err != nil {
		r.Fatal(err)
	}
	return f
}

// TestBulkKeepsItsPromises makes bulk requests among random changes.
func TestBulkKeepsItsPromises(t *testing.T) {
	t.Parallel()
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	o.Policy = webhook.Policy{MaxAttempts: 2, FailingAfter: 3, DisabledAfter: 6}
	store, _ := storagetest.OpenWith(t, o)
	x := fixtureOf(t, store)
	other := x
	other.Owner, _ = storagetest.Organization(t, store, "other", "growth", access.RoleOwner)
	other.Sub, _ = storagetest.Subscription(t, store, other.Owner, "https://example.org/", "a")
	all := []fixture{x, x, other}
	all[1].Sub, _ = storagetest.Subscription(t, store, x.Owner, "https://example.net/", "a")
	states := map[webhook.EventState]webhook.DeliveryState{
		webhook.AnyExhausted: webhook.Exhausted, webhook.AnyDropped: webhook.Dropped, webhook.AnyDelivered: webhook.Delivered,
	}
	rapid.Check(t, func(r *rapid.T) {
		ctx := context.Background()
		for range rapid.IntRange(1, 6).Draw(r, "changes") {
			each := rapid.SampledFrom(all).Draw(r, "subscription")
			switch rapid.SampledFrom([]string{"publish", "end", "end", "end", "discard", "active"}).Draw(r, "change") {
			case "publish":
				each.Publish(t, rapid.IntRange(1, 3).Draw(r, "events"), "a")
			case "end":
				succeeds := rapid.Bool().Draw(r, "succeeds")
				for _, job := range each.Jobs(t) {
					if attempt := each.Begin(t, job); attempt != 0 {
						each.End(t, job, attempt, succeeds)
					}
				}
			case "discard":
				must[int64](t)(each.Queue.Discard(ctx, each.Actor(), each.Org(), each.Sub.ID, 0))
			case "active":
				each.SetActive(t, rapid.Bool().Draw(r, "active"))
			}
		}
		recovers := rapid.Bool().Draw(r, "recovers")
		choice := []webhook.EventState{webhook.AnyExhausted, webhook.AnyDropped}
		if !recovers {
			choice = append(choice, webhook.AnyDelivered)
		}
		state := rapid.SampledFrom(choice).Draw(r, "state")
		request := listed(state, recovers)
		before := x.bulkFacts(r, 0, states[state])
		request.DryRun = true
		counted, err := x.Queue.SendListed(ctx, x.Actor(), x.Org(), request)
		if err != nil {
			r.Fatal(err)
		}
		if after := x.bulkFacts(r, 0, states[state]); after != before {
			r.Fatalf("a dry run has changed %+v into %+v", before, after)
		}
		request.DryRun = false
		sent, err := x.Queue.SendListed(ctx, x.Actor(), x.Org(), request)
		if err != nil || sent != counted {
			r.Fatalf("sent %+v, counted %+v, error %v", sent, counted, err)
		}
		f := x.bulkFacts(r, before.Last, states[state])
		if f.Made != sent.Deliveries || f.Twice+f.Foreign+f.Unlisted != 0 || recovers && f.Arrived != 0 || f.Paused != before.Paused {
			r.Fatalf("%s, recovers %v: %+v after %+v, paused before %d", state, recovers, f, sent, before.Paused)
		}
		if again, err := x.Queue.SendListed(ctx, x.Actor(), x.Org(), request); err != nil || again.Deliveries != 0 {
			r.Fatalf("sent again %+v, error %v", again, err)
		}
	})
}
