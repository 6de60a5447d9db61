// Package storage owns the one SQLite file: everything that is kept, and every rule that must hold inside one
// transaction. It knows nothing of HTTP and never sends anything.
//
// One goroutine writes (see writer.go), a pool of read-only connections reads, and one process owns the file. So a row
// can be claimed without a lease, and a cache can be exact.
package storage

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/seal"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Options say which file and by which rules. Path and Schema are required.
type Options struct {
	Path          string            // of the database; its directory must exist
	Schema        string            // the text of schema.sql
	Synchronous   string            // Full (the zero value) or Normal
	EncryptionKey string            // seals signing secrets; empty: the file Path + ".key", made at first start
	Policy        webhook.Policy    // of at most 250 attempts; the zero value is webhook.DefaultPolicy
	KeepEvents    time.Duration     // how long events, deliveries and attempts are kept; 0 is for ever
	KeepAudit     time.Duration     // how long audit events are kept; 0 is for ever
	Bootstrap     access.Credential // the first operator's access token, see Invited; required where the file is new
	BootstrapLife time.Duration     // how long that token lasts; 0 is for ever
	Observer      Observer          // nil is nobody
	Logger        *slog.Logger      // nil is slog.Default

	findKeys   func(o Options, empty bool) (encryptionKeys, error) // nil is findKeys
	offline    bool                                                // of Rekey: no server follows on this Store, and its policy is unknown
	expendable bool                                                // of Restore: the file is a copy, of which no copy need be set aside
	upgrades   *upgrades                                           // nil is those of this version
}

// Store is the open file. Writes wait until Run runs.
type Store struct {
	path     string
	policy   webhook.Policy
	log      *slog.Logger
	lock     *ownership
	key      seal.Key
	ring     *seal.Ring // of the key
	upgrades upgrades
	outdated int64 // the schema version of the file, where it is an older one
	ids      idMaker
	created  bool
	invited  bool

	bootstrapRefused bool

	unchecked bool // left open by its last owner, and too large to be checked first
	files     []identity
	condition *condition

	writer *sqlx.DB // one connection, held by tx
	tx     *tx
	jobs   *writeQueue
	// stopped is closed when the writer has ended.
	stopped chan struct{}
	// blockedSince is when the writer began what it has not been able to commit; nil while it can.
	blockedSince atomic.Pointer[time.Time]

	keeper       *sqlx.DB // one connection, for checkpoints beside the writer
	commits      atomic.Int64
	checkpointed int64     // what commits was at the last checkpoint; watch's own
	restartAt    time.Time // when the write-ahead log may be made to start anew again; watch's own
	logBounds    logBounds
	logLong      atomic.Bool                        // whether the write-ahead log is longer than logBounds.warn
	checking     atomic.Pointer[context.CancelFunc] // ends the check of a table that is under way
	pauses       chan func()                        // is run by the writer between two transactions

	reads   *pool      // what requests and deliveries wait for
	logs    *logReader // lists with filters, which may have far to look
	replays *logReader // what replays look for, which may take minutes
	surveys *pool      // looks at all that is pending, for which no request waits
	pools   []*pool    // all that are open

	// The writer's own; see order.go.
	lastEvent int64 // row id of the newest event
	latest    int64 // the latest time of a transaction, since the clock was last set back
	disorder  int64 // the events up to this row may be out of order; those after it are not, within clock.Tolerance

	principals   principalCache
	pending      pendingCount
	held         atomic.Pointer[webhook.Hold] // as of the last commit
	releasedAt   atomic.Int64                 // in milliseconds; 0 where the queue was not held since the start
	watcher      atomic.Pointer[webhook.Watcher]
	observer     Observer
	usage        usage
	firstRequest firstRequest
	retention    retention // upkeep's own
	sweeps       sweeps    // upkeep's own
	clock        wallClock
	replaying    chan struct{} // holds a token while a replay writes
}

// Created reports whether Open has created the file.
func (s *Store) Created() bool { return s.created }

// Invited reports whether Open has made Options.Bootstrap an access token: it does so as long as nobody has made an
// authenticated request.
func (s *Store) Invited() bool { return s.invited }

// BootstrapRefused reports whether Options.Bootstrap is no valid access token: it was revoked, or it was set after the first
// authenticated request.
func (s *Store) BootstrapRefused() bool { return s.bootstrapRefused }

// Watch has w told of what is committed from now on. It is called once, before Run.
func (s *Store) Watch(w webhook.Watcher) { s.watcher.Store(&w) }

// Run writes, and looks after the file, until ctx ends; then it finishes what waits and returns nil. It ends by itself,
// with ErrFailed, as soon as what was acknowledged cannot be kept.
func (s *Store) Run(ctx context.Context) error {
	ctx, halt := context.WithCancel(ctx)
	defer halt()
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-s.condition.failed:
			halt()
		case <-ctx.Done():
		}
	})
	wg.Go(func() {
		defer stop() // upkeep ends first: what it knows is still to be written
		s.upkeep(ctx)
	})
	wg.Go(func() { s.watch(ctx) })
	wg.Go(func() { s.try(ctx, s.checkLater, "the database could not be checked to its end") })
	s.commitLoop(writing)
	wg.Wait()
	return s.condition.ended()
}

// Close closes the file and gives up the lock. Run must have returned, or never have been called. After ErrFailed it does
// nothing: closing would fold the write-ahead log into a file that is not trusted, or not ours.
func (s *Store) Close() error {
	if s.condition.ended() != nil {
		return nil
	}
	var errs []error
	for _, p := range s.pools {
		errs = append(errs, p.close())
	}
	if s.tx != nil {
		for _, st := range s.tx.statements {
			errs = append(errs, st.Close())
		}
		errs = append(errs, s.tx.conn.Close())
	}
	if s.keeper != nil {
		errs = append(errs, s.keeper.Close())
	}
	if s.writer != nil {
		errs = append(errs, s.writer.Close())
	}
	return errors.Join(append(errs, s.lock.release())...)
}

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	var one int
	return s.get(ctx, &one, "SELECT 1")
}

// get reads one row into dest; sql.ErrNoRows where there is none.
func (s *Store) get(ctx context.Context, dest any, text string, args ...any) error {
	return s.reads.get(ctx, dest, text, args...)
}

// list reads all rows into dest, a pointer to a slice.
func (s *Store) list(ctx context.Context, dest any, text string, args ...any) error {
	return s.reads.list(ctx, dest, text, args...)
}

// from turns a row id to go on from, 0 being the newest, into the upper bound of a list that runs downwards.
func from(before int64) int64 {
	if before == 0 {
		return math.MaxInt64
	}
	return before
}

// change is write with a failure of the disk told to the caller as such. It is for work of Keyhook itself; for what a
// customer asks for, use of.
func (s *Store) change(ctx context.Context, fn func(*tx) error) error {
	return unavailable(s.write(ctx, fn))
}
