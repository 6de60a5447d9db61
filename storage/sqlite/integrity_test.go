package sqlite_test

import (
	"bytes"
	"database/sql"
	"os"
	"testing"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

func TestCheckBesideOtherWork(t *testing.T) {
	t.Parallel()
	o := options(t)
	_, stop := start(t, o)
	stop()
	db, err := sql.Open("sqlite", "file:"+o.Path)
	if err != nil {
		t.Fatal(err)
	}
	var page int64
	if err := db.QueryRow("SELECT rootpage FROM sqlite_schema WHERE name = 'notes'").Scan(&page); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	file, stop := start(t, o)
	if err := file.CheckLater(t.Context()); err != nil || unready(t, file) != nil {
		t.Fatalf("a sound file: error %v, then %v", err, unready(t, file))
	}
	stop()
	damage(t, o.Path, page)
	file, _ = start(t, o)
	if err := file.CheckLater(t.Context()); err != nil || unready(t, file) == nil || !file.Degraded()["damaged"] {
		t.Errorf("a damaged file: error %v, then %v", err, unready(t, file))
	}
	pool, err := file.Pool(t.Context(), 1, 1e9) // reads still work
	if err != nil {
		t.Fatal(err)
	}
	var one int
	if err := pool.Get(t.Context(), &one, "SELECT 1"); err != nil {
		t.Error(err)
	}
	if err := file.Write(t.Context(), sqlite.Work{}, note("more")); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a write into a damaged file: %v", err)
	}
}

// damage overwrites a page of a database.
func damage(t *testing.T, path string, page int64) {
	t.Helper()
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
}

// unready returns why the file cannot be written, or nil.
func unready(t *testing.T, file *sqlite.File) error {
	t.Helper()
	_, err := file.Ready(t.Context())
	return err
}
