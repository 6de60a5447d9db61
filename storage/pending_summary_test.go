package storage_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// pendingIn counts the deliveries and the subscriptions of a summary.
func pendingIn(sum webhook.PendingSummary) (deliveries, subscriptions int64) {
	for _, b := range sum.Blocked {
		deliveries += b.Deliveries
		subscriptions += b.Subscriptions
	}
	return deliveries, subscriptions
}

// TestPendingSummary has more subscriptions than one read takes.
func TestPendingSummary(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, storagetest.Options(t, path))
		owner, _ := storagetest.Organization(t, store, "acme", "enterprise", access.RoleOwner)
		const subscriptions = 1100
		for range subscriptions {
			storagetest.Subscription(t, store, owner, "https://example.com/", "user.created")
		}
		summary := func(organization, wantDeliveries, wantSubscriptions int64) {
			t.Helper()
			sum := must[webhook.PendingSummary](t)(store.Survey.PendingSummary(t.Context(), organization))
			if d, s := pendingIn(sum); d != wantDeliveries || s != wantSubscriptions || sum.Statuses.Healthy != subscriptions {
				t.Errorf("%d deliveries of %d subscriptions, %+v; want %d of %d", d, s, sum.Statuses, wantDeliveries, wantSubscriptions)
			}
		}
		summary(access.AllOrganizations, 0, 0)
		storagetest.Publish(t, store, owner, "user.created")
		summary(owner.Organization.RowID, subscriptions, subscriptions)
		summary(access.AllOrganizations, subscriptions, subscriptions)
	})
}
