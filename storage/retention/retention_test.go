package retention_test

import (
	"crypto/sha256"
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// hourlyRetention returns options that keep events and audit events for an hour.
func hourlyRetention(t *testing.T) storage.Options {
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	o.KeepEvents, o.KeepAudit = time.Hour, time.Hour
	return o
}

// eventWithKey is an event with an idempotency key.
func eventWithKey(key, data string) webhook.NewEvent {
	return webhook.NewEvent{Type: "user.created", Data: []byte(data), IdempotencyKey: key, Digest: sha256.Sum256([]byte(data))}
}

// auditLog returns the newest audit events of the customer.
func auditLog(t *testing.T, x storagetest.Customer) []access.AuditEvent {
	t.Helper()
	return storagetest.Must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), x.Org(), access.AuditFilter{Limit: 100})).Rows
}

// TestTheFileShrinks deletes the events that fill most of the file.
func TestTheFileShrinks(t *testing.T) {
	t.Parallel()
	o := hourlyRetention(t)
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, o)
		x := storagetest.CustomerOf(t, store)
		if err := store.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID); err != nil {
			t.Fatal(err)
		}
		large := webhook.NewEvent{Type: "a", Data: []byte(`{"text":"` + strings.Repeat("x", 20_000) + `"}`)}
		for range 10 {
			storagetest.Must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), x.Org(), slices.Repeat([]webhook.NewEvent{large}, 50)))
		}
		db := storagetest.Must[*sql.DB](t)(sql.Open("sqlite", "file:"+o.Path))
		defer db.Close()
		for _, minutes := range []time.Duration{0, 61} {
			time.Sleep(minutes * time.Minute)
			var pages, free int
			if err := db.QueryRow("SELECT page_count, freelist_count FROM pragma_page_count, pragma_freelist_count").Scan(&pages, &free); err != nil {
				t.Fatal(err)
			}
			if filled := minutes == 0; (pages > 2500) != filled || free > pages/10 {
				t.Errorf("after %d minutes, the file has %d pages, and %d of them are free", minutes, pages, free)
			}
		}
	})
}

func TestRetentionOfWideEvents(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		o := storagetest.Options(t, path)
		o.KeepEvents = time.Hour
		store, _ := storagetest.OpenWith(t, o)
		x := storagetest.CustomerOf(t, store)
		storagetest.Must[access.Organization](t)(store.Directory.UpdateOrganization(t.Context(), x.Actor(), x.Owner.Organization.ID,
			access.OrganizationChange{Plan: new("enterprise")}))
		for range 600 {
			storagetest.Subscription(t, store, x.Owner, "https://example.com/", "wide")
		}
		first := storagetest.Publish(t, store, x.Owner, "wide")
		last := storagetest.Publish(t, store, x.Owner, "wide")
		page := storagetest.Must[access.Page[webhook.Subscription]](t)(store.History.SubscriptionPage(t.Context(), x.Org(), webhook.SubscriptionFilter{Limit: 1000}))
		for _, sub := range page.Rows {
			if err := store.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), sub.ID); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour + 15*time.Second)
		for _, p := range []webhook.Published{first, last} {
			if _, _, err := store.History.Event(t.Context(), x.Org(), p.ID); fault.KindOf(err) != fault.NotFound {
				t.Errorf("still there: %v", err)
			}
		}
	})
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
		x := storagetest.CustomerOf(t, store)
		sent := storagetest.Publish(t, store, x.Owner, "sent")
		job := x.Jobs(t)[0]
		attempt := x.Begin(t, job)
		no := false
		if _, err := store.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.SubscriptionChange{IsActive: &no}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if _, _, err := store.History.Event(t.Context(), x.Org(), sent.ID); err != nil {
			t.Fatalf("an attempt is under way: %v", err)
		}
		if settled := x.End(t, job, attempt, true); settled.State != webhook.Delivered {
			t.Errorf("settled %+v", settled)
		}
		time.Sleep(15 * time.Second)
		if _, _, err := store.History.Event(t.Context(), x.Org(), sent.ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("still there once it has ended: %v", err)
		}
	})
}

func TestRetention(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		o := storagetest.Options(t, path)
		o.KeepEvents, o.KeepAudit = time.Hour, 2*time.Hour
		store, _ := storagetest.OpenWith(t, o)
		x := storagetest.CustomerOf(t, store)
		off, _ := storagetest.Subscription(t, store, x.Owner, "https://example.com/off", "old")
		delivered := storagetest.Publish(t, store, x.Owner, "delivered")
		job := x.Jobs(t)[len(x.Jobs(t))-1]
		attempt := x.Begin(t, job)
		x.End(t, job, attempt, true)
		waiting := storagetest.Publish(t, store, x.Owner, "waiting")
		var many []string
		for range 3 * 100 {
			p, err := store.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{eventWithKey("many", `{}`)})
			if err != nil {
				t.Fatal(err)
			}
			many = append(many, p[0].ID)
		}
		for _, job := range x.Jobs(t) { // all except the pending one
			if job.EventID != waiting.ID {
				x.End(t, job, x.Begin(t, job), true)
			}
		}
		// The other subscription has only deliveries from before it was disabled.
		storagetest.Publish(t, store, x.Owner, "old")
		for _, job := range x.Jobs(t) {
			if job.EventType == "old" {
				x.End(t, job, x.Begin(t, job), true)
			}
		}
		no := false
		if _, err := store.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), off.ID, webhook.SubscriptionChange{IsActive: &no}); err != nil {
			t.Fatal(err)
		}
		if sub, _ := store.History.Subscription(t.Context(), x.Org(), off.ID); sub.PendingDeliveries != 1 {
			t.Fatalf("%d pending for the one that is off", sub.PendingDeliveries)
		}

		time.Sleep(50 * time.Minute)
		if _, _, err := store.History.Event(t.Context(), x.Org(), delivered.ID); err != nil {
			t.Errorf("gone after 50 minutes: %v", err)
		}
		time.Sleep(20 * time.Minute)
		for _, id := range []string{delivered.ID, many[0]} {
			if _, _, err := store.History.Event(t.Context(), x.Org(), id); fault.KindOf(err) != fault.NotFound {
				t.Errorf("still there after 70 minutes: %v", err)
			}
		}
		if _, deliveries, err := store.History.Event(t.Context(), x.Org(), waiting.ID); err != nil || len(deliveries) != 1 {
			t.Errorf("what an open subscription waits for: %v, %v", deliveries, err)
		}
		if sub, _ := store.History.Subscription(t.Context(), x.Org(), off.ID); sub.PendingDeliveries != 0 {
			t.Errorf("%d are still pending for the one that is off", sub.PendingDeliveries)
		}
		if _, err := store.History.Attempt(t.Context(), attempt); fault.KindOf(err) != fault.NotFound {
			t.Errorf("its attempt is still there: %v", err)
		}
		if p, err := store.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{eventWithKey("many", `{"another":1}`)}); err != nil || p[0].Repeated {
			t.Errorf("the idempotency key outlived its event: %+v, %v", p, err)
		}
		if log := auditLog(t, x); len(log) == 0 {
			t.Errorf("the audit log is gone already: %v", log)
		}
		time.Sleep(time.Hour)
		if log := auditLog(t, x); len(log) != 0 {
			t.Errorf("the audit log still has %d lines", len(log))
		}
	})
}

// TestRetentionOfManyDeliveries deletes events with as many deliveries as one transaction deletes, with more than twice as many, and with one.
func TestRetentionOfManyDeliveries(t *testing.T) {
	t.Parallel()
	o := hourlyRetention(t)
	synctest.Test(t, func(t *testing.T) {
		store, stop := storagetest.OpenWith(t, o)
		x := storagetest.CustomerOf(t, store)
		for _, deliveries := range []string{"1000", "2001", "1"} {
			storagetest.Publish(t, store, x.Owner, "with."+deliveries)
		}
		for _, job := range x.Jobs(t) {
			x.End(t, job, x.Begin(t, job), true)
		}
		stop()
		storagetest.Alter(t, o.Path, `
			INSERT INTO deliveries (event_id, subscription_id, state, cause, attempts, due_at)
			WITH RECURSIVE n (value) AS (SELECT 2 UNION ALL SELECT value + 1 FROM n WHERE value < 2001)
			SELECT e.id, s.id, 1, 0, 1, 0 FROM events e, subscriptions s, n WHERE e.type LIKE 'with.%' AND value <= CAST(substr(e.type, 6) AS INTEGER)`)
		storagetest.Alter(t, o.Path, `
			INSERT OR IGNORE INTO attempts (id, subscription_id, cause, outcome, response_body, duration_ms, error, attempted_at)
			SELECT id << 8 | 1, subscription_id, 0, 1, '', 1, '', 1 FROM deliveries WHERE state = 1`)
		_, stop = storagetest.OpenWith(t, o)
		time.Sleep(time.Hour + time.Minute)
		stop()
		for _, rows := range []string{"events WHERE type LIKE 'with.%'", "deliveries", "attempts"} {
			var left int
			if storagetest.Query(t, o.Path, &left, "SELECT count(*) FROM "+rows); left != 0 {
				t.Errorf("%d rows are left of %s", left, rows)
			}
		}
	})
}
