// Package retention owns the deletion of what may not be kept: rows that are older than the settings allow, and the data of erased
// users and closed organizations. It does not know how rows are made: Hooks do what the owner of the tables must do about a deletion.
package retention

import (
	"context"
	"log/slog"
	"time"

	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Options are what a cleaner needs. All are required, except KeepEvents and KeepAudit.
type Options struct {
	File      *sqlite.File
	Reads     *sqlite.Pool // for single rows
	Logs      *scan.Reader // for long tables
	Directory *directory.Directory
	IDs       publicid.Maker
	Logger    *slog.Logger

	KeepEvents time.Duration // how long to keep events, deliveries and attempts; 0 keeps them forever
	KeepAudit  time.Duration // how long to keep audit events; 0 keeps them forever
	Hooks
}

// Hooks are what the owner of the tables tells a cleaner, and does in its transactions. All are required.
type Hooks struct {
	// TrustedTime returns the time in milliseconds. ok is false while the clock is in doubt. Then nothing is deleted by age.
	TrustedTime func() (now int64, ok bool)
	// Disordered stores that the events up to this row are not in the order of time.
	Disordered func(ctx context.Context, row int64) error
	// Held reports whether the queue is held. Then no old event is deleted.
	Held func(t *sqlite.Tx) (bool, error)
	// Expired is called when a pending delivery of a subscription is deleted. expected is false if the subscription is deleted, too.
	Expired func(t *sqlite.Tx, subscription int64) (expected bool, err error)
	// RemoveSubscription deletes a subscription of an organization, with that health.
	RemoveSubscription func(t *sqlite.Tx, organization, subscription int64, health webhook.Health) error
	// SubscriptionsChanged is called after a change of any subscriptions.
	SubscriptionsChanged func(t *sqlite.Tx)
	// BodiesChanged is called after the bodies of events were replaced. No attempt may begin with an old body after the commit.
	BodiesChanged func(t *sqlite.Tx, events []int64)
	// ForgetResponses is called for deliveries in progress. The responses to these attempts must not be stored.
	ForgetResponses func(t *sqlite.Tx, deliveries []int64)
	// AwaitsForgotten reports whether such an attempt is still in progress.
	AwaitsForgotten func(t *sqlite.Tx) bool
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
