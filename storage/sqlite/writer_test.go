package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/sqlite"
)

// options name a database of one table.
func options(t *testing.T) sqlite.Options {
	return sqlite.Options{
		Path: filepath.Join(t.TempDir(), "test.db"), Schema: "CREATE TABLE notes (name TEXT PRIMARY KEY) STRICT;",
		Synchronous: sqlite.Normal, Logger: slog.New(slog.DiscardHandler), Hooks: noHooks(),
	}
}

// noHooks do nothing.
func noHooks() sqlite.Hooks {
	nothing := func(*sqlite.Tx) error { return nil }
	return sqlite.Hooks{
		Prepare:   func(string, sqlite.Start) error { return nil },
		Recognize: func(context.Context, string, *sqlx.DB) error { return nil },
		Create:    nothing, Begin: nothing, Flush: nothing,
		Made:       func() error { return nil },
		RolledBack: func() {}, Undone: func() {},
		Committed: func(int, time.Duration) {},
		Probe:     func(*sqlite.Tx, int) error { return nil },
	}
}

// open opens a file that nobody runs.
func open(t *testing.T, o sqlite.Options) *sqlite.File {
	t.Helper()
	file, err := sqlite.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	return file
}

// start opens a file and runs it.
func start(t *testing.T, o sqlite.Options) (file *sqlite.File, stop func()) {
	t.Helper()
	file, err := sqlite.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = file.Run(ctx, func(ctx context.Context) { <-ctx.Done() }, noReads) })
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return file, stop
}

// note is a write that can be done once.
func note(name string) func(*sqlite.Tx) error {
	return func(t *sqlite.Tx) error {
		return t.Exec("INSERT INTO notes (name) VALUES (?)", name)
	}
}

func TestWritesThatShareATransaction(t *testing.T) {
	t.Parallel()
	unreadable := func(t *sqlite.Tx) error { return t.FailRead() }
	panics := func(*sqlite.Tx) error { panic("a defect") }
	for name, fails := range map[string]func(*sqlite.Tx) error{
		"with one whose read fails":  unreadable,
		"with one that panics":       panics,
		"with one that says no":      func(*sqlite.Tx) error { return errors.New("no") },
		"with one that writes twice": func(t *sqlite.Tx) error { return errors.Join(note("twice")(t), note("twice")(t)) },
	} {
		t.Run(name+" are done once, and it alone fails", func(t *testing.T) {
			t.Parallel()
			errs := open(t, options(t)).Together(note("before"), fails, note("after"))
			if errs[0] != nil || errs[1] == nil || errs[2] != nil {
				t.Errorf("errors %v", errs)
			}
		})
	}
}

func TestWhatACommitHasToldIsLetGo(t *testing.T) {
	t.Parallel()
	file := open(t, options(t))
	var body weak.Pointer[[]byte]
	file.Together(func(t *sqlite.Tx) error {
		large := new(bytes.Repeat([]byte{1}, 1<<20))
		body = weak.Make(large)
		t.OnCommit(func() { (*large)[0]++ })
		return note("large")(t)
	})
	runtime.GC()
	if body.Value() != nil {
		t.Error("the body of an event is held after its commit")
	}
	runtime.KeepAlive(file)
}

func TestAWriteDoesNotPayForTheDelayedRowsOfAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		spent := open(t, options(t)).Spent(func(t *sqlite.Tx) error {
			t.Delay(5, func() error { time.Sleep(time.Second); return nil })
			return nil
		}, note("own"))
		if spent[0] != 5 || spent[1] != 1 {
			t.Errorf("the writes cost %d and %d rows, want 5 and 1", spent[0], spent[1])
		}
	})
}

// noReads is the drain of a file that nobody reads for long.
func noReads(context.Context) (resume func(), drained bool) { return func() {}, true }
