package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
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
type Tx = tx

// Run runs a statement that returns no rows.
func (t *tx) Run(text string, args ...any) error {
	_, err := t.Exec(text, args...)
	return err
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
		s.Queue.pending.Add(row+1, 1)
	}
}

// FreshSurvey returns a survey that has read nothing yet.
func (s *Store) FreshSurvey() *pending.Survey { return newSurvey(s.shared, s.pools) }

// WriteHealth writes a subscription's health.
func (t *tx) WriteHealth(subscription int64, h webhook.Health) error {
	return writeHealth(t, subscription, h)
}

// RecordIn records the result of an attempt in a transaction.
func (s *Store) RecordIn(t *Tx, r webhook.Result) error {
	_, err := t.record([]webhook.Result{r})
	return err
}

// PublishIn publishes an event in a transaction.
func (s *Store) PublishIn(t *Tx, organization int64, eventType string) error {
	_, err := t.publish(organization, "org_x", webhook.NewEvent{Type: eventType, Data: []byte("{}")}, 0)
	return err
}

// TakePlaceIn takes a place for the first attempt of a delivery in a transaction, and writes no row.
func (s *Store) TakePlaceIn(t *Tx, organization, subscription int64) error {
	j := webhook.Job{Organization: organization, Subscription: subscription}
	return t.setFirstAttempt(&j)
}

// CountBytesIn counts bytes of an organization in a transaction, and writes no row.
func (t *tx) CountBytesIn(organization int64, bytes int) { t.quotas.Count(t.Tx, organization, bytes) }

// Together runs functions in one transaction. Run must not have been called.
func (s *Store) Together(fns ...func(*Tx) error) error {
	return s.changeBeforeRun(func(t *tx) error {
		for _, fn := range fns {
			if err := fn(t); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeleteEvents deletes the events from before a time, as retention does, and returns how many transactions looked for some. Every
// transaction that deletes a pending delivery fails with refusal, if that is not nil.
func (s *Store) DeleteEvents(ctx context.Context, before int64, refusal error) (transactions int, err error) {
	o := Options{KeepEvents: time.Hour, Logger: s.log}.retention(s.writer, s.pools, s.Directory, s.clock)
	o.TrustedTime = func() (int64, bool) { return before + o.KeepEvents.Milliseconds(), true }
	held, expired := o.Held, o.Expired
	o.Held = func(t *sqlite.Tx) (bool, error) {
		transactions++
		return held(t)
	}
	o.Expired = func(t *sqlite.Tx, subscription int64) (bool, error) {
		expected, err := expired(t, subscription)
		return expected, errors.Join(err, refusal)
	}
	cleaner := retention.New(o)
	for last := -1; last < transactions && err == nil; { // DeleteOld may need several calls
		last = transactions
		err = cleaner.DeleteOld(ctx)
	}
	return transactions, err
}

// QueryPlans returns the query plans of all statements that the store has run, by text.
func (s *Store) QueryPlans(ctx context.Context) (map[string][]string, error) {
	texts, err := s.file.Statements(ctx)
	if err != nil {
		return nil, err
	}
	db, err := s.connection()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	slices.Sort(texts)
	plans := map[string][]string{}
	for _, text := range slices.Compact(texts) {
		if plans[text], err = explainPlan(ctx, db, text); err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
	}
	return plans, nil
}

// connection opens another connection to the file.
func (s *Store) connection() (*sqlx.DB, error) { return sqlx.Open("sqlite", "file:"+s.Path()) }

func explainPlan(ctx context.Context, db *sqlx.DB, text string) (plan []string, err error) {
	var steps []struct {
		ID     int    `db:"id"`
		Parent int    `db:"parent"`
		Unused int    `db:"notused"`
		Detail string `db:"detail"`
	}
	if err := db.SelectContext(ctx, &steps, "EXPLAIN QUERY PLAN "+text, parameters(text)...); err != nil {
		return nil, err
	}
	for _, step := range steps {
		plan = append(plan, step.Detail)
	}
	return plan, nil
}

// parameters returns NULL for each parameter of a statement: for its names, or its plain question marks, or up to the highest number.
func parameters(text string) (args []any) {
	for _, name := range regexp.MustCompile(`:[a-z_]+`).FindAllString(text, -1) {
		args = append(args, sql.Named(name[1:], nil))
	}
	for _, mark := range regexp.MustCompile(`\?[0-9]*`).FindAllString(text, -1) {
		number, err := strconv.Atoi(mark[1:])
		if err != nil {
			number = len(args) + 1
		}
		args = append(args, make([]any, max(0, number-len(args)))...)
	}
	return args
}

// HoldReplays takes a connection for replays until release.
func (q *Queue) HoldReplays(ctx context.Context) (release func(), err error) {
	return q.replays.Connection(ctx)
}

// HoldFeeds takes a connection for feeds until release.
func (q *Queue) HoldFeeds(ctx context.Context) (release func(), err error) {
	return q.feeds.Connection(ctx)
}

// HoldIn holds the queue in a transaction.
func (s *Store) HoldIn(t *Tx, reason string) error { return t.holdQueue(reason) }

// Holds reports whether the transaction sees a hold.
func (t *tx) Holds() (bool, error) {
	hold, err := t.hold()
	return hold != nil, err
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
	return s.change(ctx, sqlite.Work{}, func(t *tx) error {
		t.OnCommit(func() { t.latestTime += by.Milliseconds() })
		for _, statement := range []string{
			"UPDATE events SET created_at = created_at + ? WHERE id BETWEEN ? AND ?",
			"UPDATE audit_events SET at = at + ? WHERE id BETWEEN ? AND ?",
		} {
			if _, err := t.Exec(statement, by.Milliseconds(), first, last); err != nil {
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
	return page.Events, err
}

// Events returns the events of one page.
func (s *Store) Events(ctx context.Context, organization, before int64, limit int) ([]webhook.Event, error) {
	page, err := s.History.EventPage(ctx, organization, webhook.EventFilter{Before: before, Limit: limit})
	return page.Events, err
}

// SubscriptionList returns the subscriptions of one page.
func (s *Store) SubscriptionList(ctx context.Context, organization int64, status webhook.Status, before int64, limit int) ([]webhook.Subscription, error) {
	f := webhook.SubscriptionFilter{Before: before, Limit: limit}
	if status != "" {
		f.Statuses = []webhook.Status{status}
	}
	page, err := s.History.SubscriptionPage(ctx, organization, f)
	return page.Subscriptions, err
}

// BoundLog sets the limits of the write-ahead log in bytes.
func BoundLog(o Options, restart, warn int64) Options {
	o.logBounds = sqlite.LogBounds{Restart: restart, Warn: warn}
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
	return s.Queue.replays.Take(ctx, organization)
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
func (s *Store) Pend(subscription, n int64) { s.Queue.pending.Add(subscription, n) }

// StoredToday returns the bytes that an organization has stored today.
func (s *Store) StoredToday(ctx context.Context, organization int64) (int64, error) {
	return returning(ctx, s.writer, sqlite.Work{}, func(t *tx) (int64, error) { return t.StoredToday(organization) })
}

// StoredToday is Store.StoredToday in a transaction.
func (t *tx) StoredToday(organization int64) (int64, error) {
	q, err := t.quotas.Of(t.Tx, organization)
	if err != nil {
		return 0, err
	}
	return q.Bytes, nil
}

// StorageDays returns the number of stored counts of an organization.
func (s *Store) StorageDays(ctx context.Context, organization int64) (n int, err error) {
	return n, s.pools.reads.Get(ctx, &n, "SELECT count(*) FROM organization_days WHERE organization_id = ?", organization)
}

// PublishEventIn publishes any event in a transaction.
func (s *Store) PublishEventIn(t *Tx, organization int64, e webhook.NewEvent) error {
	_, err := t.publish(organization, "org_x", e, 0)
	return err
}

// ReadOrganizationID reads the public id of an organization again.
func (t *tx) ReadOrganizationID(row int64) (string, error) {
	t.forgetOrganization(row)
	return t.organizationID(row)
}

// OrganizationID returns the public id of an organization as the writer knows it.
func (s *Store) OrganizationID(ctx context.Context, row int64) (string, error) {
	return returning(ctx, s.writer, sqlite.Work{}, func(t *tx) (string, error) { return t.organizationID(row) })
}

// ForgetQuotas forgets the counts of stored bytes, as a change of a plan does.
func (t *tx) ForgetQuotas() { t.quotas.Forget() }

// Delayed returns how many events of the transaction are not in the table yet.
func (t *tx) Delayed() int { return len(t.newRows.events) / eventArgs }

// ForgetShared makes the next shared read a new one.
func (s *Store) ForgetShared() { s.Survey = newSurvey(s.tx.shared, s.pools) }
