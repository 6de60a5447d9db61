package storage_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"runtime"
	"testing"
	"weak"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// still opens a store that nobody runs.
func still(t *testing.T) *storage.Store {
	t.Helper()
	store, err := storage.Open(t.Context(), storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// note is a job that can be done once.
func note(name string) func(*storage.Tx) error {
	return func(t *storage.Tx) error { return t.Exec("INSERT INTO instance (name, value) VALUES (?, x'00')", name) }
}

func TestJobsThatShareATransaction(t *testing.T) {
	t.Parallel()
	unreadable := func(t *storage.Tx) error { return t.FailRead() }
	panics := func(*storage.Tx) error { panic("a defect") }
	for name, fails := range map[string]func(*storage.Tx) error{
		"with one whose read fails":  unreadable,
		"with one that panics":       panics,
		"with one that says no":      func(*storage.Tx) error { return errors.New("no") },
		"with one that writes twice": func(t *storage.Tx) error { return errors.Join(note("twice")(t), note("twice")(t)) },
	} {
		t.Run(name+" are done once, and it alone fails", func(t *testing.T) {
			t.Parallel()
			errs := still(t).Together(note("before"), fails, note("after"))
			if errs[0] != nil || errs[1] == nil || errs[2] != nil {
				t.Errorf("errors %v", errs)
			}
		})
	}
}

func TestWhatACommitHasToldIsLetGo(t *testing.T) {
	t.Parallel()
	store := still(t)
	var body weak.Pointer[[]byte]
	store.Together(func(t *storage.Tx) error {
		large := new(bytes.Repeat([]byte{1}, 1<<20))
		body = weak.Make(large)
		t.OnCommit(func() { (*large)[0]++ })
		return note("large")(t)
	})
	runtime.GC()
	if body.Value() != nil {
		t.Error("the body of an event is held after its commit")
	}
	runtime.KeepAlive(store)
}
