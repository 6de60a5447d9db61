// Package storage owns what Keyhook keeps: its tables, and every rule that must hold inside one transaction. It knows
// nothing of HTTP and never sends anything. Below it, package sqlite is the engine, and package directory
// says who may do what.
package storage

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/seal"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Synchronous levels, see sqlite.Full.
const (
	Full   = sqlite.Full
	Normal = sqlite.Normal
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

	copied    bool                                                        // of Restore: the file is a copy, and no server runs on it
	findKeys  func(o Options, start sqlite.Start) (encryptionKeys, error) // nil is findKeys
	upgrades  []sqlite.Step                                               // nil is schemaUpgrades
	reached   func(point string)                                          // is told how far an upgrade has come
	logBounds sqlite.LogBounds
}

// Store is the open database. Writes wait until Run runs.
type Store struct {
	*directory.Directory // who may do what

	file    *sqlite.File
	tx      *tx // the writer's own
	policy  webhook.Policy
	log     *slog.Logger
	key     seal.Key
	keyRing *seal.Ring // of the key
	ids     publicid.Maker

	reads   *sqlite.Pool // what requests and deliveries wait for
	surveys *sqlite.Pool // looks at all that is pending, for which no request waits
	logs    *scan.Reader // lists with filters, which may have far to look
	replays *scan.Reader // what replays look for, which may take minutes

	// The writer's own; see event_order.go.
	lastEvent int64 // row id of the newest event
	latest    int64 // the latest time of a transaction, since the clock was last set back
	disorder  int64 // the events up to this row may be out of order; those after it are not, within clock.Tolerance

	pending    pendingCount
	queueHold  atomic.Pointer[webhook.Hold] // as of the last commit
	releasedAt atomic.Int64                 // in milliseconds; 0 where the queue was not held since the start
	watcher    atomic.Pointer[webhook.Watcher]
	observer   Observer
	retention  retention // upkeep's own
	sweeps     sweeps    // upkeep's own
	clock      wallClock
	replaying  chan struct{} // holds a token while a replay writes
}

// Created reports whether Open has created the file.
func (s *Store) Created() bool { return s.file.Created() }

// Watch has w told of what is committed from now on. It is called once, before Run.
func (s *Store) Watch(w webhook.Watcher) { s.watcher.Store(&w) }

// Run writes, and looks after the file, until ctx ends; then it finishes what waits and returns nil. It ends by itself,
// with ErrFailed, as soon as what was acknowledged cannot be kept.
func (s *Store) Run(ctx context.Context) error { return s.file.Run(ctx, s.upkeep) }

// Close closes the file and gives up the lock. Run must have returned, or never have been called.
func (s *Store) Close() error { return s.file.Close() }

// Ready reports why the file cannot be written at present; nil means that it can. The warning names a problem that does
// not stop writes yet; empty means none. Anybody may read both texts.
func (s *Store) Ready(context.Context) (warning string, err error) { return s.file.Ready() }

// Degraded tells, of each reason for which nothing may be written at present, whether it holds.
func (s *Store) Degraded() map[string]bool { return s.file.Degraded() }

// Sizes returns how large the database and its write-ahead log are on disk, in bytes.
func (s *Store) Sizes() (database, log int64, err error) { return s.file.Sizes() }

// Free returns how many bytes can still be written to the disk of the database; ok is false where nobody can tell.
func (s *Store) Free() (bytes uint64, ok bool) { return s.file.Free() }

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	var one int
	return s.get(ctx, &one, "SELECT 1")
}

// get reads one row into dest; sql.ErrNoRows where there is none.
func (s *Store) get(ctx context.Context, dest any, text string, args ...any) error {
	return s.reads.Get(ctx, dest, text, args...)
}

// list reads all rows into dest, a pointer to a slice.
func (s *Store) list(ctx context.Context, dest any, text string, args ...any) error {
	return s.reads.List(ctx, dest, text, args...)
}
