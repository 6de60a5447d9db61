package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/sqlite"
)

func TestALongLogEndsTheCheckOfATable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := options(t)
		o.LogBounds = sqlite.LogBounds{Restart: 64 << 10, Warn: 1 << 20}
		file, _ := start(t, o)
		checking, interrupt := context.WithCancel(t.Context())
		file.WhileChecking(interrupt)
		end := read(t, o.Path)
		if warning, err := file.Ready(t.Context()); warning != "" || err != nil || checking.Err() != nil {
			t.Errorf("it warns too early: %q, error %v, check of a table %v", warning, err, checking.Err())
		}
		for i := range 60 {
			if err := file.Write(t.Context(), sqlite.Work{}, note(fmt.Sprint(i, strings.Repeat("a", 20_000)))); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		if warning, err := file.Ready(t.Context()); warning == "" || err != nil {
			t.Errorf("it warns %q, error %v", warning, err)
		}
		if checking.Err() == nil {
			t.Error("the check of a table goes on")
		}
		end()
		time.Sleep(10 * time.Second) // without any write
		if warning, err := file.Ready(t.Context()); warning != "" || err != nil {
			t.Errorf("it still warns %q, error %v", warning, err)
		}
	})
}

// read begins a read of a database that lasts until end is called.
func read(t *testing.T, path string) (end func()) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRow("SELECT count(*) FROM notes").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = tx.Rollback()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
