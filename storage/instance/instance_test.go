package instance_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/instance"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// within runs a function in a transaction, and returns its error.
func within(t *testing.T, store *storage.Store, do func(*sqlite.Tx) error) error {
	t.Helper()
	return store.File.Write(t.Context(), sqlite.Work{}, do)
}

func TestValues(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	expect := func(name string, want []byte) {
		t.Helper()
		storagetest.Must[any](t)(nil, within(t, store, func(tx *sqlite.Tx) error {
			got, err := instance.Value(tx, name)
			if !bytes.Equal(got, want) || (got == nil) != (want == nil) {
				t.Errorf("the value of %s is %v, want %v", name, got, want)
			}
			return err
		}))
	}
	set := func(name string, value []byte) {
		t.Helper()
		storagetest.Must[any](t)(nil, within(t, store, func(tx *sqlite.Tx) error { return instance.Set(tx, name, value) }))
	}
	expect("colour", nil)
	set("colour", []byte("blue\x00\xff"))
	set("Colour", []byte("another"))
	expect("colour", []byte("blue\x00\xff"))
	set("colour", []byte("red"))
	expect("colour", []byte("red"))
	expect("Colour", []byte("another"))
	set("colour", []byte{})
	expect("colour", nil)
}

func TestErrorsNameTheValue(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	if err := within(t, store, func(tx *sqlite.Tx) error { return instance.Set(tx, "colour", nil) }); err == nil || !strings.Contains(err.Error(), "write colour: ") {
		t.Errorf("a value that is not allowed: %v", err)
	}
	storagetest.Exec(t, store, "ALTER TABLE instance RENAME TO moved")
	if err := within(t, store, func(tx *sqlite.Tx) error {
		_, err := instance.Value(tx, "colour")
		return err
	}); err == nil || !strings.Contains(err.Error(), "read colour: ") {
		t.Errorf("a table that cannot be read: %v", err)
	}
	storagetest.Exec(t, store, "ALTER TABLE moved RENAME TO instance")
}
