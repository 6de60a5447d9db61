package principal_test

import (
	"testing"

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
