// Package storage owns the one SQLite file: everything that is kept, and every rule that must hold inside one
// transaction. It knows nothing of HTTP and never sends anything.
//
// One goroutine writes (see writer.go), a pool of read-only connections reads, and one process owns the file. So a row
// can be claimed without a lease, and a cache can be exact.
package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
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
	Observer      Observer          // nil is nobody
	Logger        *slog.Logger      // nil is slog.Default
}

// Store is the open file. Writes wait until Run runs.
type Store struct {
	path    string
	policy  webhook.Policy
	log     *slog.Logger
	lock    *os.File
	ring    *seal.Ring
	ids     idMaker
	created bool
	invited bool

	writer *sqlx.DB // one connection, held by tx
	tx     *tx
	jobs   chan *job
	// stopped is closed when the writer has ended.
	stopped chan struct{}

	keeper       *sqlx.DB // one connection, for checkpoints beside the writer
	commits      atomic.Int64
	checkpointed int64 // what commits was at the last checkpoint; upkeep's own

	reads *pool // what requests and deliveries wait for
	logs  *pool // lists with filters, which may have far to look

	lastEvent  int64 // row id of the newest event; the writer's own
	principals principalCache
	pending    pendingCount
	held       atomic.Pointer[webhook.Hold] // as of the last commit
	releasedAt atomic.Int64                 // in milliseconds; 0 where the queue was not held since the start
	watcher    atomic.Pointer[webhook.Watcher]
	observer   Observer
	usage      usage
	retention  retention     // upkeep's own
	replaying  chan struct{} // holds a token while a replay writes
}

// Open locks, checks and opens the file, creating it where there is none. It refuses with a sentence that says what to
// do: ErrInUse, ErrNewerSchema, ErrSchema, ErrForeignFile, ErrKey or ErrKeyMissing, or a file system's error.
func Open(ctx context.Context, o Options) (_ *Store, err error) {
	s := &Store{
		policy:    o.Policy,
		retention: retention{events: o.KeepEvents, audit: o.KeepAudit},
		observer:  o.Observer,
		log:       o.Logger,
		jobs:      make(chan *job, maxBatch),
		stopped:   make(chan struct{}),
		replaying: make(chan struct{}, 1),
	}
	if s.policy == (webhook.Policy{}) {
		s.policy = webhook.DefaultPolicy()
	}
	if s.policy.MaxAttempts > maxAttempts {
		return nil, fmt.Errorf("policy of %d attempts: a delivery may have at most %d", s.policy.MaxAttempts, maxAttempts)
	}
	if s.observer == nil {
		s.observer = unobserved{}
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if o.Synchronous == "" {
		o.Synchronous = Full
	}
	if o.Path, err = resolve(o.Path); err != nil {
		return nil, err
	}
	s.path = o.Path
	if s.lock, err = lock(o.Path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.open(ctx, o); err != nil {
		return nil, fmt.Errorf("open %s: %w", o.Path, err)
	}
	return s, nil
}

// open does what Open does once the lock is held, in the order in which each step relies on the one before.
func (s *Store) open(ctx context.Context, o Options) error {
	size, err := fileSize(o.Path)
	if err != nil {
		return explain(err)
	}
	ring, file, err := openRing(o, size == 0)
	if err != nil {
		return err
	}
	s.ring = ring
	name, err := dsn(o.Path, writerPragmas(o.Synchronous), "_txlock=immediate", "_auto_vacuum=INCREMENTAL")
	if err != nil {
		return err
	}
	if s.writer, err = connect(ctx, name, 1, writerPragmas(o.Synchronous)); err != nil {
		return err
	}
	if s.created, err = s.prepare(ctx, o.Schema); err != nil {
		return err
	}
	conn, err := s.writer.Connx(ctx)
	if err != nil {
		return err
	}
	s.tx = newTx(conn)
	if s.created {
		if err := s.found(o); err != nil {
			return fmt.Errorf("create database: %w", err)
		}
	}
	if err := s.recognize(); err != nil {
		return err
	}
	if err := file.keep(); err != nil {
		return err
	}
	if !s.created {
		if s.invited, err = s.invite(o.Bootstrap); err != nil {
			return fmt.Errorf("make the first operator's token: %w", err)
		}
	}
	if err := s.alone(s.interruptSending); err != nil {
		return fmt.Errorf("mark interrupted attempts: %w", err)
	}
	if err := errors.Join(s.pending.load(s.tx), s.loadHold()); err != nil {
		return err
	}
	if err := s.tx.get(&s.lastEvent, "SELECT coalesce(max(id), 0) FROM events"); err != nil {
		return fmt.Errorf("find newest event: %w", err)
	}
	if s.keeper, err = connect(ctx, name, 1, writerPragmas(o.Synchronous)); err != nil {
		return err
	}
	if name, err = dsn(o.Path, readerPragmas()); err != nil {
		return err
	}
	if s.reads, err = openPool(ctx, name, readers, readLimit); err != nil {
		return err
	}
	s.logs, err = openPool(ctx, name, logReaders, logLimit)
	return err
}

// Created reports whether Open has created the file.
func (s *Store) Created() bool { return s.created }

// Invited reports whether Open has made Options.Bootstrap an access token: in a new file, and in one that nobody has come
// into so far.
func (s *Store) Invited() bool { return s.created || s.invited }

// Watch has w told of what is committed from now on. It is called once, before Run.
func (s *Store) Watch(w webhook.Watcher) { s.watcher.Store(&w) }

// Run writes, and looks after the file, until ctx ends; then it finishes what waits and returns.
func (s *Store) Run(ctx context.Context) error {
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		defer stop() // upkeep ends first: what it knows is still to be written
		s.upkeep(ctx)
	})
	s.commitLoop(writing)
	wg.Wait()
	return nil
}

// Close closes the file and gives up the lock. Run must have returned, or never have been called.
func (s *Store) Close() error {
	var errs []error
	for _, p := range []*pool{s.reads, s.logs} {
		if p != nil {
			errs = append(errs, p.close())
		}
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
	return errors.Join(append(errs, s.lock.Close())...)
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

// change is write with a failure of the disk told to the caller as such.
func (s *Store) change(ctx context.Context, fn func(*tx) error) error {
	return unavailable(s.write(ctx, fn))
}

// resolve follows symbolic links, so that a file has one name, and one lock, however it is reached.
func resolve(path string) (string, error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return filepath.Abs(target)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", fmt.Errorf("storage.path is %s, but there is no directory %s: create it or set storage.path", path, filepath.Dir(path))
	}
	return filepath.Abs(filepath.Join(dir, filepath.Base(path)))
}

func fileSize(path string) (int64, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%w: %s is not a regular file; set storage.path to another", ErrForeignFile, path)
	}
	return info.Size(), nil
}
