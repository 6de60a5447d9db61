package sqlite_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// failingFile is a file whose hooks can fail. It notes what the hooks are told.
type failingFile struct {
	*sqlite.File
	begin, beforeCommit error // of the next transactions
	rolledBack, undone  int
	committed           int // writes
	log                 bytes.Buffer
}

// openFailing opens a file that nobody runs. A row of links that refers to no note breaks a constraint at COMMIT.
func openFailing(t *testing.T) *failingFile {
	t.Helper()
	f := &failingFile{}
	o := options(t)
	o.Schema += " CREATE TABLE links (name TEXT REFERENCES notes (name) DEFERRABLE INITIALLY DEFERRED) STRICT;"
	o.Begin = func(*sqlite.Tx) error { return f.begin }
	o.Flush = func(*sqlite.Tx) error { return f.beforeCommit }
	o.RolledBack, o.Undone = func() { f.rolledBack++ }, func() { f.undone++ }
	o.Logger = slog.New(slog.NewTextHandler(&f.log, nil))
	o.Committed = func(writes int, _ time.Duration) { f.committed += writes }
	f.File = open(t, o)
	f.rolledBack, f.committed = 0, 0
	return f
}

// notes returns the names of all notes, as a reader sees them.
func (f *failingFile) notes(t *testing.T) (names []string) {
	t.Helper()
	db := sqlx.MustOpen("sqlite", "file:"+f.Path())
	defer db.Close()
	if err := db.Select(&names, "SELECT name FROM notes ORDER BY name"); err != nil {
		t.Fatal(err)
	}
	return names
}

// brokenLink breaks a constraint that SQLite checks at COMMIT. SQLite leaves the transaction open then.
func brokenLink(t *sqlite.Tx) error {
	return t.Exec("INSERT INTO links (name) VALUES ('nobody')")
}

var errHook = errors.New("the hook fails")

func TestEveryFailureOfATransactionRollsBack(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(f *failingFile) []error{
		"the hook at the beginning fails": func(f *failingFile) []error {
			f.begin = errHook
			return f.Together(note("undone"))
		},
		"the hook before the commit fails": func(f *failingFile) []error {
			f.beforeCommit = errHook
			return f.Together(note("undone"))
		},
		"the commit fails": func(f *failingFile) []error { return f.Together(brokenLink) },
		"a write fails after it wrote": func(f *failingFile) []error {
			return f.TogetherWhole(func(t *sqlite.Tx) error { return errors.Join(note("undone")(t), errHook) })
		},
	} {
		t.Run("where "+name, func(t *testing.T) {
			t.Parallel()
			f := openFailing(t)
			if errs := do(f); errs[0] == nil {
				t.Error("the write is acknowledged")
			}
			if f.rolledBack != 1 || f.committed != 0 {
				t.Errorf("%d transactions were rolled back and %d writes committed, want 1 and 0", f.rolledBack, f.committed)
			}
			f.begin, f.beforeCommit = nil, nil
			if errs := f.Together(note("next")); errs[0] != nil {
				t.Errorf("the next write: %v", errs[0])
			}
			if names := f.notes(t); len(names) != 1 || names[0] != "next" {
				t.Errorf("the file contains %q", names)
			}
		})
	}
}

func TestWritesThatShareATransactionWithAFailure(t *testing.T) {
	t.Parallel()

	t.Run("are committed without the write that breaks a constraint at the commit", func(t *testing.T) {
		t.Parallel()
		f := openFailing(t)
		errs := f.Together(note("before"), brokenLink, note("after"))
		if errs[0] != nil || errs[1] == nil || errs[2] != nil {
			t.Errorf("errors %v", errs)
		}
		if names := f.notes(t); len(names) != 2 || f.committed != 2 {
			t.Errorf("the file contains %q, and %d writes were committed", names, f.committed)
		}
	})

	t.Run("get no error of a run that was rolled back", func(t *testing.T) {
		t.Parallel()
		f := openFailing(t)
		runs := 0
		errs := f.TogetherWhole(
			func(t *sqlite.Tx) error { // a refusal before any write, which costs the others nothing
				if runs++; runs == 1 {
					return errors.New("not yet")
				}
				return note("second run")(t)
			},
			func(t *sqlite.Tx) error { return errors.Join(note("undone")(t), errHook) },
		)
		if errs[0] != nil || errs[1] == nil {
			t.Errorf("errors %v", errs)
		}
		if names := f.notes(t); len(names) != 1 || names[0] != "second run" {
			t.Errorf("the file contains %q", names)
		}
	})

	t.Run("announce only what their last run has committed", func(t *testing.T) {
		t.Parallel()
		f := openFailing(t)
		var told []string
		tell := func(name string, then error) func(*sqlite.Tx) error {
			return func(t *sqlite.Tx) error {
				t.OnCommit(func() { told = append(told, name) })
				return then
			}
		}
		f.Together(
			func(t *sqlite.Tx) error { return errors.Join(note("done")(t), tell("done", nil)(t)) },
			tell("refused", errors.New("no")),
			func(t *sqlite.Tx) error { return errors.Join(note("undone")(t), tell("undone", errHook)(t)) },
		)
		f.Together(note("next"))
		if len(told) != 1 || told[0] != "done" {
			t.Errorf("announced were %q, want one", told)
		}
	})
}

// TestAWriteThatFailsIsUndoneAlone runs writes of which one fails after it has changed something.
func TestAWriteThatFailsIsUndoneAlone(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fails func(*sqlite.Tx) error
		late  bool // it is a refusal, so the log says that it came too late
	}{
		"with an error":   {fails: func(*sqlite.Tx) error { return errHook }},
		"with a refusal":  {fails: func(*sqlite.Tx) error { return fault.New(fault.Conflict, "no", "No.") }, late: true},
		"with a panic":    {fails: func(*sqlite.Tx) error { panic("a defect") }},
		"at a constraint": {fails: note("before")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := openFailing(t)
			var runs int
			var told []string
			tell := func(name string) func(*sqlite.Tx) error {
				return func(t *sqlite.Tx) error {
					runs++
					t.OnCommit(func() { told = append(told, name) })
					return note(name)(t)
				}
			}
			errs := f.Together(tell("before"), func(t *sqlite.Tx) error {
				if err := tell("undone")(t); err != nil {
					return err
				}
				t.Delay(1, func() error { return note("delayed")(t) })
				return tt.fails(t)
			}, tell("after"))
			if errs[0] != nil || errs[1] == nil || errs[2] != nil {
				t.Errorf("errors %v", errs)
			}
			if names, want := strings.Join(f.notes(t), " "), "after before"; names != want {
				t.Errorf("the file contains %q, want %q", names, want)
			}
			if runs != 3 || f.undone != 1 || f.rolledBack != 0 || strings.Join(told, " ") != "before after" {
				t.Errorf("%d runs, %d undone, %d rolled back, announced %q", runs, f.undone, f.rolledBack, told)
			}
			if late := strings.Contains(f.log.String(), sqlite.LateRefusal); late != tt.late {
				t.Errorf("the log:\n%s", &f.log)
			}
		})
	}

	t.Run("and keeps the rows that earlier writes have delayed", func(t *testing.T) {
		t.Parallel()
		f := openFailing(t)
		errs := f.Together(func(t *sqlite.Tx) error {
			t.Delay(1, func() error { return note("delayed")(t) })
			return nil
		}, func(t *sqlite.Tx) error { return errors.Join(note("undone")(t), errHook) })
		if errs[0] != nil || errs[1] == nil || f.undone != 1 {
			t.Errorf("errors %v", errs)
		}
		if names := f.notes(t); len(names) != 1 || names[0] != "delayed" {
			t.Errorf("the file contains %q", names)
		}
	})

	t.Run("and is not undone where it has changed nothing", func(t *testing.T) {
		t.Parallel()
		f := openFailing(t)
		f.Together(func(t *sqlite.Tx) error {
			err := t.Exec("DELETE FROM notes WHERE name = 'nobody'")
			return errors.Join(err, fault.Missing("note"))
		})
		if f.undone != 0 || f.log.Len() > 0 {
			t.Errorf("%d undone, the log:\n%s", f.undone, &f.log)
		}
	})
}

func TestDelayedRowsThatCannotBeWritten(t *testing.T) {
	t.Parallel()

	t.Run("fail the transaction, though a later write ignores the error", func(t *testing.T) {
		t.Parallel()
		f := openFailing(t)
		errs := f.TogetherWhole( // before any other write, the writer itself writes the rows
			func(t *sqlite.Tx) error {
				t.Delay(1, func() error { return errHook })
				return nil
			},
			func(t *sqlite.Tx) error {
				_ = t.Exec("INSERT INTO notes (name) VALUES ('ignores')")
				return nil
			},
		)
		if !errors.Is(errs[0], errHook) {
			t.Errorf("the write with delayed rows: %v", errs[0])
		}
		if errs := f.Together(note("next")); errs[0] != nil {
			t.Errorf("the next write: %v", errs[0])
		}
	})
}

func TestFileThatIsLockedAfterAFailure(t *testing.T) {
	t.Parallel()

	t.Run("gives every write that has not run an error", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := openFailing(t)
			other := sqlx.MustOpen("sqlite", "file:"+f.Path())
			defer other.Close()
			other.SetMaxOpenConns(1)
			errs := f.TogetherWhole(
				func(t *sqlite.Tx) error {
					t.OnCommit(func() { other.MustExec("BEGIN IMMEDIATE") })
					return note("before")(t)
				},
				func(t *sqlite.Tx) error { return errors.Join(note("undone")(t), errHook) },
				note("after"),
				note("last"),
			)
			other.MustExec("ROLLBACK")
			if errs[0] != nil || errs[1] == nil || errs[2] == nil || errs[3] == nil {
				t.Errorf("errors %v", errs)
			}
			if names := f.notes(t); len(names) != 1 || names[0] != "before" {
				t.Errorf("the file contains %q", names)
			}
		})
	})
}
