package storage_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// crowded returns a store with 5,000 organizations, each with 100 subscriptions, 50 API keys and 10 users, and with the counts of a
// day for one organization. One million deliveries are pending for 20,000 of the subscriptions.
func crowded(b *testing.B) (*storage.Store, access.Principal, access.Principal) {
	o := storagetest.Options(b, filepath.Join(b.TempDir(), "keyhook.db"))
	store, stop := storagetest.OpenWith(b, o)
	owner, _ := storagetest.Organization(b, store, "acme", "enterprise", access.RoleOwner)
	storagetest.Subscription(b, store, owner, "https://hooks.example.com/", "never.happens")
	storagetest.Key(b, store, owner, access.EventsRead)
	storagetest.Publish(b, store, owner, "order.paid")
	for _, statement := range []string{
		`INSERT INTO organizations (public_id, name, plan_id, external_id, created_at, updated_at)
		 SELECT 'org_' || value, 'customer ' || value, 4, 'customer-' || value, 1, 1 FROM (WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 5000) SELECT value FROM n)`,
		`INSERT INTO users (public_id, email, name, external_id, is_active, built_in, created_at, updated_at)
		 SELECT 'usr_' || value, 'user-' || value || '@example.com', 'user ' || value, 'user-' || value, 1, 0, 1, 1 FROM (WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 50000) SELECT value FROM n)`,
		`INSERT INTO subscriptions (public_id, organization_id, url, url_at, event_types, audit_events, description, status, consecutive_failures, last_error, epoch, failing_since, probe_at, paused, ordered, secret, previous_until, birth, created_at, updated_at, external_id)
		 SELECT 'sub_' || value, 3 + value % 5000, 'https://hooks.customer-' || value || '.example.com/', 1, 'never.happens', 0, '', 'healthy', 0, '', 1, 0, 0, 0, 0, x'00', 0, 1, 1, 1, 'erp' || (value / 5000)
		 FROM (WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 500000) SELECT value FROM n)`,
		`INSERT INTO api_keys (public_id, organization_id, user_id, name, scope, digest, key_prefix, window_id, created_at, metadata)
		 SELECT 'key_' || value, 3 + value % 5000, 2, 'ci ' || value, '', CAST(substr('00000000000000000000000000000000' || value, -32) AS BLOB), 'svc_' || substr('000000' || value, -6) || '…', value, 1, '{}'
		 FROM (WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 250000) SELECT value FROM n)`,
		`INSERT INTO deliveries (event_id, subscription_id, state, cause, attempts, due_at)
		 SELECT (SELECT max(id) FROM events), 2 + value % 20000, 0, 0, 0, 9000000000000 + value FROM (WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 1000000) SELECT value FROM n)`,
		`INSERT INTO attempt_minutes SELECT organization, subscription, 1440 * 20000 + minute, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1
		 FROM (WITH RECURSIVE m (minute) AS (SELECT 0 UNION ALL SELECT minute + 1 FROM m WHERE minute < 11519) SELECT minute FROM m),
		      (SELECT 0 AS organization, 0 AS subscription UNION ALL SELECT 4, id FROM subscriptions WHERE organization_id = 4)`,
	} {
		if err := store.Write(b.Context(), func(t *storage.Tx) error { return t.Run(statement) }); err != nil {
			b.Fatal(err)
		}
	}
	stop()
	store, _ = storagetest.OpenWith(b, o)
	operator := storagetest.Operator(b, store)
	return store, operator, owner
}

// BenchmarkConsole measures what a page of the console reads, in a file with many customers.
func BenchmarkConsole(b *testing.B) {
	store, operator, owner := crowded(b)
	tenant := owner
	tenant.Organization.RowID = 4
	for text, what := range map[string]string{
		"customer 49": "name", "zzz": "nothing", "h": "letter", "hooks.customer-4": "host", "erp7": "external id of many", "svc_000077": "prefix", "user-499": "e-mail",
		"order-1": "idempotency key", strings.Repeat("x", 255): "long",
	} {
		b.Run("search/"+what, func(b *testing.B) {
			for b.Loop() {
				if _, err := store.History.Search(b.Context(), operator, text); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("search in an organization/"+what, func(b *testing.B) {
			for b.Loop() {
				if _, err := store.History.Search(b.Context(), tenant, text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("backlog", func(b *testing.B) {
		for b.Loop() {
			if _, err := store.Survey.PendingSummary(b.Context(), 4); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("backlog of all, not shared", func(b *testing.B) {
		for b.Loop() {
			store.ForgetShared()
			if _, err := store.Survey.PendingSummary(b.Context(), access.AllOrganizations); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("stats of all for a day", func(b *testing.B) {
		for b.Loop() {
			if _, err := store.History.Series(b.Context(), access.AllOrganizations, "", 1440*20000, 1440*20001, 5); err != nil {
				b.Fatal(err)
			}
		}
	})
}
