// Package retention owns the deletion of what may not be kept: rows that are older than the settings allow, and the data of erased
// users and closed organizations. It does not know how rows are made.
package retention

import (
	"context"
	"log/slog"
	"time"

	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/subscription"
)

// Options are what a cleaner needs. All are required, except KeepEvents and KeepAudit.
type Options struct {
	File          *sqlite.File
	Reads         *sqlite.Pool // for single rows
	Logs          *scan.Reader // for long tables
	Directory     *directory.Directory
	Queue         *queue.Queue
	Subscriptions *subscription.Subscriptions
	IDs           publicid.Maker
	Logger        *slog.Logger

	KeepEvents  time.Duration               // how long to keep events, deliveries and attempts; 0 keeps them forever
	KeepAudit   time.Duration               // how long to keep audit events; 0 keeps them forever
	TrustedTime func() (now int64, ok bool) // the time in milliseconds; while ok is false, nothing is deleted by age
}

// Cleaner deletes what may not be kept.
type Cleaner struct {
	o       Options
	old     oldRows
	sweeps  sweeps
	toClean chan struct{} // has a value if a user may be erased, or an organization closed; see Clean
}

// New returns the cleaner of an open database.
func New(o Options) *Cleaner {
	c := &Cleaner{o: o, old: oldRows{minutesAfter: beforeOwners}, sweeps: newSweeps(), toClean: make(chan struct{}, 1)}
	c.toClean <- struct{}{}
	return c
}

// change runs fn, which changes a batch of rows, in a transaction as work of Keyhook itself; see sqlite.File.Write.
func (c *Cleaner) change(ctx context.Context, fn func(*sqlite.Tx) error) error {
	return c.o.File.Write(ctx, sqlite.Work{Cost: auditBatch}, fn)
}
