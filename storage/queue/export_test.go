package queue

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Tx is a transaction as a write sees it.
type Tx = tx

// Run runs a statement that returns no rows.
func (t *tx) Run(text string, args ...any) error {
	return t.Exec(text, args...)
}

// Write runs a write of the queue itself.
func (q *Queue) Write(ctx context.Context, run func(*Tx) error) error {
	return q.change(ctx, sqlite.Work{}, run)
}

// WriteWhole runs a write of an organization that cannot be undone alone, so its failure rolls back all writes of its batch.
func (q *Queue) WriteWhole(ctx context.Context, organization int64, run func(*Tx) error) error {
	return q.change(ctx, sqlite.Work{Payer: organization, Whole: true}, run)
}

// WriteFor runs a write of an organization with an expected number of rows.
func (q *Queue) WriteFor(ctx context.Context, organization int64, rows int, urgent bool, run func(*Tx) error) error {
	return q.change(ctx, sqlite.Work{Payer: organization, Cost: rows, Urgent: urgent}, run)
}

// Together runs functions in one transaction. Run must not have been called.
func (q *Queue) Together(fns ...func(*Tx) error) error {
	return q.o.File.Alone(q.o.Memory.job(func(t *tx) error {
		for _, fn := range fns {
			if err := fn(t); err != nil {
				return err
			}
		}
		return nil
	}))
}

// WriteHealth writes a subscription's health, and counts nothing.
func (t *tx) WriteHealth(subscription int64, h webhook.Health) error {
	return t.writeHealth(subscription, h, h)
}

// RecordIn records the result of an attempt in a transaction.
func (q *Queue) RecordIn(t *Tx, r webhook.Result) error {
	_, err := t.record([]webhook.Result{r})
	return err
}

// PublishIn publishes an event in a transaction.
func (q *Queue) PublishIn(t *Tx, organization int64, eventType string) error {
	return q.PublishEventIn(t, organization, webhook.NewEvent{Type: eventType, Data: []byte("{}")})
}

// PublishEventIn publishes any event in a transaction.
func (q *Queue) PublishEventIn(t *Tx, organization int64, e webhook.NewEvent) error {
	_, err := t.publish(organization, e, 0)
	return err
}

// TakePlaceIn takes a place for the first attempt of a delivery in a transaction, and writes no row.
func (q *Queue) TakePlaceIn(t *Tx, organization, subscription int64) error {
	sub, err := t.Fanout.Subscription(t.Tx, subscription)
	if err != nil {
		return err
	}
	return t.setFirstAttempt(sub, &webhook.Job{Organization: organization, Subscription: subscription})
}

// CountBytesIn counts bytes of an organization in a transaction, and writes no row.
func (t *tx) CountBytesIn(organization int64, bytes int) { t.Quotas.Count(t.Tx, organization, bytes) }

// StoredToday returns the bytes that an organization has stored today.
func (q *Queue) StoredToday(ctx context.Context, organization int64) (int64, error) {
	return returning(ctx, q, sqlite.Work{}, func(t *tx) (int64, error) { return t.StoredToday(organization) })
}

// StoredToday is Queue.StoredToday in a transaction.
func (t *tx) StoredToday(organization int64) (int64, error) {
	of, err := t.Quotas.Of(t.Tx, organization)
	if err != nil {
		return 0, err
	}
	return of.Bytes, nil
}

// StorageDays returns the number of stored counts of an organization.
func (q *Queue) StorageDays(ctx context.Context, organization int64) (n int, err error) {
	return n, q.o.Reads.Get(ctx, &n, "SELECT count(*) FROM organization_days WHERE organization_id = ?", organization)
}

// ForgetQuotas forgets the counts of stored bytes, as a change of a plan does.
func (t *tx) ForgetQuotas() { t.Quotas.Forget() }

// HoldIn holds the queue in a transaction.
func (q *Queue) HoldIn(t *Tx, reason string) error { return q.BeginHold(t.Tx, reason) }

// Holds reports whether the transaction sees a hold.
func (t *tx) Holds() (bool, error) {
	hold, err := t.hold()
	return hold != nil, err
}

// MoveEvents changes the times of the events and audit events in a range of rows, like a wrong clock.
func (q *Queue) MoveEvents(ctx context.Context, first, last int64, by time.Duration) error {
	return q.change(ctx, sqlite.Work{}, func(t *tx) error {
		t.OnCommit(func() { t.latestTime += by.Milliseconds() })
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

// Pend adds to the pending count of a subscription.
func (q *Queue) Pend(subscription, n int64) { q.pending.Add(subscription, n) }

// TakeReplayTurn takes the turn of an organization for reads of replays.
func (q *Queue) TakeReplayTurn(ctx context.Context, organization int64) (end func(), err error) {
	return q.o.Replays.Take(ctx, organization)
}

// ReadOrganizationID reads the public id of an organization again.
func (t *tx) ReadOrganizationID(row int64) (string, error) {
	t.Quotas.Forget()
	return t.organizationID(row)
}

func (t *tx) organizationID(row int64) (string, error) {
	has, err := t.Quotas.Of(t.Tx, row)
	if err != nil {
		return "", err
	}
	return has.ID, nil
}

// OrganizationID returns the public id of an organization as the writer knows it.
func (q *Queue) OrganizationID(ctx context.Context, row int64) (string, error) {
	return returning(ctx, q, sqlite.Work{}, func(t *tx) (string, error) { return t.organizationID(row) })
}

// Delayed returns how many events of the transaction are not in the table yet.
func (t *tx) Delayed() int { return len(t.newRows.events) / eventArgs }

// Attempts returns the attempts of one page.
func (q *Queue) Attempts(ctx context.Context, organization int64, id string, f webhook.AttemptFilter) ([]webhook.Attempt, error) {
	page, err := q.o.History.AttemptPage(ctx, organization, id, f)
	return page.Attempts, err
}

// AuditEvents returns the audit events of one page.
func (q *Queue) AuditEvents(ctx context.Context, organization int64, f access.AuditFilter) ([]access.AuditEvent, error) {
	page, err := q.o.History.AuditPage(ctx, organization, f)
	return page.Rows, err
}

// Events returns the events of one page.
func (q *Queue) Events(ctx context.Context, organization, before int64, limit int) ([]webhook.Event, error) {
	page, err := q.o.History.EventPage(ctx, organization, webhook.EventFilter{Before: before, Limit: limit})
	return page.Rows, err
}

// SubscriptionList returns the subscriptions of one page.
func (q *Queue) SubscriptionList(ctx context.Context, organization int64, status webhook.Status, before int64, limit int) ([]webhook.Subscription, error) {
	f := webhook.SubscriptionFilter{Before: before, Limit: limit}
	if status != "" {
		f.Statuses = []webhook.Status{status}
	}
	page, err := q.o.History.SubscriptionPage(ctx, organization, f)
	return page.Rows, err
}
