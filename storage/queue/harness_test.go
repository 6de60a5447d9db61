package queue_test

import (
	"path/filepath"
	"testing"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// platform is a store of its own with its operator.
type platform struct{ storagetest.Platform }

func newPlatform(t *testing.T) platform {
	t.Helper()
	return platform{storagetest.NewPlatform(t)}
}

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return storagetest.Must[T](t)
}

// fixture is a store with an organization that has one subscription to every event.
type fixture struct{ storagetest.Customer }

func newFixture(t *testing.T) fixture {
	t.Helper()
	return fixtureOf(t, storagetest.Open(t))
}

func fixtureOf(t *testing.T, store *storage.Store) fixture {
	t.Helper()
	return fixture{storagetest.CustomerOf(t, store)}
}

// newOneAttemptFixture is newFixture with the policy of storagetest.FrailOptions.
func newOneAttemptFixture(t *testing.T) fixture {
	t.Helper()
	store, _ := storagetest.OpenWith(t, storagetest.FrailOptions(t, filepath.Join(t.TempDir(), "keyhook.db")))
	return fixtureOf(t, store)
}
