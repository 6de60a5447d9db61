package storage_test

import (
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/search"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestSearchFindsNothingOfOthers searches for what an organization has, as its owner and as the owners of an older and of a newer
// organization.
func TestSearchFindsNothingOfOthers(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	older, _ := storagetest.Organization(t, store, "older", "growth", access.RoleOwner)
	x := fixtureOf(t, store)
	newer, _ := storagetest.Organization(t, store, "newer", "growth", access.RoleOwner)
	external := "shop-1"
	if _, err := store.Subscriptions.UpdateSubscription(t.Context(), x.actor(), x.org(), x.sub.ID, webhook.SubscriptionChange{ExternalID: &external}); err != nil {
		t.Fatal(err)
	}
	event := must[[]webhook.Published](t)(store.Queue.PublishEvents(t.Context(), x.org(), []webhook.NewEvent{
		{Type: "user.created", Data: []byte(`{}`), IdempotencyKey: "order-1001"},
	}))[0]
	key, _ := storagetest.Key(t, store, x.owner, access.EventsRead)
	x.begin(t, x.jobs(t)[0])
	for what, text := range map[string]string{
		"an attempt in progress, by its id":      x.all(t)[0].ID,
		"a subscription, by its external id":     external,
		"a subscription, by its id":              x.sub.ID,
		"a subscription, by the host of its URL": "example.com",
		"an event, by its id":                    event.ID,
		"an event, by its idempotency key":       "order-1001",
		"an audit event, by its id":              must[[]access.AuditEvent](t)(store.AuditEvents(t.Context(), x.org(), access.AuditFilter{Limit: 1}))[0].ID,
		"a key, by its id":                       key.ID,
		"a key, by its prefix":                   strings.TrimSuffix(key.KeyPrefix, "…"),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			find := func(by access.Principal) []search.Found {
				t.Helper()
				return must[[]search.Found](t)(store.History.Search(t.Context(), by, text))
			}
			if found := find(x.owner); len(found) != 1 {
				t.Errorf("its owner finds %+v", found)
			}
			if found := find(older); len(found) != 0 {
				t.Errorf("the owner of an older organization finds %+v", found)
			}
			if found := find(newer); len(found) != 0 {
				t.Errorf("the owner of a newer organization finds %+v", found)
			}
		})
	}
}
