// Package queue owns everything that writes events, deliveries and attempts: publishing, attempts and their results, redeliveries,
// replays, recoveries, discards and the hold, with their audit events. It does not know HTTP and never sends anything. Callers check
// what an actor may do, except for the right to read audit events that are sent again.
package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/seal"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Queue publishes events, and writes their deliveries. Methods with a *sqlite.Tx are for the other parts of the store: the writer calls
// them in a transaction of that part.
type Queue struct {
	*shared
	o             Options
	recoveredUpTo int64                    // where the next pass of RecoverMarked continues; only that uses it
	recovering    map[int64]*begunRecovery // by subscription; only RecoverMarked uses it
}

// Options are what a queue needs. All are required.
type Options struct {
	File    *sqlite.File
	Memory  *Memory    // of that file, loaded; see there who may use it
	Keys    *seal.Ring // opens the secrets of subscriptions
	History *history.History
	Reads   *sqlite.Pool // for requests and deliveries
	Replays *scan.Reader // for reads of replays, which may take minutes
}

// New returns the queue of an open file. Writes wait until the file runs.
func New(o Options) *Queue {
	return &Queue{shared: o.Memory.shared, o: o, recovering: map[int64]*begunRecovery{}}
}

// PendingJobs returns the next pending deliveries of a subscription whose due time is after a time, in the order of their due
// times, without those in except. They may be due in the future.
//
// With LIMIT ? instead of LIMIT +?, SQLite would plan the statement again for each new limit. That took a tenth of the read.
func (q *Queue) PendingJobs(ctx context.Context, subscription, after int64, limit int, except []int64) ([]webhook.Job, error) {
	return q.jobs(ctx, "SELECT "+jobColumns+`
		FROM deliveries d INDEXED BY deliveries_pending JOIN events e ON e.id = d.event_id
		WHERE d.subscription_id = ? AND d.state = `+delivery.Pending+` AND d.due_at > ? AND d.id NOT IN (SELECT value FROM json_each(?))
		ORDER BY d.due_at LIMIT +?`, subscription, after, sqlite.RowList(slices.Values(except)), limit)
}

const jobColumns = `d.id, d.subscription_id, e.organization_id, d.event_id, d.attempts, d.due_at, d.cause,
	e.type AS event_type, e.created_at AS event_at, e.body`

func (q *Queue) jobs(ctx context.Context, text string, args ...any) ([]webhook.Job, error) {
	jobs, err := sqlite.All[webhook.Job](q.o.Reads.In(ctx), text, args...)
	for i := range jobs {
		jobs[i].EventID = q.o.Memory.IDs.ID(access.EventID, jobs[i].Event, jobs[i].EventAt)
	}
	return jobs, err
}

// Begin records in one transaction that attempts begin, before they are sent, and returns their row ids in the same order. The record
// claims the delivery. An attempt that must not be sent gets 0. The reason is a held queue, a closed subscription, another epoch than the
// caller knows, or a delivery that does not wait for this attempt.
func (q *Queue) Begin(ctx context.Context, starts []webhook.Start) ([]int64, error) {
	ids := make([]int64, len(starts))
	err := q.change(ctx, sqlite.Work{Cost: len(starts), Whole: true}, func(t *tx) error {
		clear(ids)
		if hold, err := t.hold(); err != nil || hold != nil {
			return err
		}
		allowed := make([]int, 0, len(starts)) // indexes of starts
		ordered := map[int64]bool{}            // ordered subscriptions with an allowed start
		for i, start := range starts {
			sub, err := t.Fanout.Subscription(t.Tx, start.Subscription)
			if err != nil {
				return err
			}
			may := sub.Epoch == start.Epoch && !ordered[start.Subscription] && sub.Sends(t.Now())
			if may && (sub.Ordered || sub.Status == webhook.Disabled) { // one attempt at a time, in order
				query := isNextProbe
				if sub.Ordered {
					query = isNextInOrder
				}
				if err := t.Get(&may, query, start.Subscription, start.Delivery); err != nil {
					return err
				}
			}
			if may {
				allowed = append(allowed, i)
			}
			if may && sub.Ordered {
				ordered[start.Subscription] = true
			}
		}
		return beginAttempts(t, starts, allowed, ids)
	})
	if err != nil {
		return nil, fmt.Errorf("begin attempts: %w", err)
	}
	return ids, nil
}

// isNextProbe reports whether the delivery ?2 of the subscription ?1 may be the probe. A test in progress delays it.
var isNextProbe = `SELECT coalesce((` + delivery.FirstPending("?1") + `) = ?2, 0) AND NOT EXISTS (
	SELECT 1 FROM deliveries d INDEXED BY deliveries_sending WHERE d.subscription_id = ?1 AND d.state >= ` + delivery.Sending + `)`

// beginAttempts claims the deliveries of the allowed starts and sets their ids. It leaves out deliveries that do not wait
// for that attempt. Row ids may be used again, so a delivery may belong to another subscription by now.
func beginAttempts(t *tx, starts []webhook.Start, allowed []int, ids []int64) error {
	index := make(map[int64]int, len(allowed)) // of starts, by delivery
	for len(allowed) > 0 {
		n := sqlite.RowsAtOnce(len(allowed))
		args := make([]any, 0, 1+3*n)
		args = append(args, t.Now())
		for _, i := range allowed[:n] {
			index[starts[i].Delivery] = i
			args = append(args, starts[i].Delivery, starts[i].Subscription, starts[i].Number-1)
		}
		var begun []int64
		if err := t.ExecList(&begun, beginStatement[n], args...); err != nil {
			return err
		}
		for _, claimed := range begun {
			i := index[claimed]
			ids[i] = webhook.AttemptRow(claimed, starts[i].Number)
			t.rememberSending(sendingDelivery{
				ID: claimed, Subscription: starts[i].Subscription, Cause: starts[i].Trigger, Attempts: starts[i].Number - 1, BegunAt: t.Now(),
			})
		}
		allowed = allowed[n:]
	}
	return nil
}

// beginStatement claims deliveries, found by their row ids. Without the pluses, SQLite would read an index of all pending ones.
var beginStatement = sqlite.Statements(func(n int) string {
	return `UPDATE OR FAIL deliveries SET state = ` + delivery.Sending + `, due_at = ? FROM (VALUES (?, ?, ?)` + strings.Repeat(", (?, ?, ?)", n-1) + `) start
		WHERE id = start.column1 AND +subscription_id = start.column2 AND +state = ` + delivery.Pending + ` AND +attempts = start.column3 RETURNING id`
})

// UndoBegin takes back attempts that were begun and not sent, as if they had never begun. Their deliveries are due, unless
// they were dropped meanwhile.
func (q *Queue) UndoBegin(ctx context.Context, attempts []int64) error {
	err := q.change(ctx, sqlite.Work{}, func(t *tx) error {
		for _, id := range attempts {
			delete(t.sending, webhook.DeliveryRow(id))
			if err := t.Exec(`
				UPDATE deliveries AS d SET state = CASE state WHEN `+delivery.Sending+` THEN `+delivery.Pending+` ELSE `+delivery.EndOfLast+` END
				WHERE `+delivery.Running("?1"), id); err != nil {
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

// interruptAttempts ends the attempts that the last owner of the file left unfinished. They keep their numbers and do
// not count for the health.
//
// Their deliveries are due again, even after the last attempt: an accepted event is sent until the receiver has responded.
// A delivery that is interrupted again and again is given up, because it may be what stops the process.
func (t *tx) interruptAttempts() error {
	interrupted, err := t.Affected(`
		INSERT INTO attempts (id, subscription_id, cause, outcome, response_body, duration_ms, error, attempted_at)
		SELECT ` + delivery.AttemptRow + `, d.subscription_id, ` + delivery.AttemptCause + `, ` + delivery.OutcomeInterrupted + `, '', 0,
		       'interrupted: the server stopped before the attempt ended', d.due_at
		FROM deliveries d INDEXED BY deliveries_sending WHERE d.state >= ` + delivery.Sending)
	if err != nil || interrupted == 0 {
		return err
	}
	if err := t.countGivenUp(); err != nil {
		return err
	}
	if err := t.Exec(`
		UPDATE deliveries INDEXED BY deliveries_sending SET
			state = CASE WHEN state = `+delivery.SendingLast+` THEN `+delivery.EndOfLast+` WHEN attempts + 1 >= ?1 THEN `+delivery.Exhausted+` ELSE `+delivery.Pending+` END,
			attempts = attempts + 1, due_at = ?2
		WHERE state >= `+delivery.Sending, t.policy.MaxAttempts+maxInterruptions, t.Now()); err != nil {
		return err
	}
	t.OnCommit(func() { t.observer.Interrupted(int(interrupted)) })
	t.log.Warn("the last stop interrupted attempts; their deliveries are due again", "attempts", interrupted)
	return nil
}

// countGivenUp adds to the usage the deliveries that interruptAttempts gives up.
func (t *tx) countGivenUp() error {
	var given []struct {
		Organization int64 `db:"organization_id"`
		Deliveries   int64 `db:"deliveries"`
	}
	err := t.List(&given, `
		SELECT s.organization_id, count(*) AS deliveries
		FROM deliveries d INDEXED BY deliveries_sending CROSS JOIN subscriptions s ON s.id = d.subscription_id
		WHERE d.state >= `+delivery.Sending+` AND d.state < `+delivery.SendingLast+` AND d.attempts + 1 >= ? GROUP BY s.organization_id`,
		t.policy.MaxAttempts+maxInterruptions)
	for _, g := range given {
		t.Quotas.Add(t.Tx, g.Organization, access.OrganizationUse{Failed: g.Deliveries})
	}
	return err
}

const (
	// maxInterruptions is how many extra attempts a delivery gets if each of them is interrupted.
	maxInterruptions = 5
	// MaxAttempts is the largest limit of a policy. The number of an attempt has 8 bits of its row id.
	MaxAttempts = 1<<8 - 1 - maxInterruptions
)
