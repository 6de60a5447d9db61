package queue_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestHealthNewsLimit makes a subscription fail again and again. 4,000 others of its organization are told each time.
func TestHealthNewsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
		o.Policy = webhook.Policy{MaxAttempts: 1, FailingAfter: 1, DisabledAfter: 1000}
		store, stop := storagetest.OpenWith(t, o)
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		large := fixtureOf(t, store)
		small := large
		small.Owner, _ = storagetest.Organization(t, store, "initech", "growth", access.RoleOwner)
		small.Sub, _ = storagetest.Subscription(t, store, small.Owner, "https://example.com/hook")
		told := map[string]webhook.Subscription{} // by organization
		for _, x := range []fixture{large, small} {
			sub, _, err := x.Subscriptions.CreateSubscription(t.Context(), x.Actor(), x.Org(), webhook.SubscriptionChange{
				URL: new("https://other.example/"), EventTypes: &webhook.Types{access.SubscriptionFailing}, AuditEvents: new(true),
			})
			if err != nil {
				t.Fatal(err)
			}
			told[x.Owner.Organization.ID] = sub
		}
		stop()
		first := told[large.Owner.Organization.ID].RowID
		storagetest.Alter(t, o.Path, fmt.Sprintf(`
			WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 3999)
			INSERT INTO subscriptions (id, public_id, organization_id, url, url_at, event_types, audit_events, description, status, consecutive_failures,
				last_error, epoch, failing_since, probe_at, paused, secret, previous_until, birth, created_at, updated_at, ordered)
			SELECT 1000 + value, public_id || value, organization_id, url, url_at, event_types, 1, '', status, 0, '', 1, 0, 0, 0, secret, 0, birth, 0, 0, 0
			FROM subscriptions, n WHERE id = %d`, first))
		storagetest.Alter(t, o.Path, fmt.Sprintf(`
			INSERT INTO subscription_patterns SELECT organization_id, '%s', id FROM subscriptions WHERE id > 1000`, access.SubscriptionFailing))
		store, _ = storagetest.OpenWith(t, o)
		large.Store, small.Store = store, store

		// failAgain makes a subscription failing, and then healthy again. It returns how many events about that the other one has.
		failAgain := func(x fixture, other webhook.Subscription) int64 {
			t.Helper()
			for _, succeeded := range []bool{false, true} {
				x.Publish(t, 1, "order.paid")
				x.EndAll(t, succeeded)
			}
			return must[webhook.Subscription](t)(x.History.Subscription(t.Context(), x.Org(), other.ID)).PendingDeliveries
		}
		for i, want := range []int64{1, 2, 2, 2} {
			if got := failAgain(large, told[large.Owner.Organization.ID]); got != want {
				t.Errorf("after %d failures, %d events are delivered, want %d", i+1, got, want)
			}
		}
		if got := failAgain(small, told[small.Owner.Organization.ID]); got != 1 {
			t.Errorf("another organization gets %d events, want 1", got)
		}
		time.Sleep(time.Minute)
		if got := failAgain(large, told[large.Owner.Organization.ID]); got != 3 {
			t.Errorf("a minute later, %d events are delivered, want 3", got)
		}
	})
}
