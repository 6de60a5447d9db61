package storage_test

import (
	"testing"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// platform is a store of its own with its operator.
type platform struct {
	*storage.Store
	operator access.Principal
	by       access.Actor // the operator
}

func newPlatform(t *testing.T) platform {
	t.Helper()
	store := storagetest.Open(t)
	operator := storagetest.Operator(t, store)
	return platform{store, operator, operator.Actor("192.0.2.1", "req")}
}

// create asks for a key in the name of by.
func (x platform) create(t *testing.T, by access.Principal, permissions ...string) (access.Key, error) {
	t.Helper()
	return x.Directory.CreateKey(t.Context(), by, by.Actor("192.0.2.1", "req"), access.NewKey{
		Credential: access.Mint("svc"), Name: "ci", Scope: access.NewScope(permissions...),
	})
}

// subscribe asks for a subscription in the name of by.
func (x platform) subscribe(t *testing.T, by access.Principal) (webhook.Subscription, error) {
	t.Helper()
	sub, _, err := x.Subscriptions.CreateSubscription(t.Context(), by.Actor("", ""), by.Organization.RowID,
		webhook.SubscriptionChange{URL: new("https://example.com/"), EventTypes: &webhook.Types{"a"}})
	return sub, err
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
