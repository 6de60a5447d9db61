package storage

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Lanes lists the subscriptions that have pending deliveries, open or not. Its cost is theirs, not that of what is
// pending: the numbers are kept, and the earliest of each is one step into the index.
func (s *Store) Lanes(ctx context.Context) ([]webhook.Lane, error) {
	counts := s.pending.all()
	lanes := []webhook.Lane{}
	err := s.surveys.List(ctx, &lanes, `
		SELECT j.value AS subscription_id, coalesce(s.organization_id, 0) AS organization_id, first.due_at FROM json_each(?) j
		LEFT JOIN subscriptions s ON s.id = j.value
		JOIN deliveries first ON first.id = (
			`+firstPending("j.value")+`)`, rowList(maps.Keys(counts)))
	for i := range lanes {
		lanes[i].Pending = counts[lanes[i].Subscription]
	}
	return lanes, err
}

// rowList writes row ids as a JSON array, for json_each.
func rowList(rows iter.Seq[int64]) string {
	b := []byte{'['}
	for row := range rows {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, row, 10)
	}
	return string(append(b, ']'))
}

// PendingJobs returns the pending deliveries of a subscription that are due first, whether due already or not, at most
// limit of them, and none of the excepted ones.
func (s *Store) PendingJobs(ctx context.Context, subscription int64, limit int, except []int64) ([]webhook.Job, error) {
	jobs := []webhook.Job{}
	err := s.list(ctx, &jobs, `
		SELECT d.id, d.subscription_id, e.organization_id, d.event_id, d.attempts, d.due_at, d.cause,
		       e.type AS event_type, e.created_at AS event_at, e.body
		FROM deliveries d INDEXED BY deliveries_pending JOIN events e ON e.id = d.event_id
		WHERE d.subscription_id = ? AND d.state = `+statePending+` AND d.id NOT IN (SELECT value FROM json_each(?))
		ORDER BY d.due_at LIMIT ?`, subscription, rowList(slices.Values(except)), limit)
	for i := range jobs {
		jobs[i].EventID = s.ids.ID(access.EventID, jobs[i].Event, jobs[i].EventAt)
	}
	return jobs, err
}

// Begin records attempts before they are sent, in one transaction, and returns their row ids in the same order. An
// attempt whose subscription is closed by now, or in another epoch than the asker believes, or whose delivery no longer
// waits for it, gets 0 and must not be sent; so do all while the queue is held. The record is what claims the delivery.
func (s *Store) Begin(ctx context.Context, starts []webhook.Start) ([]int64, error) {
	ids := make([]int64, len(starts))
	err := s.workFor(0).rows(len(starts)).change(ctx, func(t *tx) error {
		clear(ids)
		if hold, err := t.hold(); err != nil || hold != nil {
			return err
		}
		for i, start := range starts {
			sub, err := t.subscriber(start.Subscription)
			if err != nil {
				return err
			}
			if !sub.open() || sub.Epoch != start.Epoch {
				continue
			}
			if ids[i], err = beginAttempt(t, start); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("begin attempts: %w", err)
	}
	return ids, nil
}

// beginAttempt inserts the record, unless the delivery has ended, or is another subscription's by now, since row ids are
// used again (there is no subscription then, which the table does not take), or another attempt of that number has been
// made. To insert VALUES costs less than to insert from a SELECT: no more than one row can come of it, so SQLite keeps
// nothing by to undo a part of the statement.
func beginAttempt(t *tx, start webhook.Start) (int64, error) {
	row := attemptRow(start.Delivery, start.Number)
	n, err := t.Affected(`
		INSERT OR IGNORE INTO attempts (id, subscription_id, cause, outcome, response_body, duration_ms, error, attempted_at)
		VALUES (?, (SELECT subscription_id FROM deliveries WHERE id = ? AND subscription_id = ? AND state = `+statePending+` AND attempts = ?), ?, `+outcomeSending+`, '', 0, '', ?)`,
		row, start.Delivery, start.Subscription, start.Number-1, start.Trigger, t.Now())
	if err != nil || n == 0 {
		return 0, err
	}
	return row, nil
}

// attemptRow is the row id of an attempt. It says which attempt of which delivery it is, so that one is found by the
// other without an index. A delivery has at most maxAttempts attempts, and maxInterruptions more, which is less than 256.
func attemptRow(delivery int64, number int) int64 { return delivery<<8 | int64(number) }

// Release takes back attempts that were begun and not sent: it is as if they had never been begun.
func (s *Store) Release(ctx context.Context, attempts []int64) error {
	err := s.change(ctx, func(t *tx) error {
		for _, id := range attempts {
			if _, err := t.Exec("DELETE FROM attempts WHERE id = ? AND outcome = "+outcomeSending, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("release attempts: %w", err)
	}
	return nil
}

// Record writes how an attempt ended and all that follows from it, in one transaction: the attempt, the delivery, the
// subscription's health, the counts of the minute, and the audit event of a transition.
func (s *Store) Record(ctx context.Context, r webhook.Result) (webhook.Settled, error) {
	settled, err := returning(ctx, s, func(t *tx) (webhook.Settled, error) { return s.record(t, r) })
	if err != nil {
		return settled, fmt.Errorf("record attempt: %w", err)
	}
	return settled, nil
}

func (s *Store) record(t *tx, r webhook.Result) (webhook.Settled, error) {
	var settled webhook.Settled
	if r.Trigger != webhook.ByTest {
		sub, err := t.subscriber(r.Subscription)
		if err != nil {
			return settled, err
		}
		before := sub.Status
		if settled.Health, err = s.stepHealth(t, sub, r); err != nil {
			return settled, err
		}
		settled.Changed = settled.Health.Status != before
		t.countAttempt(sub.Organization, r)
	}
	settled.State, settled.DueAt = s.nextState(r)
	if err := closeAttempt(t, r, settled); err != nil {
		return settled, err
	}
	n, err := t.Affected(`
		UPDATE deliveries SET state = ?, attempts = ?, due_at = ? WHERE id = ? AND state = `+statePending,
		settled.State, r.Number, settled.DueAt, r.Delivery)
	if err != nil {
		return settled, err
	}
	switch {
	case n == 0 && (r.Succeeded || r.Trigger == webhook.ByTest): // dropped on its way, and yet arrived; or never pending
		_, err = t.Exec("UPDATE deliveries SET state = ?, attempts = ? WHERE id = ?", settled.State, r.Number, r.Delivery)
	case n == 1 && settled.State != webhook.Pending:
		t.OnCommit(func() { s.pending.add(r.Subscription, -1) })
	}
	return settled, err
}

// nextState says what becomes of the delivery.
func (s *Store) nextState(r webhook.Result) (webhook.DeliveryState, int64) {
	switch {
	case r.Succeeded:
		return webhook.Delivered, 0
	case r.Trigger == webhook.ByTest || r.Number >= s.policy.MaxAttempts:
		return webhook.Exhausted, 0
	}
	return webhook.Pending, r.RetryAt
}

// closeAttempt fills in the record that Begin made.
func closeAttempt(t *tx, r webhook.Result, settled webhook.Settled) error {
	outcome := webhook.Failed
	if r.Succeeded {
		outcome = webhook.Succeeded
	}
	var next sql.NullInt64
	if settled.State == webhook.Pending && settled.Health.Status != webhook.Disabled {
		next = sql.NullInt64{Int64: max(settled.DueAt, settled.Health.ProbeAt), Valid: true}
	}
	n, err := t.Affected(`
		UPDATE attempts SET outcome = ?, response_status = ?, response_body = ?, duration_ms = ?, error = ?, next_attempt_at = ?
		WHERE id = ? AND outcome = `+outcomeSending,
		outcome, r.ResponseStatus, r.ResponseBody, r.DurationMS, r.Failure.String(), next, r.Attempt)
	if err == nil && n == 0 {
		return fmt.Errorf("attempt %d is not in progress", r.Attempt)
	}
	return err
}

// interruptSending ends the attempts that a dead owner of the file has left behind. They keep their numbers, count for
// nothing in the health, and their deliveries are due again: even after the last attempt, because what was accepted is
// sent until a receiver has had its say. Only a delivery that has been cut off again and again is given up, lest it be
// what brings the process down.
func (s *Store) interruptSending(t *tx) error {
	var left []struct {
		Delivery int64 `db:"delivery_id"`
		Number   int   `db:"attempt_number"`
	}
	if err := t.ExecList(&left, `
		UPDATE attempts SET outcome = `+outcomeInterrupted+`, error = 'interrupted: the server stopped before the attempt ended'
		WHERE outcome = `+outcomeSending+` RETURNING delivery_id, attempt_number`); err != nil {
		return err
	}
	for _, a := range left {
		state := webhook.Pending
		if a.Number >= s.policy.MaxAttempts+maxInterruptions {
			state = webhook.Exhausted
		}
		if _, err := t.Exec("UPDATE deliveries SET state = ?, attempts = ?, due_at = ? WHERE id = ? AND state = "+statePending,
			state, a.Number, t.Now(), a.Delivery); err != nil {
			return err
		}
	}
	if len(left) > 0 {
		t.OnCommit(func() { s.observer.Interrupted(len(left)) })
		s.log.Warn("attempts were interrupted by the last stop; their deliveries are due again", "attempts", len(left))
	}
	return nil
}

const (
	// maxInterruptions is how many attempts beyond the last a delivery gets, should each of them be cut off.
	maxInterruptions = 5
	// maxAttempts is the most that a policy may allow: an attempt's number has 8 bits of its row id.
	maxAttempts = 1<<8 - 1 - maxInterruptions
)

// requireWebhooks refuses where the organization's plan lacks webhooks.
func requireWebhooks(t *tx, organization int64) error {
	var webhooks bool
	if err := t.Get(&webhooks, "SELECT p.webhooks FROM organizations o JOIN plans p ON p.id = o.plan_id WHERE o.id = ?", organization); err != nil {
		return sqlite.Missing(err, "organization")
	}
	if !webhooks {
		return fault.New(fault.Forbidden, "plan_capability_required",
			"The organization's plan does not include webhooks; an operator can change the plan.")
	}
	return nil
}

// The numbers of package webhook as statements write them. SQLite uses a partial index only where the statement has the
// number itself in it, and not a parameter.
const (
	statePending   = "0" // webhook.Pending
	stateDelivered = "1" // webhook.Delivered
	stateExhausted = "2" // webhook.Exhausted
	stateDropped   = "3" // webhook.Dropped

	outcomeSending     = "0" // webhook.Sending
	outcomeFailed      = "2" // webhook.Failed
	outcomeInterrupted = "3" // webhook.Interrupted

	causeEvent = "0" // webhook.ByEvent
	causeHand  = "2" // webhook.ByHand
	causeTest  = "3" // webhook.ByTest
)

// firstPending selects the row id of the pending delivery that is due first, of the subscription that an expression names.
func firstPending(subscription string) string {
	return `SELECT d.id FROM deliveries d INDEXED BY deliveries_pending
		WHERE d.subscription_id = ` + subscription + ` AND d.state = ` + statePending + ` ORDER BY d.due_at LIMIT 1`
}
