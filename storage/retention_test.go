package storage_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestRetentionOfWideEvents(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		o := storagetest.Options(t, path)
		o.KeepEvents = time.Hour
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		must[access.Organization](t)(store.Directory.UpdateOrganization(t.Context(), x.actor(), x.owner.Organization.ID,
			access.OrganizationChange{Plan: new("enterprise")}))
		for range 600 {
			storagetest.Subscription(t, store, x.owner, "https://example.com/", "wide")
		}
		first := storagetest.Publish(t, store, x.owner, "wide")
		last := storagetest.Publish(t, store, x.owner, "wide")
		subs, err := store.SubscriptionList(t.Context(), x.org(), "", 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, sub := range subs {
			if err := store.Subscriptions.DeleteSubscription(t.Context(), x.actor(), x.org(), sub.ID); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour + 15*time.Second)
		for _, p := range []webhook.Published{first, last} {
			if _, _, err := store.History.Event(t.Context(), x.org(), p.ID); fault.KindOf(err) != fault.NotFound {
				t.Errorf("still there: %v", err)
			}
		}
	})
}

// TestRetentionLooksAtFewDeliveries has old events that cannot be deleted yet, so only the size of a batch limits its
// reads.
func TestRetentionLooksAtFewDeliveries(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	x := fixtureOf(t, store)
	must[access.Organization](t)(store.Directory.UpdateOrganization(t.Context(), x.actor(), x.owner.Organization.ID,
		access.OrganizationChange{Plan: new("enterprise")}))
	if err := store.Subscriptions.DeleteSubscription(t.Context(), x.actor(), x.org(), x.sub.ID); err != nil { // it receives audit events, too
		t.Fatal(err)
	}
	for range 400 {
		storagetest.Subscription(t, store, x.owner, "https://example.com/", "wide")
	}
	future := time.Now().Add(time.Hour).UnixMilli()
	if _, err := store.DeleteEvents(t.Context(), future, nil); err != nil { // the published audit events
		t.Fatal(err)
	}
	for range 5 {
		storagetest.Publish(t, store, x.owner, "wide")
	}
	const want = 4 // for two events, two events, one event, and none
	if transactions, err := store.DeleteEvents(t.Context(), future, nil); err != nil || transactions != want {
		t.Fatalf("%d transactions have looked at the events, want %d, error %v", transactions, want, err)
	}
}

// TestRetentionWaitsForAttempts keeps an old event only because its attempt is running; the subscription is disabled.
// If its rows were deleted, their ids could be reused, and the result would be recorded there.
func TestRetentionWaitsForAttempts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		o := storagetest.Options(t, path)
		o.KeepEvents = time.Hour
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		sent := storagetest.Publish(t, store, x.owner, "sent")
		job := x.jobs(t)[0]
		attempt := x.begin(t, job)
		no := false
		if _, err := store.Subscriptions.UpdateSubscription(t.Context(), x.actor(), x.org(), x.sub.ID, webhook.SubscriptionChange{IsActive: &no}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if _, _, err := store.History.Event(t.Context(), x.org(), sent.ID); err != nil {
			t.Fatalf("an attempt is under way: %v", err)
		}
		if settled := x.end(t, job, attempt, true); settled.State != webhook.Delivered {
			t.Errorf("settled %+v", settled)
		}
		time.Sleep(15 * time.Second)
		if _, _, err := store.History.Event(t.Context(), x.org(), sent.ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("still there once it has ended: %v", err)
		}
	})
}

// TestReplayAfterAllWasForgotten starts on a file whose events were all deleted. New events must get higher numbers
// than the creation of any subscription. Otherwise a replay takes them for older ones and skips them.
func TestReplayAfterAllWasForgotten(t *testing.T) {
	t.Parallel()
	o := hourlyRetention(t)
	synctest.Test(t, func(t *testing.T) {
		store, stop := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		time.Sleep(time.Hour + 15*time.Second)
		if left, err := store.Events(t.Context(), x.org(), 0, 1); err != nil || len(left) > 0 {
			t.Fatalf("left: %v, error %v", left, err)
		}
		stop()
		x.Store, stop = storagetest.OpenWith(t, o)
		defer stop()
		x.missed(t, 2, "missed")
		x.counts(t, webhook.Replay{Since: 1, Only: webhook.OnlyAll, EventTypes: webhook.Types{"missed"}}, 2)
	})
}

func TestRetention(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		o := storagetest.Options(t, path)
		o.KeepEvents, o.KeepAudit = time.Hour, 2*time.Hour
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		off, _ := storagetest.Subscription(t, store, x.owner, "https://example.com/off", "old")
		delivered := storagetest.Publish(t, store, x.owner, "delivered")
		job := x.jobs(t)[len(x.jobs(t))-1]
		attempt := x.begin(t, job)
		x.end(t, job, attempt, true)
		waiting := storagetest.Publish(t, store, x.owner, "waiting")
		var many []string
		for range 3 * 100 {
			p, err := store.Queue.PublishEvents(t.Context(), x.org(), []webhook.NewEvent{eventWithKey("many", `{}`)})
			if err != nil {
				t.Fatal(err)
			}
			many = append(many, p[0].ID)
		}
		for _, job := range x.jobs(t) { // all except the pending one
			if job.EventID != waiting.ID {
				x.end(t, job, x.begin(t, job), true)
			}
		}
		// The other subscription has only deliveries from before it was disabled.
		storagetest.Publish(t, store, x.owner, "old")
		for _, job := range x.jobs(t) {
			if job.EventType == "old" {
				x.end(t, job, x.begin(t, job), true)
			}
		}
		no := false
		if _, err := store.Subscriptions.UpdateSubscription(t.Context(), x.actor(), x.org(), off.ID, webhook.SubscriptionChange{IsActive: &no}); err != nil {
			t.Fatal(err)
		}
		if sub, _ := store.History.Subscription(t.Context(), x.org(), off.ID); sub.PendingDeliveries != 1 {
			t.Fatalf("%d pending for the one that is off", sub.PendingDeliveries)
		}

		time.Sleep(50 * time.Minute)
		if _, _, err := store.History.Event(t.Context(), x.org(), delivered.ID); err != nil {
			t.Errorf("gone after 50 minutes: %v", err)
		}
		time.Sleep(20 * time.Minute)
		for _, id := range []string{delivered.ID, many[0]} {
			if _, _, err := store.History.Event(t.Context(), x.org(), id); fault.KindOf(err) != fault.NotFound {
				t.Errorf("still there after 70 minutes: %v", err)
			}
		}
		if _, deliveries, err := store.History.Event(t.Context(), x.org(), waiting.ID); err != nil || len(deliveries) != 1 {
			t.Errorf("what an open subscription waits for: %v, %v", deliveries, err)
		}
		if sub, _ := store.History.Subscription(t.Context(), x.org(), off.ID); sub.PendingDeliveries != 0 {
			t.Errorf("%d are still pending for the one that is off", sub.PendingDeliveries)
		}
		if _, err := store.History.Attempt(t.Context(), attempt); fault.KindOf(err) != fault.NotFound {
			t.Errorf("its attempt is still there: %v", err)
		}
		if p, err := store.Queue.PublishEvents(t.Context(), x.org(), []webhook.NewEvent{eventWithKey("many", `{"another":1}`)}); err != nil || p[0].Repeated {
			t.Errorf("the idempotency key outlived its event: %+v, %v", p, err)
		}
		if log, err := store.AuditEvents(t.Context(), x.org(), access.AuditFilter{Limit: 100}); err != nil || len(log) == 0 {
			t.Errorf("the audit log is gone already: %v, %v", log, err)
		}
		time.Sleep(time.Hour)
		if log, err := store.AuditEvents(t.Context(), x.org(), access.AuditFilter{Limit: 100}); err != nil || len(log) != 0 {
			t.Errorf("the audit log still has %d lines, error %v", len(log), err)
		}
		// The oldest rows are read from the beginning of their tables, a few hundred at a time.
		noneGrows(t, store, map[string]string{
			"FROM audit_events ORDER BY id LIMIT": "SCAN audit_events", "FROM events WHERE id > ? ORDER BY id LIMIT": "SCAN e",
		})
	})
}

// TestRetentionOfManyDeliveries deletes events with as many deliveries as one transaction deletes, with more than twice as many, and with one.
func TestRetentionOfManyDeliveries(t *testing.T) {
	t.Parallel()
	o := hourlyRetention(t)
	synctest.Test(t, func(t *testing.T) {
		store, stop := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		for _, deliveries := range []string{"1000", "2001", "1"} {
			storagetest.Publish(t, store, x.owner, "with."+deliveries)
		}
		for _, job := range x.jobs(t) {
			x.end(t, job, x.begin(t, job), true)
		}
		stop()
		alter(t, o.Path, `
			INSERT INTO deliveries (event_id, subscription_id, state, cause, attempts, due_at)
			WITH RECURSIVE n (value) AS (SELECT 2 UNION ALL SELECT value + 1 FROM n WHERE value < 2001)
			SELECT e.id, s.id, 1, 0, 1, 0 FROM events e, subscriptions s, n WHERE e.type LIKE 'with.%' AND value <= CAST(substr(e.type, 6) AS INTEGER)`)
		alter(t, o.Path, `
			INSERT OR IGNORE INTO attempts (id, subscription_id, cause, outcome, response_body, duration_ms, error, attempted_at)
			SELECT id << 8 | 1, subscription_id, 0, 1, '', 1, '', 1 FROM deliveries WHERE state = 1`)
		_, stop = storagetest.OpenWith(t, o)
		time.Sleep(time.Hour + time.Minute)
		stop()
		for _, rows := range []string{"events WHERE type LIKE 'with.%'", "deliveries", "attempts"} {
			var left int
			if query(t, o.Path, &left, "SELECT count(*) FROM "+rows); left != 0 {
				t.Errorf("%d rows are left of %s", left, rows)
			}
		}
	})
}
