package storage_test

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestCheckBesideOtherWork(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	_, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
	stop()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	var page int64
	if err := db.QueryRow("SELECT rootpage FROM sqlite_schema WHERE name = 'attempts'").Scan(&page); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
	if err := store.CheckLater(t.Context()); err != nil || unready(t, store) != nil {
		t.Fatalf("a sound file: error %v, then %v", err, unready(t, store))
	}
	stop()

	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt(bytes.Repeat([]byte{0xff}, 4096), (page-1)*4096); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	store, _ = storagetest.OpenWith(t, storagetest.Options(t, path))
	if err := store.CheckLater(t.Context()); err != nil || unready(t, store) == nil || !store.Degraded()["damaged"] {
		t.Errorf("a damaged file: error %v, then %v", err, unready(t, store))
	}
	owner := storagetest.Operator(t, store) // reading goes on
	_, err = store.PublishEvents(t.Context(), owner.Organization.RowID, []webhook.NewEvent{{Type: "a", Data: []byte("{}")}})
	if fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a write into a damaged file: %v", err)
	}
}

// unready is why the store cannot be written; nil where it can.
func unready(t *testing.T, store interface {
	Ready(ctx context.Context) (string, error)
}) error {
	t.Helper()
	_, err := store.Ready(t.Context())
	return err
}
