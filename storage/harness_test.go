package storage_test

import (
	"path/filepath"
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

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// fixture is a store with an organization that has one subscription to every event.
type fixture struct {
	*storage.Store
	owner access.Principal
	sub   webhook.Subscription
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	return fixtureOf(t, storagetest.Open(t))
}

func fixtureOf(t *testing.T, store *storage.Store) fixture {
	t.Helper()
	x := storagetest.CustomerOf(t, store)
	return fixture{x.Store, x.Owner, x.Sub}
}

// newOneAttemptFixture is newFixture with a policy of one attempt, and without failing subscriptions.
func newOneAttemptFixture(t *testing.T) fixture {
	t.Helper()
	store, _ := storagetest.OpenWith(t, frailOptions(t, filepath.Join(t.TempDir(), "keyhook.db")))
	return fixtureOf(t, store)
}

func frailOptions(t *testing.T, path string) storage.Options {
	t.Helper()
	o := storagetest.Options(t, path)
	o.Policy = webhook.Policy{MaxAttempts: 1, FailingAfter: 1000, DisabledAfter: 2000}
	return o
}

// customer is the fixture as other packages know it. The short names below are its methods.
func (x fixture) customer() storagetest.Customer {
	return storagetest.Customer{Store: x.Store, Owner: x.owner, Sub: x.sub}
}

func (x fixture) actor() access.Actor             { return x.customer().Actor() }
func (x fixture) org() int64                      { return x.customer().Org() }
func (x fixture) jobs(t *testing.T) []webhook.Job { t.Helper(); return x.customer().Jobs(t) }

func (x fixture) begin(t *testing.T, job webhook.Job) int64 {
	t.Helper()
	return x.customer().Begin(t, job)
}

func (x fixture) end(t *testing.T, job webhook.Job, attempt int64, succeeded bool) webhook.Settled {
	t.Helper()
	return x.customer().End(t, job, attempt, succeeded)
}

func (x fixture) publish(t *testing.T, n int, eventType string) []string {
	t.Helper()
	return x.customer().Publish(t, n, eventType)
}

func (x fixture) missed(t *testing.T, n int, eventType string) []string {
	t.Helper()
	return x.customer().Missed(t, n, eventType)
}

func (x fixture) pending(t *testing.T) int64          { t.Helper(); return x.customer().Pending(t) }
func (x fixture) endAll(t *testing.T, succeeded bool) { t.Helper(); x.customer().EndAll(t, succeeded) }
func (x fixture) fail(t *testing.T, n int)            { t.Helper(); x.customer().Fail(t, n) }
func (x fixture) setActive(t *testing.T, on bool)     { t.Helper(); x.customer().SetActive(t, on) }
func (x fixture) setWebhooks(t *testing.T, on bool)   { t.Helper(); x.customer().SetWebhooks(t, on) }

func (x fixture) replays(t *testing.T, r webhook.Replay, want int64) {
	t.Helper()
	x.customer().Replays(t, r, want)
}

func (x fixture) outage(t *testing.T) []string          { t.Helper(); return x.customer().Outage(t) }
func (x fixture) waitAgain(t *testing.T, lost []string) { t.Helper(); x.customer().WaitAgain(t, lost) }
