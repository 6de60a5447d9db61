package sqlite_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// noted returns the notes that a read of a pool finds.
func noted(ctx context.Context, t *testing.T, pool *sqlite.Pool) []string {
	t.Helper()
	names, count := []string{}, 0
	err := errors.Join(pool.List(ctx, &names, "SELECT name FROM notes ORDER BY name"), pool.Get(ctx, &count, "SELECT count(*) FROM notes"))
	if err != nil || count != len(names) {
		t.Errorf("%d notes, but the list has %v; error %v", count, names, err)
	}
	return names
}

// startPooled starts a file and opens a pool.
func startPooled(t *testing.T) (*sqlite.File, *sqlite.Pool) {
	t.Helper()
	o := options(t)
	file, stop := start(t, o)
	pool, err := file.Pool(t.Context(), 1, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return file, pool
}

func TestTransact(t *testing.T) {
	t.Parallel()
	write := func(ctx context.Context, file *sqlite.File, name string) error {
		return file.Write(ctx, sqlite.Work{}, note(name))
	}
	t.Run("shows its own writes, which others see after it", func(t *testing.T) {
		t.Parallel()
		file, pool := startPooled(t)
		if err := file.Transact(t.Context(), sqlite.Work{}, func(ctx context.Context) error {
			for _, name := range []string{"a", "b"} {
				if err := write(ctx, file, name); err != nil {
					return err
				}
			}
			if inside, outside := noted(ctx, t, pool), noted(t.Context(), t, pool); !slices.Equal(inside, []string{"a", "b"}) || len(outside) > 0 {
				t.Errorf("%v inside, %v outside", inside, outside)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if names := noted(t.Context(), t, pool); !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("%v", names)
		}
	})
	failure := errors.New("failure")
	late := func(t *sqlite.Tx) error { return errors.Join(note("b")(t), failure) }
	for name, fn := range map[string]func(context.Context, *sqlite.File) error{
		"fails": func(context.Context, *sqlite.File) error { return failure },
		"fails after a write without a change": func(ctx context.Context, file *sqlite.File) error {
			return errors.Join(file.Write(ctx, sqlite.Work{}, func(*sqlite.Tx) error { return nil }), failure)
		},
		"panics": func(context.Context, *sqlite.File) error { panic("failure") },
		"ignores that a write has failed after a change": func(ctx context.Context, file *sqlite.File) error {
			_ = file.Write(ctx, sqlite.Work{}, late)
			return nil
		},
		"ignores that a transaction of its own has failed": func(ctx context.Context, file *sqlite.File) error {
			_ = file.Transact(ctx, sqlite.Work{}, func(ctx context.Context) error { return file.Write(ctx, sqlite.Work{}, late) })
			return nil
		},
	} {
		t.Run("writes and announces nothing if it "+name, func(t *testing.T) {
			t.Parallel()
			file, pool := startPooled(t)
			announced := false
			err := file.Transact(t.Context(), sqlite.Work{}, func(ctx context.Context) error {
				err := file.Write(ctx, sqlite.Work{}, func(t *sqlite.Tx) error {
					t.OnCommit(func() { announced = true })
					return note("a")(t)
				})
				return errors.Join(err, fn(ctx, file))
			})
			if names := noted(t.Context(), t, pool); err == nil || len(names) > 0 || announced {
				t.Errorf("error %v, notes %v, announced %t", err, names, announced)
			}
		})
	}
	t.Run("goes on if a write was refused before its first change", func(t *testing.T) {
		t.Parallel()
		file, pool := startPooled(t)
		if err := file.Transact(t.Context(), sqlite.Work{}, func(ctx context.Context) error {
			if err := write(ctx, file, "a"); err != nil {
				return err
			}
			_ = file.Write(ctx, sqlite.Work{}, func(*sqlite.Tx) error { return fault.New(fault.Conflict, "in_use", "No.") })
			return write(ctx, file, "b")
		}); err != nil {
			t.Fatal(err)
		}
		if names := noted(t.Context(), t, pool); !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("%v", names)
		}
	})
	t.Run("does not concern another file", func(t *testing.T) {
		t.Parallel()
		file, pool := startPooled(t)
		other, otherPool := startPooled(t)
		if err := file.Transact(t.Context(), sqlite.Work{}, func(ctx context.Context) error {
			if err := write(ctx, other, "other"); err != nil {
				return err
			}
			if names := noted(ctx, t, otherPool); !slices.Equal(names, []string{"other"}) {
				t.Errorf("the other file has %v", names)
			}
			return failure
		}); !errors.Is(err, failure) {
			t.Fatal(err)
		}
		if names, others := noted(t.Context(), t, pool), noted(t.Context(), t, otherPool); len(names) > 0 || len(others) != 1 {
			t.Errorf("%v, the other file has %v", names, others)
		}
	})
	t.Run("has ended for a context that was kept", func(t *testing.T) {
		t.Parallel()
		file, pool := startPooled(t)
		var kept context.Context
		if err := file.Transact(t.Context(), sqlite.Work{}, func(ctx context.Context) error { kept = ctx; return failure }); !errors.Is(err, failure) {
			t.Fatal(err)
		}
		if err := write(kept, file, "later"); err != nil {
			t.Fatal(err)
		}
		if err := file.Transact(t.Context(), sqlite.Work{}, func(ctx context.Context) error {
			err := write(ctx, file, "inside")
			if names := noted(kept, t, pool); !slices.Equal(names, []string{"later"}) {
				t.Errorf("%v, and the transaction of another caller is one of them", names)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	})
}
