package storage

import (
	"context"
	"errors"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/pending"
	"github.com/keyhook/keyhook/storage/retention"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Tx is a transaction as a write sees it.
type Tx struct{ *sqlite.Tx }

// Run runs a statement that returns no rows.
func (t *Tx) Run(text string, args ...any) error {
	return t.Exec(text, args...)
}

// change runs a write.
func (s *Store) change(ctx context.Context, work sqlite.Work, run func(*Tx) error) error {
	return s.File.Write(ctx, work, func(t *sqlite.Tx) error { return run(&Tx{t}) })
}

// Write runs a write of the store itself.
func (s *Store) Write(ctx context.Context, run func(*Tx) error) error {
	return s.change(ctx, sqlite.Work{}, run)
}

// WriteWhole runs a write of an organization that cannot be undone alone, so its failure rolls back all writes of its batch.
func (s *Store) WriteWhole(ctx context.Context, organization int64, run func(*Tx) error) error {
	return s.change(ctx, sqlite.Work{Payer: organization, Whole: true}, run)
}

// WriteFor runs a write of an organization with an expected number of rows.
func (s *Store) WriteFor(ctx context.Context, organization int64, rows int, urgent bool, run func(*Tx) error) error {
	return s.change(ctx, sqlite.Work{Payer: organization, Cost: rows, Urgent: urgent}, run)
}

// CountPending counts one pending delivery for each of the first subscriptions.
func (s *Store) CountPending(subscriptions int64) {
	for row := range subscriptions {
		s.memory.Pending().Add(row+1, 1)
	}
}

// FreshSurvey returns a survey that has read nothing yet.
func (s *Store) FreshSurvey() *pending.Survey { return newSurvey(s.memory, s.pools) }

// DeleteEvents deletes the events from before a time, as retention does, and returns how many transactions looked for some.
func (s *Store) DeleteEvents(ctx context.Context, before int64) (transactions int, err error) {
	o := retention.Options{
		File: s.File, Reads: s.pools.reads, Logs: s.pools.logs, Directory: s.Directory, Queue: s.Queue, Subscriptions: s.Subscriptions,
		IDs: s.memory.IDs, Logger: s.log, KeepEvents: time.Hour,
	}
	o.TrustedTime = func() (int64, bool) { // called once for each of them
		transactions++
		return before + o.KeepEvents.Milliseconds(), true
	}
	cleaner := retention.New(o)
	for last := -1; last < transactions && err == nil; { // DeleteOld may need several calls
		last = transactions
		err = cleaner.DeleteOld(ctx)
	}
	return transactions, err
}

// connection opens another connection to the file.
func (s *Store) connection() (*sqlx.DB, error) { return sqlx.Open("sqlite", "file:"+s.Path()) }

// HoldReplays takes a connection for replays until release.
func (s *Store) HoldReplays(ctx context.Context) (release func(), err error) {
	return s.replays.Connection(ctx)
}

// HoldFeeds takes a connection for feeds until release.
func (s *Store) HoldFeeds(ctx context.Context) (release func(), err error) {
	return s.feeds.Connection(ctx)
}

// MoveClock moves the observed times, so that the clock seems to have jumped at the next observation.
func (s *Store) MoveClock(jump time.Duration) {
	state := s.clock.Observe()
	state.Seen -= jump.Milliseconds()
	if state.Doubt != nil {
		doubt := *state.Doubt
		doubt.Trusted -= jump.Milliseconds()
		doubt.Expected -= jump.Milliseconds()
		state.Doubt = &doubt
	}
	s.clock.Set(state)
}

// AgeDoubt simulates a clock that ran for so long without a jump.
func (s *Store) AgeDoubt(agreed time.Duration) {
	state := s.clock.Observe()
	doubt := *state.Doubt
	doubt.Agreed += agreed
	state.Doubt = &doubt
	s.clock.Set(state)
}

// MoveEvents changes the times of the events and audit events in a range of rows, like a wrong clock.
func (s *Store) MoveEvents(ctx context.Context, first, last int64, by time.Duration) error {
	return s.Write(ctx, func(t *Tx) error {
		for _, statement := range []string{
			"UPDATE events SET created_at = created_at + ? WHERE id BETWEEN ? AND ?",
			"UPDATE audit_events SET at = at + ? WHERE id BETWEEN ? AND ?",
		} {
			if err := t.Run(statement, by.Milliseconds(), first, last); err != nil {
				return err
			}
		}
		return nil
	})
}

// PreviousSecrets returns how many previous secrets are kept.
func (s *Store) PreviousSecrets(ctx context.Context) (n int, err error) {
	return n, s.pools.reads.Get(ctx, &n, "SELECT count(*) FROM subscriptions WHERE previous_secret IS NOT NULL")
}

// Attempts returns the attempts of one page.
func (s *Store) Attempts(ctx context.Context, organization int64, id string, f webhook.AttemptFilter) ([]webhook.Attempt, error) {
	page, err := s.History.AttemptPage(ctx, organization, id, f)
	return page.Attempts, err
}

// AuditEvents returns the audit events of one page.
func (s *Store) AuditEvents(ctx context.Context, organization int64, f access.AuditFilter) ([]access.AuditEvent, error) {
	page, err := s.History.AuditPage(ctx, organization, f)
	return page.Rows, err
}

// Events returns the events of one page.
func (s *Store) Events(ctx context.Context, organization, before int64, limit int) ([]webhook.Event, error) {
	page, err := s.History.EventPage(ctx, organization, webhook.EventFilter{Before: before, Limit: limit})
	return page.Rows, err
}

// SubscriptionList returns the subscriptions of one page.
func (s *Store) SubscriptionList(ctx context.Context, organization int64, status webhook.Status, before int64, limit int) ([]webhook.Subscription, error) {
	f := webhook.SubscriptionFilter{Before: before, Limit: limit}
	if status != "" {
		f.Statuses = []webhook.Status{status}
	}
	page, err := s.History.SubscriptionPage(ctx, organization, f)
	return page.Rows, err
}

// BoundLog sets the limits of the write-ahead log in bytes.
func BoundLog(o Options, restart, warn int64) Options {
	o.tune = func(e *sqlite.Options) { e.LogBounds = sqlite.LogBounds{Restart: restart, Warn: warn} }
	return o
}

// BoundSearches sets the limit of a search and its first slice, in rows.
func (s *Store) BoundSearches(rows, slice int) { s.logs.Limits = scan.Limits{Rows: rows, Slice: slice} }

// TakeTurn takes the turn of an organization for reads of logs.
func (s *Store) TakeTurn(ctx context.Context, organization int64) (end func(), err error) {
	return s.logs.Take(ctx, organization)
}

// TakeReplayTurn takes the turn of an organization for reads of replays.
func (s *Store) TakeReplayTurn(ctx context.Context, organization int64) (end func(), err error) {
	return s.replays.Take(ctx, organization)
}

// BeginLogRead begins a read of a log that lasts until end is called, like a slice of a search.
func (s *Store) BeginLogRead(ctx context.Context) (end func(), err error) {
	free, err := s.logs.Connection(ctx)
	if err != nil {
		return nil, err
	}
	db, err := s.connection()
	if err != nil {
		free()
		return nil, err
	}
	t, err := db.BeginTxx(ctx, nil)
	if err != nil {
		free()
		return nil, errors.Join(err, db.Close())
	}
	var newest int64
	return func() {
		_ = errors.Join(t.Rollback(), db.Close())
		free()
	}, t.Get(&newest, "SELECT coalesce(max(id), 0) FROM events")
}

// Pend adds to the pending count of a subscription.
func (s *Store) Pend(subscription, n int64) { s.memory.Pending().Add(subscription, n) }

// ForgetShared makes the next shared read a new one.
func (s *Store) ForgetShared() { s.Survey = newSurvey(s.memory, s.pools) }
