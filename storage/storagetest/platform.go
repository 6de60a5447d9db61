package storagetest

import (
	"testing"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Platform is a store with its operator.
type Platform struct {
	*storage.Store
	Operator access.Principal
	By       access.Actor // the operator, at an address and in a request
}

// PlatformOf returns an open store with its operator.
func PlatformOf(tb testing.TB, store *storage.Store) Platform {
	tb.Helper()
	operator := Operator(tb, store)
	return Platform{store, operator, operator.Actor("192.0.2.1", "req")}
}

// NewPlatform is PlatformOf a new store, which runs until the test ends.
func NewPlatform(tb testing.TB) Platform {
	tb.Helper()
	return PlatformOf(tb, Open(tb))
}

// Create asks for a key in the name of by.
func (x Platform) Create(tb testing.TB, by access.Principal, permissions ...string) (access.Key, error) {
	tb.Helper()
	return x.Directory.CreateKey(tb.Context(), by, by.Actor("192.0.2.1", "req"), access.NewKey{
		Credential: access.Mint("svc"), Name: "ci", Scope: access.NewScope(permissions...),
	})
}

// Subscribe asks for a subscription in the name of by.
func (x Platform) Subscribe(tb testing.TB, by access.Principal) (webhook.Subscription, error) {
	tb.Helper()
	sub, _, err := x.Subscriptions.CreateSubscription(tb.Context(), by.Actor("", ""), by.Organization.RowID,
		webhook.SubscriptionChange{URL: new("https://example.com/"), EventTypes: &webhook.Types{"a"}})
	return sub, err
}

// Must returns a function that takes the results of a call: it returns the value, and ends the test if there is an error.
func Must[T any](tb testing.TB) func(T, error) T {
	return func(v T, err error) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

// Refuse makes every write of a store fail that matches, such as "INSERT ON deliveries" when "NEW.id > 1", until allow is called.
func Refuse(tb testing.TB, store *storage.Store, statement, when string) (allow func()) {
	tb.Helper()
	Exec(tb, store, "CREATE TRIGGER refusal BEFORE "+statement+" WHEN "+when+" BEGIN SELECT RAISE(ABORT, 'refused by the test'); END")
	return func() {
		tb.Helper()
		Exec(tb, store, "DROP TRIGGER refusal")
	}
}
