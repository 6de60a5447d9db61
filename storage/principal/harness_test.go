package principal_test

import (
	"testing"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
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

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
