package encryption_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/keyhook/keyhook/storage/encryption"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// TestKeyOfNewDatabase makes the key of a new database, as a first start does that is interrupted, and is repeated.
func TestKeyOfNewDatabase(t *testing.T) {
	t.Parallel()
	source := encryption.Source{Path: filepath.Join(t.TempDir(), "keyhook.db")}
	start := func(s sqlite.Start) encryption.Keys {
		t.Helper()
		keys, err := source.FindOrCreate(s)
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	first := start(sqlite.Start{Empty: true})
	if _, err := os.Stat(source.Path + ".key"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the key has its final name before the database exists: %v", err)
	}
	again := start(sqlite.Start{}) // the first start ended after it had made the database, and before Keep
	if first.First().ID() != again.First().ID() {
		t.Error("the repeated start has another key")
	}
	if err := again.Keep(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(source.Path + ".key")
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key file is %v, %v", info, err)
	}
	if later := start(sqlite.Start{}); later.First().ID() != first.First().ID() {
		t.Error("a later start has another key")
	}
	if _, err := source.FindOrCreate(sqlite.Start{Empty: true}); !errors.Is(err, encryption.ErrLost) {
		t.Errorf("a key file without its database: %v", err)
	}
}
