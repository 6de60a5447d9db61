package search_test

import (
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/search"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestSearchFindsNothingOfOthers searches for what an organization has, as its owner and as the owners of an older and of a newer
// organization. An operator who acts in the organization finds all of it; one who acts elsewhere finds no description.
func TestSearchFindsNothingOfOthers(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	older, _ := storagetest.Organization(t, store, "older", "growth", access.RoleOwner)
	x := storagetest.CustomerOf(t, store)
	newer, _ := storagetest.Organization(t, store, "newer", "growth", access.RoleOwner)
	external, description := "shop-1", "Parcels to the warehouse Übersee"
	if _, err := store.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.SubscriptionChange{ExternalID: &external, Description: &description}); err != nil {
		t.Fatal(err)
	}
	event := storagetest.Must[[]webhook.Published](t)(store.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{
		{Type: "user.created", Data: []byte(`{}`), IdempotencyKey: "order-1001"},
	}))[0]
	key, _ := storagetest.Key(t, store, x.Owner, access.EventsRead)
	x.Begin(t, x.Jobs(t)[0])
	sending := storagetest.Must[webhook.AttemptPage](t)(store.History.AttemptPage(t.Context(), x.Org(), x.Sub.ID, webhook.AttemptFilter{Limit: 1})).Attempts[0]
	audited := storagetest.Must[access.Page[access.AuditEvent]](t)(store.History.AuditPage(t.Context(), x.Org(), access.AuditFilter{Limit: 1})).Rows[0]
	for what, text := range map[string]string{
		"an attempt in progress, by its id":      sending.ID,
		"a subscription, by its external id":     external,
		"a subscription, by its id":              x.Sub.ID,
		"a subscription, by the host of its URL": "example.com",
		"a subscription, by its description":     "the WAREhouse Ü",
		"an event, by its id":                    event.ID,
		"an event, by its idempotency key":       "order-1001",
		"an audit event, by its id":              audited.ID,
		"a key, by its id":                       key.ID,
		"a key, by its prefix":                   strings.TrimSuffix(key.KeyPrefix, "…"),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			find := func(by access.Principal) []search.Found {
				t.Helper()
				return storagetest.Must[[]search.Found](t)(store.History.Search(t.Context(), by, text))
			}
			if found := find(x.Owner); len(found) != 1 {
				t.Errorf("its owner finds %+v", found)
			}
			operator := storagetest.Operator(t, store)
			if found := find(operator); len(found) != 1 && text != "the WAREhouse Ü" || len(found) != 0 && text == "the WAREhouse Ü" {
				t.Errorf("an operator elsewhere finds %+v", found)
			}
			operator.Organization = x.Owner.Organization
			if found := find(operator); len(found) != 1 {
				t.Errorf("an operator who acts there finds %+v", found)
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
