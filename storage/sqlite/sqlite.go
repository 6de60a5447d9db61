// Package sqlite owns the engine of the one SQLite file: open, lock, connections, the writer with its group commit, schema and upgrades,
// checkpoints, integrity checks, snapshots, backup and restore. It knows no table; Hooks provide what it needs to know about the contents.
//
// One goroutine writes (see writer.go), pools of read-only connections read, and one process owns the file. So a row
// can be claimed without a lease, and a cache can be exact.
package sqlite

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/sqlite/ownership"
)

// Options configure a file. Path and Schema are required.
type Options struct {
	Path        string // path of the database; its directory must exist
	Schema      string // its text
	Upgrades    []Step // the first one leads from schema 1 to schema 2, and so on
	Synchronous string // Full (zero value) or Normal
	IsCopy      bool   // the file is a copy, so an upgrade of it needs no copy
	LogBounds   LogBounds
	Reserve     int64        // bytes of disk space that are kept for writes with Work.Reserve; 0 keeps none
	Logger      *slog.Logger // nil means slog.Default
	// Now is the time of writes; nil means time.Now. Deadlines and durations follow the clock of the machine.
	Now func() time.Time
	Hooks
}

// Hooks are the functions of the owner of the tables. All are required, except Reached. Examine calls only Prepare and Recognize.
type Hooks struct {
	// Prepare is called under the lock, before the database is read or created.
	Prepare func(path string, s Start) error
	// Recognize decides whether a database of the present or an older schema may be used. It only reads.
	Recognize func(ctx context.Context, path string, db *sqlx.DB) error
	// Create writes the first rows of a new database, in the transaction that creates the schema.
	Create func(*Tx) error
	// Made is called at each start, after the database exists on the disk.
	Made func() error

	// Begin is called at the beginning of each transaction, before its writes.
	Begin func(*Tx) error
	// Flush writes what the writes have left in memory. It is called before each savepoint and before the commit.
	Flush func(*Tx) error
	// RolledBack is called after the rollback of a transaction, and Undone after the rollback to a savepoint.
	RolledBack, Undone func()
	// Committed is called after each commit, with the number of its writes and the time from BEGIN until it was durable.
	Committed func(writes int, took time.Duration)

	// Probe writes size bytes that differ from the bytes of the last call.
	Probe func(t *Tx, size int) error
	// Reached receives the progress of an upgrade; it may be nil.
	Reached func(point string)
}

// Start describes what a start found.
type Start struct {
	Empty   bool // the database does not exist yet
	WasMade bool // the lock file says that it existed
}

func (o Options) version() int64 { return int64(len(o.Upgrades)) + 1 }

func (o Options) withDefaults() Options {
	o.Synchronous = cmp.Or(o.Synchronous, Full)
	o.LogBounds = cmp.Or(o.LogBounds, defaultLogBounds)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Reached == nil {
		o.Reached = func(string) {}
	}
	return o
}

// File is the open database. Writes wait until Run is called.
type File struct {
	inspection // at the start
	lock       *ownership.Lock
	unchecked  bool // left open by its last owner, and too large for a check at the start
	names      []fileIdentity
	failures   *failures

	writer
	reserve reserve
	checkpointer
	pools []*Pool
}

// Now is the time of writes in milliseconds; see Options.Now.
func (f *File) Now() int64 { return f.o.Now().UnixMilli() }

// Created reports whether Open created the database.
func (f *File) Created() bool { return f.size == 0 || f.noTables }

// Path returns the name of the database, with links resolved.
func (f *File) Path() string { return f.o.Path }

// Synchronous returns the level of durability.
func (f *File) Synchronous() string { return f.o.Synchronous }

// SchemaVersion returns the version of the schema.
func (f *File) SchemaVersion() int64 { return f.o.version() }

// Commits returns the number of transactions since the start.
func (f *File) Commits() int64 { return f.commits.Load() }

// Drain waits for the end of long reads. New ones wait until resume is called. drained is false if running reads do not end in time.
type Drain func(ctx context.Context) (resume func(), drained bool)

// Run writes to the file and maintains it until ctx ends. Then it finishes the waiting writes and returns nil. It
// returns ErrFailed as soon as the file cannot keep what was acknowledged. beside runs meanwhile and returns after its
// context has ended. Its writes until then are still done. drain stops the long reads of all pools.
func (f *File) Run(ctx context.Context, beside func(context.Context), drain Drain) error {
	ctx, halt := context.WithCancel(ctx)
	defer halt()
	defer context.AfterFunc(f.failures.intact, halt)()
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		defer stop()
		beside(ctx)
	})
	wg.Go(func() { f.watch(ctx, drain) })
	wg.Go(func() {
		if err := f.checkLater(ctx); err != nil && ctx.Err() == nil {
			f.o.Logger.Error("the check of the database did not finish", "error", err)
		}
	})
	f.commitLoop(writing)
	wg.Wait()
	return f.failures.ended()
}

// Close closes the file and releases the lock. Call it only after Run has returned, or if Run was never called. After
// ErrFailed it does nothing: closing would fold the write-ahead log into a file that is not reliable, or not ours.
func (f *File) Close() error {
	if f.failures.ended() != nil {
		return nil
	}
	var errs []error
	for _, p := range f.pools {
		errs = append(errs, p.db.Close()) // also closes its statements
	}
	if f.checkpointer.db != nil {
		errs = append(errs, f.checkpointer.db.Close())
	}
	if f.tx != nil { // last, because the last connection folds the write-ahead log into the file
		errs = append(errs, f.tx.close())
	}
	return errors.Join(append(errs, f.lock.Release())...)
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

// Free returns how many more bytes fit on the disk of the database. ok is false if the number is unknown.
func (f *File) Free() (bytes uint64, ok bool) {
	bytes, _, ok = disk.Free(f.o.Path)
	return bytes, ok
}

// Statements returns the texts of all prepared statements, so that a test can read their query plans.
func (f *File) Statements(ctx context.Context) (texts []string, err error) {
	for _, p := range f.pools {
		p.prepared.Range(func(text, _ any) bool {
			texts = append(texts, text.(string))
			return true
		})
	}
	err = f.Write(ctx, Work{}, func(t *Tx) error {
		texts = slices.AppendSeq(texts, maps.Keys(t.statements))
		return nil
	})
	return texts, err
}
