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

// Lanes lists the subscriptions with pending deliveries, whether open or not. The cost depends on their number, not on
// the number of deliveries. The counts are in memory, and the earliest delivery of each is one step into the index.
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

// PendingJobs returns the next pending deliveries of a subscription in the order of their due times, without those in
// except. They may be due in the future.
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

// Begin records attempts in one transaction before they are sent, and returns their row ids in the same order. The
// record claims the delivery.
//
// An attempt that must not be sent gets 0. Either the queue is held, or the subscription is closed. Or its epoch is not
// the one that the caller knows, or the delivery does not wait for this attempt.
func (s *Store) Begin(ctx context.Context, starts []webhook.Start) ([]int64, error) {
	ids := make([]int64, len(starts))
	err := s.workFor(0).rows(len(starts)).change(ctx, func(t *tx) error {
		clear(ids)
		if hold, err := t.hold(); err != nil || hold != nil {
			return err
		}
		for i, start := range starts {
			sub, err := t.cachedSubscription(start.Subscription)
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

// beginAttempt inserts the record of an attempt. It returns 0 if the delivery has ended, or if the number is taken. Row
// ids are reused, so the delivery may belong to another subscription by now. Then the subselect is NULL, which the
// table refuses.
//
// INSERT with VALUES costs less than INSERT from SELECT. It writes at most one row, so SQLite needs no journal to undo
// a part of the statement.
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

// attemptRow returns the row id of an attempt. It contains the delivery and the number, so neither lookup needs an
// index. A delivery has at most maxAttempts + maxInterruptions attempts, which is less than 256.
func attemptRow(delivery int64, number int) int64 { return delivery<<8 | int64(number) }

// UndoBegin deletes the records of attempts that were begun and not sent, as if they had never begun.
func (s *Store) UndoBegin(ctx context.Context, attempts []int64) error {
	err := s.change(ctx, func(t *tx) error {
		for _, id := range attempts {
			if _, err := t.Exec("DELETE FROM attempts WHERE id = ? AND outcome = "+outcomeSending, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("undo attempts: %w", err)
	}
	return nil
}

// Record stores the results of attempts in one transaction, all or none: the attempts, their deliveries, the health of
// the subscriptions, the counts of the minute, and an audit event for each change of a status. The answers are in the
// order of the results.
func (s *Store) Record(ctx context.Context, results ...webhook.Result) ([]webhook.Settled, error) {
	settled, err := returning(ctx, s.workFor(0).rows(2*len(results)), func(t *tx) ([]webhook.Settled, error) {
		settled := make([]webhook.Settled, len(results))
		for i, r := range results {
			var err error
			if settled[i], err = s.record(t, r); err != nil {
				return nil, err
			}
		}
		return settled, nil
	})
	if err != nil {
		return nil, fmt.Errorf("record attempts: %w", err)
	}
	return settled, nil
}

func (s *Store) record(t *tx, r webhook.Result) (webhook.Settled, error) {
	var settled webhook.Settled
	if r.Trigger != webhook.ByTest {
		sub, err := t.cachedSubscription(r.Subscription)
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
	if err := finishAttempt(t, r, settled); err != nil {
		return settled, err
	}
	n, err := t.Affected(`
		UPDATE deliveries SET state = ?, attempts = ?, due_at = ? WHERE id = ? AND state = `+statePending,
		settled.State, r.Number, settled.DueAt, r.Delivery)
	if err != nil {
		return settled, err
	}
	switch {
	case n == 0 && (r.Succeeded || r.Trigger == webhook.ByTest): // it arrived although it was dropped meanwhile, or it was never pending
		_, err = t.Exec("UPDATE deliveries SET state = ?, attempts = ? WHERE id = ?", settled.State, r.Number, r.Delivery)
	case n == 1 && settled.State != webhook.Pending:
		t.OnCommit(func() { s.pending.add(r.Subscription, -1) })
	}
	return settled, err
}

// nextState returns the next state of the delivery and its due time.
func (s *Store) nextState(r webhook.Result) (webhook.DeliveryState, int64) {
	switch {
	case r.Succeeded:
		return webhook.Delivered, 0
	case r.Trigger == webhook.ByTest || r.Number >= s.policy.MaxAttempts:
		return webhook.Exhausted, 0
	}
	return webhook.Pending, r.RetryAt
}

// finishAttempt writes the result into the record that Begin created.
func finishAttempt(t *tx, r webhook.Result, settled webhook.Settled) error {
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

// interruptAttempts ends the attempts that the last owner of the file left unfinished. They keep their numbers and do
// not count for the health.
//
// Their deliveries are due again, even after the last attempt: an accepted event is sent until the receiver has responded.
// A delivery that is interrupted again and again is given up, because it may be what stops the process.
func (s *Store) interruptAttempts(t *tx) error {
	var interrupted []struct {
		Delivery int64 `db:"delivery_id"`
		Number   int   `db:"attempt_number"`
	}
	if err := t.ExecList(&interrupted, `
		UPDATE attempts SET outcome = `+outcomeInterrupted+`, error = 'interrupted: the server stopped before the attempt ended'
		WHERE outcome = `+outcomeSending+` RETURNING delivery_id, attempt_number`); err != nil {
		return err
	}
	for _, a := range interrupted {
		state := webhook.Pending
		if a.Number >= s.policy.MaxAttempts+maxInterruptions {
			state = webhook.Exhausted
		}
		if _, err := t.Exec("UPDATE deliveries SET state = ?, attempts = ?, due_at = ? WHERE id = ? AND state = "+statePending,
			state, a.Number, t.Now(), a.Delivery); err != nil {
			return err
		}
	}
	if len(interrupted) > 0 {
		t.OnCommit(func() { s.observer.Interrupted(len(interrupted)) })
		s.log.Warn("the last stop interrupted attempts; their deliveries are due again", "attempts", len(interrupted))
	}
	return nil
}

const (
	// maxInterruptions is how many extra attempts a delivery gets if each of them is interrupted.
	maxInterruptions = 5
	// maxAttempts is the largest limit of a policy. The number of an attempt has 8 bits of its row id.
	maxAttempts = 1<<8 - 1 - maxInterruptions
)

// requireWebhooks refuses if the organization's plan has no webhooks.
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

// The numbers of package webhook in SQL. SQLite uses a partial index only if the statement has the number itself, not a
// parameter.
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

// firstPending returns SQL that selects the pending delivery of a subscription with the earliest due time. subscription
// is an SQL expression.
func firstPending(subscription string) string {
	return `SELECT d.id FROM deliveries d INDEXED BY deliveries_pending
		WHERE d.subscription_id = ` + subscription + ` AND d.state = ` + statePending + ` ORDER BY d.due_at LIMIT 1`
}
