// Package storage opens the database, and puts its parts together: Queue (events and deliveries), Subscriptions, Feeds, Directory (who
// may do what), Survey (what waits), History (what was sent) and Catalogue (event types). It owns what concerns several of them: the
// upkeep, backups, the clock, the alerts, and the ends of organizations and users. It does not know HTTP and never sends anything.
package storage

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/catalogue"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/encryption"
	"github.com/keyhook/keyhook/storage/feed"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/pending"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/retention"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/subscription"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Levels of durability; see sqlite.Full.
const (
	Full   = sqlite.Full
	Normal = sqlite.Normal
)

// DefaultReserve is Options.Reserve of a server: room for some hundred revocations.
const DefaultReserve = 4 << 20

// Options configure a store. Path and Schema are required.
type Options struct {
	Path          string            // path of the database; its directory must exist
	Schema        string            // the text of schema.sql
	Synchronous   string            // Full (zero value) or Normal
	EncryptionKey string            // encrypts the signing secrets; if empty, the first start creates the key file Path + ".key"
	Policy        webhook.Policy    // at most 250 attempts; the zero value means webhook.DefaultPolicy
	Reserve       int64             // bytes of disk space that are kept for withdrawing rights on a full disk; 0 keeps none
	KeepEvents    time.Duration     // how long to keep events, deliveries and attempts; 0 keeps them forever
	KeepAudit     time.Duration     // how long to keep audit events; 0 keeps them forever
	ExpiryNotice  []time.Duration   // how long before the end of a key or an access token an audit event announces it
	Bootstrap     access.Credential // the first operator's access token; required for a new file; see BootstrapCreated
	BootstrapLife time.Duration     // how long that token is valid; 0 means forever
	BootstrapLink access.Credential // the secret of a link that signs in once as that token; the zero value is none
	Observer      Observer          // may be nil
	Logger        *slog.Logger      // nil means slog.Default
	Now           func() time.Time  // of writes; nil means time.Now. The demo writes the past with it

	isCopy   bool                                                           // Restore sets it: the file is a copy, and no server uses it
	findKeys func(encryption.Source, sqlite.Start) (encryption.Keys, error) // nil means encryption.Source.FindOrCreate
	tune     func(*sqlite.Options)                                          // changes the options of the engine; may be nil
}

// Observer receives figures for metrics after each commit, as queue.Observer does. Its methods must return at once.
type Observer interface {
	// Committed reports a commit: how many writes shared it, and the time from BEGIN until it was durable.
	Committed(writes int, took time.Duration)
	queue.Observer
}

type noObserver struct{}

func (noObserver) Committed(int, time.Duration) {}
func (noObserver) Published(int)                {}
func (noObserver) HealthChanged(webhook.Status) {}
func (noObserver) Expired(int)                  {}
func (noObserver) Interrupted(int)              {}

// Store is the open database. Writes wait until Run is called.
type Store struct {
	*sqlite.File // its path, its sizes, and whether it can be written

	*directory.Directory        // who may do what
	*pending.Survey             // what is pending
	*history.History            // what was published, sent and changed
	*catalogue.Catalogue        // what the operator says about event types
	*queue.Queue                // publishes events, and writes their deliveries
	*subscription.Subscriptions // changes subscriptions
	*feed.Feeds                 // reads events for programs

	pools
	memory  *queue.Memory
	log     *slog.Logger
	keySet  bool // the encryption key is a setting
	notices []time.Duration
	cleaner *retention.Cleaner // used by upkeep, and in transactions that erase or close
	clock   *clock.Watch
}

// Run writes to the file and maintains it until ctx ends. Then it finishes the waiting writes and returns nil. It
// returns ErrFailed as soon as the file cannot keep what was acknowledged.
func (s *Store) Run(ctx context.Context) error { return s.File.Run(ctx, s.upkeep, s.drain) }

// Pending returns the number of all pending deliveries.
func (s *Store) Pending() int64 { return s.memory.Pending().Total() }

// Transact runs fn in one transaction: what fn reads and writes with the context that it gets belongs to it. If fn returns an error,
// nothing was written. payer is the row id of the organization that pays for about that many rows; see sqlite.File.Transact.
func (s *Store) Transact(ctx context.Context, payer int64, rows int, fn func(context.Context) error) error {
	return s.File.Transact(ctx, sqlite.Work{Payer: payer, Cost: rows}, fn)
}

// Ping reports whether a query of the database succeeds.
func (s *Store) Ping(ctx context.Context) error {
	var one int
	return s.pools.reads.Get(ctx, &one, "SELECT 1")
}

// OrganizationPage lists organizations with their figures, in the order of the filter. An
// order knows no organization that is younger than the figures.
func (s *Store) OrganizationPage(ctx context.Context, f access.OrganizationFilter) (page access.Page[access.ListedOrganization], err error) {
	figures, err := s.OrganizationFigures(ctx)
	if err != nil {
		return page, err
	}
	var found access.Page[access.Organization]
	if f.Sort == "" {
		found, err = s.Directory.OrganizationPage(ctx, f.Beginning, f.Before, f.Limit)
	} else {
		found.Rows, err = s.OrganizationsInOrder(ctx, inOrder(figures, f), f.Beginning, f.Limit)
	}
	for _, o := range found.Rows {
		page.Rows = append(page.Rows, access.ListedOrganization{Organization: o, OrganizationFigures: figures[o.RowID]})
	}
	page.Next = found.Next
	return page, err
}

// inOrder returns the row ids of the organizations that may be on a page. Without a search, those are as many as the page has.
func inOrder(figures map[int64]access.OrganizationFigures, f access.OrganizationFilter) []int64 {
	rows := make([]int64, 0, len(figures))
	for row, has := range figures {
		if f.Before == 0 || cmp.Or(cmp.Compare(f.Sort.Of(has), f.Figure), cmp.Compare(row, f.Before)) < 0 {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b int64) int {
		return cmp.Or(cmp.Compare(f.Sort.Of(figures[b]), f.Sort.Of(figures[a])), cmp.Compare(b, a))
	})
	if f.Beginning == "" {
		rows = rows[:min(len(rows), f.Limit)]
	}
	return rows
}
