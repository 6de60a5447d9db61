package queue

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Record stores the results of attempts in one transaction, all or none: the attempts, their deliveries, the health of the subscriptions,
// the counts of the minute, and an audit event for each change of a status. It returns the new states in the order of the results.
func (q *Queue) Record(ctx context.Context, results ...webhook.Result) ([]webhook.Settled, error) {
	settled, err := returning(ctx, q, sqlite.Work{Cost: 2 * len(results), Whole: true}, func(t *tx) ([]webhook.Settled, error) {
		return t.record(results)
	})
	if err != nil {
		return nil, fmt.Errorf("record attempts: %w", err)
	}
	return settled, nil
}

func (t *tx) record(results []webhook.Result) ([]webhook.Settled, error) {
	sending, err := deliveriesInProgress(t, results)
	if err != nil {
		return nil, err
	}
	settled := make([]webhook.Settled, len(results))
	for i, r := range results {
		if settled[i], err = t.settle(r, sending[i]); err != nil {
			return nil, err
		}
	}
	if err := insertAttempts(t, results, sending, settled); err != nil {
		return nil, fmt.Errorf("insert attempts: %w", err)
	}
	if err := settleDeliveries(t, results, settled); err != nil {
		return nil, fmt.Errorf("update deliveries: %w", err)
	}
	return settled, nil
}

// sendingDelivery is a delivery with an attempt in progress. The writer remembers those that began since its last rollback and
// since the last drop.
type sendingDelivery struct {
	ID           int64           `db:"id"`
	Subscription int64           `db:"subscription_id"`
	Cause        webhook.Trigger `db:"cause"` // of the attempt
	Attempts     int             `db:"attempts"`
	BegunAt      int64           `db:"due_at"`
	Last         bool            `db:"last"` // nothing follows the attempt; see delivery.SendingLast
}

// maxSending limits the deliveries in progress that the writer remembers: some megabytes.
const maxSending = 20_000

// rememberSending remembers a delivery whose attempt the transaction begins. So Record need not read it.
func (t *tx) rememberSending(d sendingDelivery) {
	if len(t.sending) >= maxSending {
		clear(t.sending)
	}
	t.sending[d.ID] = d
}

// deliveriesInProgress returns the deliveries of the results, and forgets them. It refuses a result whose attempt is not in progress.
func deliveriesInProgress(t *tx, results []webhook.Result) ([]sendingDelivery, error) {
	var unknown []int64
	for _, r := range results {
		if _, ok := t.sending[r.Delivery]; !ok {
			unknown = append(unknown, r.Delivery)
		}
	}
	if len(unknown) > 0 {
		rows, err := sqlite.All[sendingDelivery](t, selectSending, sqlite.RowList(slices.Values(unknown)))
		if err != nil {
			return nil, fmt.Errorf("read deliveries: %w", err)
		}
		for _, d := range rows {
			t.sending[d.ID] = d
		}
	}
	found := make([]sendingDelivery, len(results))
	for i, r := range results {
		d := t.sending[r.Delivery]
		if found[i] = d; d.ID != r.Delivery || webhook.AttemptRow(d.ID, d.Attempts+1) != r.Attempt {
			return nil, fmt.Errorf("attempt %d is not in progress", r.Attempt)
		}
		delete(t.sending, r.Delivery)
	}
	return found, nil
}

const selectSending = `
	SELECT d.id, d.subscription_id, ` + delivery.AttemptCause + ` AS cause, d.attempts, d.due_at, d.state = ` + delivery.SendingLast + ` AS last
	FROM json_each(?) wanted CROSS JOIN deliveries d ON d.id = wanted.value WHERE d.state >= ` + delivery.Sending

// settle updates everything that a result changes, except the rows of the attempt and the delivery.
func (t *tx) settle(r webhook.Result, d sendingDelivery) (settled webhook.Settled, err error) {
	settled.State, settled.DueAt = t.nextState(r, d)
	if r.Trigger != webhook.ByTest {
		sub, err := t.Fanout.Subscription(t.Tx, r.Subscription)
		if err != nil {
			return settled, err
		}
		before := sub.Status
		if settled.Health, err = t.stepHealth(sub, r); err != nil {
			return settled, err
		}
		settled.Changed = settled.Health.Status != before
		t.addCounts(sub.Organization, r.Subscription, func(c *webhook.AttemptCounts) { c.Add(r.Succeeded, r.DurationMS) })
		t.Quotas.Add(t.Tx, sub.Organization, deliveryUses[settled.State])
	}
	if settled.State == webhook.Exhausted {
		settled.DueAt = t.Now()
	}
	if !d.Last && settled.State != webhook.Pending {
		t.OnCommit(func() { t.pending.Add(r.Subscription, -1) })
	}
	return settled, nil
}

// nextState returns the next state of the delivery and its due time.
func (t *tx) nextState(r webhook.Result, d sendingDelivery) (webhook.DeliveryState, int64) {
	switch {
	case r.Succeeded:
		return webhook.Delivered, 0
	case d.Last && d.Cause != webhook.ByTest:
		return webhook.Dropped, 0
	case d.Last || r.Number >= t.policy.MaxAttempts:
		return webhook.Exhausted, 0
	}
	return webhook.Pending, r.RetryAt
}

func insertAttempts(t *tx, results []webhook.Result, sending []sendingDelivery, settled []webhook.Settled) error {
	const attemptArgs = 11 // of one row
	args := make([]any, 0, len(results)*attemptArgs)
	for i := range results {
		r, d := &results[i], &sending[i]
		outcome := webhook.Failed
		if r.Succeeded {
			outcome = webhook.Succeeded
		}
		var next sql.NullInt64
		if settled[i].State == webhook.Pending { // what a failing subscription adds is known when it is read; see webhook.Schedule
			next = sql.NullInt64{Int64: settled[i].DueAt, Valid: true}
		}
		args = append(args, r.Attempt, d.Subscription, d.Cause, outcome, r.ResponseStatus, r.ResponseBody, r.ResponseHeader,
			r.DurationMS, r.Failure.String(), d.BegunAt, next)
	}
	_, err := insertAttemptRows.Exec(t.Tx, attemptArgs, args)
	return err
}

var insertAttemptRows = sqlite.Statements(func(n int) string {
	const row = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	return `INSERT INTO attempts (id, subscription_id, cause, outcome, response_status, response_body, response_headers, duration_ms, error, attempted_at, next_attempt_at)
		VALUES ` + row + strings.Repeat(", "+row, n-1)
})

// settleDeliveries writes the next states of the deliveries, which are in progress. An error rolls the transaction back, which forgets
// the deliveries that the writer remembers.
func settleDeliveries(t *tx, results []webhook.Result, settled []webhook.Settled) error {
	delivered, missing := make([]any, 0, len(results)), int64(len(results))
	for i, next := range settled {
		if next.State == webhook.Delivered {
			delivered = append(delivered, results[i].Delivery)
			continue
		}
		changed, err := t.Affected("UPDATE deliveries SET state = ?, attempts = attempts + 1, due_at = ? WHERE id = ? AND state >= "+delivery.Sending,
			next.State, next.DueAt, results[i].Delivery)
		if err != nil {
			return err
		}
		missing -= changed
	}
	changed, err := deliver.Exec(t.Tx, 1, delivered)
	if missing -= changed; err == nil && missing != 0 {
		err = fmt.Errorf("%d of %d deliveries are not in progress", missing, len(results))
	}
	return err
}

var deliver = sqlite.Statements(func(n int) string {
	return `UPDATE OR FAIL deliveries SET state = ` + delivery.Delivered + `, attempts = attempts + 1, due_at = 0
		WHERE id IN (?` + strings.Repeat(", ?", n-1) + `) AND state >= ` + delivery.Sending
})

const minute = 60_000 // milliseconds

// minuteKey is the key of a row of attempt_minutes: the attempts of a subscription in a minute. If subscription is 0, it is those of
// the whole organization. If both are 0, it is those of all organizations, because to add up the rows of 1,000 organizations for a
// day takes seconds.
type minuteKey struct{ organization, subscription, minute int64 }

// deliveryUses are what the usage counts of a delivery that has ended. The other ends are in no count.
var deliveryUses = map[webhook.DeliveryState]access.OrganizationUse{webhook.Delivered: {Succeeded: 1}, webhook.Exhausted: {Failed: 1}}

// Expired notes that the transaction deletes a pending delivery. It waited for a closed subscription. For a deleted one, it is not
// counted: nobody expects it.
func (q *Queue) Expired(now *sqlite.Tx, subscription int64) error {
	t := q.o.Memory.with(now)
	t.OnCommit(func() { t.pending.Add(subscription, -1) })
	sub, err := t.Fanout.Subscription(t.Tx, subscription)
	if err != nil || sub.Deleted {
		return err
	}
	t.addCounts(sub.Organization, subscription, func(c *webhook.AttemptCounts) { c.Expired++ })
	t.OnCommit(func() { t.observer.Expired(1) })
	return nil
}

// addCounts changes the counts of this minute. The transaction writes the counts of all its writes once, at its end.
func (t *tx) addCounts(organization, subscription int64, add func(*webhook.AttemptCounts)) {
	now := t.Now() / minute
	for _, key := range [...]minuteKey{{0, 0, now}, {organization, 0, now}, {organization, subscription, now}} {
		counts, ok := t.attemptCounts[key]
		if !ok {
			counts = new(webhook.AttemptCounts)
			t.attemptCounts[key] = counts
		}
		add(counts)
	}
	t.UndoIfFailed()
}

func (t *tx) writeAttemptCounts() error {
	for key, counts := range t.attemptCounts {
		args := make([]any, 0, 6+len(counts.Took))
		args = append(args, key.organization, key.subscription, key.minute, counts.Succeeded, counts.Failed, counts.Expired)
		for _, n := range counts.Took {
			args = append(args, n)
		}
		if err := t.Exec(addAttemptCounts, args...); err != nil {
			return fmt.Errorf("count attempts: %w", err)
		}
	}
	clear(t.attemptCounts)
	return nil
}

var addAttemptCounts = func() string {
	columns := append([]string{"succeeded", "failed", "expired"}, history.DurationColumns...)
	sums := make([]string, len(columns))
	for i, c := range columns {
		sums[i] = c + " = " + c + " + excluded." + c
	}
	return `
		INSERT INTO attempt_minutes (organization_id, subscription_id, minute, ` + strings.Join(columns, ", ") + `)
		VALUES (?, ?, ?` + strings.Repeat(", ?", len(columns)) + `)
		ON CONFLICT (organization_id, subscription_id, minute) DO UPDATE SET ` + strings.Join(sums, ", ")
}()
