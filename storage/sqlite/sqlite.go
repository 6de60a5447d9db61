// Package sqlite owns the engine of the one SQLite file: open, lock, connections, the writer with its group commit, schema
// and upgrades, checkpoints, integrity checks, snapshots, backup and restore. It knows no table: what must be known of the
// contents, Hooks tell it.
//
// One goroutine writes (see writer.go), pools of read-only connections read, and one process owns the file. So a row can be
// claimed without a lease, and a cache can be exact.
package sqlite

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/disk"
)

// Options say which file and by which rules. Path and Schema are required.
type Options struct {
	Path        string // of the database; its directory must exist
	Schema      string // its text
	Upgrades    []Step // the first takes a file of schema 1 to schema 2, and so on
	Synchronous string // Full (the zero value) or Normal
	Expendable  bool   // the file is a copy, so an upgrade of it needs no copy
	LogBounds   LogBounds
	Logger      *slog.Logger // nil is slog.Default
	Hooks
}

// Hooks are what the owner of the tables does in the engine. All are required, except Reached. Examine calls Prepare and
// Recognize only.
type Hooks struct {
	// Prepare is called once the lock is held, and before the database is read or made.
	Prepare func(path string, s Start) error
	// Recognize decides whether a database of the right schema, or of an older one, may be used. It only reads.
	Recognize func(ctx context.Context, path string, db *sqlx.DB) error
	// Create writes what a new database starts with, in the transaction that makes the schema.
	Create func(*Tx) error
	// Made is called once there is a database on the disk, at each start.
	Made func() error

	// Begin is called at the beginning of each transaction, before its jobs.
	Begin func(*Tx) error
	// BeforeCommit is called after the jobs of a transaction.
	BeforeCommit func(*Tx) error
	// RolledBack is called when a transaction was rolled back.
	RolledBack func()
	// Committed is called after each commit, with how many jobs shared it and how long it took from BEGIN to being durable.
	Committed func(jobs int, took time.Duration)

	// Probe writes something of that many bytes that differs from the last time.
	Probe func(t *Tx, size int) error
	// DrainReads keeps long reads waiting until resume is called. drained is false where those under way do not end in time.
	DrainReads func(ctx context.Context) (resume func(), drained bool)
	// Reached is told how far an upgrade has come; nil is nobody.
	Reached func(point string)
}

// Start is what a start finds.
type Start struct {
	Empty   bool // there is no database yet
	WasMade bool // the lock file says that one was made here
}

// version is the schema version that the upgrades lead to (PRAGMA user_version).
func (o Options) version() int64 { return int64(len(o.Upgrades)) + 1 }

// withDefaults fills in what was left out.
func (o Options) withDefaults() Options {
	if o.Synchronous == "" {
		o.Synchronous = Full
	}
	if o.LogBounds == (LogBounds{}) {
		o.LogBounds = defaultLogBounds
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Reached == nil {
		o.Reached = func(string) {}
	}
	return o
}

// File is the open database. Writes wait until Run runs.
type File struct {
	o         Options // with defaults, and with the resolved path
	lock      *ownership
	created   bool
	outdated  int64 // the schema version that the start has found, where it is an older one
	unchecked bool  // left open by its last owner, and too large to be checked first
	names     []fileIdentity
	failures  *failures

	writer
	checkpointer
	pools []*Pool
}

// Created reports whether Open has created the database.
func (f *File) Created() bool { return f.created }

// Path returns the name of the database, with links resolved.
func (f *File) Path() string { return f.o.Path }

// Run writes, and looks after the file, until ctx ends; then it finishes what waits and returns nil. It ends by itself, with
// ErrFailed, as soon as what was acknowledged cannot be kept. beside runs beside it and returns once its context has ended;
// what it writes until then is still written.
func (f *File) Run(ctx context.Context, beside func(context.Context)) error {
	ctx, halt := context.WithCancel(ctx)
	defer halt()
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-f.failures.failed:
			halt()
		case <-ctx.Done():
		}
	})
	wg.Go(func() {
		defer stop()
		beside(ctx)
	})
	wg.Go(func() { f.watch(ctx) })
	wg.Go(func() {
		if err := f.checkLater(ctx); err != nil && ctx.Err() == nil {
			f.o.Logger.Error("the database could not be checked to its end", "error", err)
		}
	})
	f.commitLoop(writing)
	wg.Wait()
	return f.failures.ended()
}

// Close closes the file and gives up the lock. Run must have returned, or never have been called. After ErrFailed it does
// nothing: closing would fold the write-ahead log into a file that is not trusted, or not ours.
func (f *File) Close() error {
	if f.failures.ended() != nil {
		return nil
	}
	var errs []error
	for _, p := range f.pools {
		errs = append(errs, p.close())
	}
	if f.tx != nil {
		errs = append(errs, f.tx.close())
	}
	for _, db := range []*sqlx.DB{f.checkpointer.db, f.writer.db} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(append(errs, f.lock.release())...)
}

// Sizes returns how large the database and its write-ahead log are on disk, in bytes.
func (f *File) Sizes() (database, log int64, err error) {
	info, err := os.Stat(f.o.Path)
	if err != nil {
		return 0, 0, err
	}
	logInfo, err := os.Stat(f.o.Path + disk.WAL)
	if err != nil {
		return 0, 0, err
	}
	return info.Size(), logInfo.Size(), nil
}

// Free returns how many bytes can still be written to the disk of the database; ok is false where nobody can tell.
func (f *File) Free() (bytes uint64, ok bool) {
	bytes, _, ok = disk.Free(f.o.Path)
	return bytes, ok
}

// Statements returns the texts of all statements that were prepared so far, so that a test can look at their query plans.
func (f *File) Statements(ctx context.Context) (texts []string, err error) {
	for _, p := range f.pools {
		p.prepared.Range(func(text, _ any) bool {
			texts = append(texts, text.(string))
			return true
		})
	}
	err = f.Write(ctx, Work{}, func(t *Tx) error {
		for text := range t.statements {
			texts = append(texts, text)
		}
		return nil
	})
	return texts, err
}
