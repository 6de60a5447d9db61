package storage_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// BenchmarkListsOfAllOrganizations measures one page of each list of all organizations, in a file with 1,000 organizations, 10,000
// subscriptions, 500,000 events and 5 million attempts. The filters match nothing, or the oldest rows, so that each search goes as
// far as it may.
func BenchmarkListsOfAllOrganizations(b *testing.B) {
	o := storagetest.Options(b, filepath.Join(b.TempDir(), "keyhook.db"))
	store, stop := storagetest.OpenWith(b, o)
	for i := range 1000 {
		owner, _ := storagetest.Organization(b, store, fmt.Sprint("customer-", i), "enterprise", access.RoleOwner)
		for range 10 {
			storagetest.Subscription(b, store, owner, "https://example.com/", "never.happens")
			storagetest.Key(b, store, owner, access.EventsRead)
		}
	}
	stop()
	storagetest.Grow(b, o.Path, storagetest.Size{History: 5_000_000})
	began := time.Now()
	store, _ = storagetest.OpenWith(b, o)
	b.Logf("start: %s", time.Since(began))
	if err := store.Write(b.Context(), func(t *storage.Tx) error {
		return t.Run("UPDATE events SET organization_id = 2 + id % 1000 WHERE type = 'grown' AND id <> ?", 0)
	}); err != nil {
		b.Fatal(err)
	}
	now := time.Now().UnixMilli()
	hour := time.Hour.Milliseconds()
	for name, f := range map[string]webhook.EventFilter{
		"events": {}, "events of a type that does not exist": {Type: "no.such"}, "events of a prefix": {Type: "no.*"}, "events by idempotency key": {IdempotencyKey: "x"},
		"events of an old period": {Until: now - 24*hour + 1000, Since: now - 30*hour}, "events without audit": {WithoutAudit: true},
	} {
		for _, organization := range []int64{access.AllOrganizations, 7} {
			b.Run(fmt.Sprintf("%s/organization=%d", name, organization), func(b *testing.B) {
				for b.Loop() {
					f.Limit = 51
					if _, err := store.History.EventPage(b.Context(), organization, f); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	for _, statuses := range [][]webhook.Status{nil, {webhook.Failing}, {webhook.Failing, webhook.Disabled}} {
		b.Run(fmt.Sprint("subscriptions ", statuses), func(b *testing.B) {
			for b.Loop() {
				if _, err := store.History.SubscriptionPage(b.Context(), access.AllOrganizations, webhook.SubscriptionFilter{Statuses: statuses, Limit: 51}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for name, f := range map[string]access.KeyFilter{"active": {Status: access.Active}, "revoked": {Status: access.Revoked}, "prefix": {Prefix: "svc_AbCdEf…"}} {
		b.Run("keys "+name, func(b *testing.B) {
			for b.Loop() {
				f.Now, f.Limit = now, 51
				if _, err := store.Directory.KeyPage(b.Context(), access.AllOrganizations, f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for name, f := range map[string]access.AuditFilter{"": {}, "of a type that does not exist": {Type: "no.such"}} {
		b.Run("audit events "+name, func(b *testing.B) {
			for b.Loop() {
				f.Limit = 51
				if _, err := store.History.AuditPage(b.Context(), access.AllOrganizations, f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("subscription counts", func(b *testing.B) {
		for b.Loop() {
			_ = store.Queue.SubscriptionCounts()
		}
	})
}

// BenchmarkEventsOfManySubscriptions measures a page of events that went to 5,000 subscriptions each. It reports how many events
// the page has.
func BenchmarkEventsOfManySubscriptions(b *testing.B) {
	store, _ := storagetest.OpenWith(b, storagetest.Options(b, filepath.Join(b.TempDir(), "keyhook.db")))
	owner, _ := storagetest.Organization(b, store, "acme", "enterprise", access.RoleOwner)
	for range 5000 {
		storagetest.Subscription(b, store, owner, "https://example.com/", "order.paid")
	}
	for range 201 {
		if _, err := store.Queue.PublishEvents(b.Context(), owner.Home.RowID, []webhook.NewEvent{{Type: "order.paid", Data: []byte("{}")}}); err != nil {
			b.Fatal(err)
		}
	}
	var page access.Page[webhook.Event]
	for b.Loop() {
		var err error
		if page, err = store.History.EventPage(b.Context(), owner.Home.RowID, webhook.EventFilter{Limit: 201}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(page.Rows)), "events")
}
