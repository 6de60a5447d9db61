package sqlite_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/sqlite"
)

// recorded makes each hook record its name.
func recorded(o sqlite.Options, calls *[]string) sqlite.Options {
	call := func(name string) error { *calls = append(*calls, name); return nil }
	o.Prepare = func(_ string, s sqlite.Start) error {
		if s.Empty {
			return call("prepare an empty file")
		}
		return call("prepare")
	}
	o.Recognize = func(context.Context, string, *sqlx.DB) error { return call("recognize") }
	o.Create = func(*sqlite.Tx) error { return call("create") }
	o.Made = func() error { return call("made") }
	o.Begin = func(*sqlite.Tx) error { return call("begin") }
	o.Flush = func(*sqlite.Tx) error { return call("flush") }
	o.RolledBack = func() { _ = call("rolled back") }
	o.Committed = func(int, time.Duration) { _ = call("committed") }
	return o
}

func TestHooks(t *testing.T) {
	t.Parallel()

	t.Run("are called in order, at the first start and at a later one", func(t *testing.T) {
		t.Parallel()
		var calls []string
		o := recorded(options(t), &calls)
		for _, want := range [][]string{
			{"prepare an empty file", "begin", "create", "flush", "committed", "made"},
			{"prepare", "recognize", "made"},
		} {
			calls = nil
			file, err := sqlite.Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(calls, want) || file.Created() != (want[0] != "prepare") {
				t.Errorf("called %q", calls)
			}
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
		}
		calls = nil
		if state, err := sqlite.Examine(t.Context(), o); state != sqlite.Closed || err != nil || !slices.Equal(calls, []string{"prepare", "recognize"}) {
			t.Errorf("state %v, error %v, called %q", state, err, calls)
		}
	})

	t.Run("that fail roll the transaction back", func(t *testing.T) {
		t.Parallel()
		var calls []string
		o := recorded(options(t), &calls)
		no, refuse := errors.New("no"), false
		o.Flush = func(*sqlite.Tx) error {
			if refuse {
				return no
			}
			return nil
		}
		file := open(t, o)
		refuse, calls = true, nil
		if err := file.Alone(note("lost")); !errors.Is(err, no) || !slices.Equal(calls, []string{"begin", "rolled back"}) {
			t.Errorf("error %v, called %q", err, calls)
		}
		refuse = false
		if err := file.Alone(note("lost")); err != nil {
			t.Errorf("it was not rolled back: %v", err)
		}
	})

	t.Run("that refuse a database leave it as it was, and free", func(t *testing.T) {
		t.Parallel()
		o := options(t)
		_, stop := start(t, o)
		stop()
		before := content(t, o.Path)
		no := errors.New("no")
		refusing := o
		refusing.Recognize = func(context.Context, string, *sqlx.DB) error { return no }
		if _, err := sqlite.Open(t.Context(), refusing); !errors.Is(err, no) {
			t.Errorf("error %v", err)
		}
		if _, err := sqlite.Examine(t.Context(), refusing); !errors.Is(err, no) {
			t.Errorf("Examine: error %v", err)
		}
		if content(t, o.Path) != before {
			t.Error("the file has changed")
		}
		open(t, o)
	})
}

// content returns the bytes of a file.
func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
