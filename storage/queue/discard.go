package queue

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Discard drops the pending deliveries of a subscription, of events from before a time, and returns how many. They are never sent, and
// their events stay. If before is 0, it drops all that are pending now. If it is interrupted, the caller can repeat it. Faults: NotFound;
// Unavailable if the context ends first.
func (q *Queue) Discard(ctx context.Context, by access.Actor, organization int64, id string, before int64) (dropped int64, err error) {
	d, err := returning(ctx, q, sqlite.Work{Payer: organization}, func(t *tx) (discarded, error) {
		sub, err := q.receiver(t, organization, id)
		d := discarded{id: id, row: sub.RowID, last: t.lastDelivery, before: cmp.Or(before, math.MaxInt64), after: scan.Position{At: math.MinInt64}}
		if err == nil { // nothing follows the attempts in progress, so none of them waits again while the discard goes on
			d.dropped, err = t.dropDeliveries(d.row, discardedSending, d.row, d.last, d.before)
		}
		return d, err
	})
	if err != nil {
		return 0, err
	}
	first, passed := d.after, int64(0)
	for more := true; more && err == nil; {
		var waiting []waitingDelivery
		if waiting, err = q.nextWaiting(ctx, organization, d.row, d.last, d.after); err != nil {
			break
		}
		if more = len(waiting) == dropBatch; more {
			d.after = scan.Position{At: waiting[dropBatch-1].DueAt, Row: waiting[dropBatch-1].ID}
		}
		var ids []int64
		for _, w := range waiting {
			if w.EventAt < d.before {
				ids = append(ids, w.ID)
			}
		}
		var n int64
		n, err = q.discardWaiting(ctx, by.Authority, organization, d.row, ids)
		if d.dropped += n; !more && d.after != first && d.dropped > passed { // what failed meanwhile may be due before the last full batch
			d.after, passed, more = first, d.dropped, true
		}
	}
	if err != nil && d.dropped == 0 {
		return 0, err
	}
	if d.err = err; err != nil {
		d.after.At = math.MaxInt64
	}
	return q.finishDiscard(ctx, by, organization, d)
}

// discardedSending selects the deliveries of a discard whose attempts are in progress.
const discardedSending = `
	SELECT d.id FROM deliveries d INDEXED BY deliveries_sending CROSS JOIN events e ON e.id = d.event_id
	WHERE d.subscription_id = ?1 AND ` + delivery.SendingOn + ` AND d.id <= ?2 AND e.created_at < ?3`

// discarded is how far a discard got.
type discarded struct {
	id        string // of the subscription
	row, last int64  // its row, and the newest delivery when the discard began
	before    int64
	after     scan.Position // the last waiting delivery of the last full batch; no delivery follows it if the discard ended early
	dropped   int64
	err       error // why it ended early; nil if it did not
}

type waitingDelivery struct {
	ID      int64 `db:"id"`
	DueAt   int64 `db:"due_at"`
	EventAt int64 `db:"event_at"`
}

// nextWaiting reads the next pending deliveries of a subscription after a position, up to the delivery last.
func (q *Queue) nextWaiting(ctx context.Context, organization, subscription, last int64, after scan.Position) ([]waitingDelivery, error) {
	return sqlite.All[waitingDelivery](q.o.Replays.InTurn(ctx, organization), `
		SELECT d.id, d.due_at, e.created_at AS event_at
		FROM deliveries d INDEXED BY deliveries_pending CROSS JOIN events e ON e.id = d.event_id
		WHERE d.subscription_id = ?1 AND d.state = `+delivery.Pending+` AND (d.due_at, d.id) > (?2, ?3) AND d.id <= ?4
		ORDER BY d.due_at, d.id LIMIT ?5`, subscription, after.At, after.Row, last, dropBatch)
}

// discardWaiting drops deliveries of a subscription that still wait. If an attempt of one is in progress by now, its record
// stays, and nothing follows it. Faults: those of principal.Require, because a discard may take long.
func (q *Queue) discardWaiting(ctx context.Context, by access.Authority, organization, subscription int64, ids []int64) (int64, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	return returning(ctx, q, sqlite.Work{Payer: organization, Cost: len(ids)}, func(t *tx) (int64, error) {
		if err := principal.Require(t.Tx, by, access.WebhooksWrite); err != nil {
			return 0, err
		}
		return t.dropDeliveries(subscription, `
			SELECT d.id FROM json_each(?) j CROSS JOIN deliveries d ON d.id = j.value
			WHERE d.state IN (`+delivery.Pending+`, `+delivery.Sending+`)`, sqlite.RowList(slices.Values(ids)))
	})
}

// finishDiscard drops the deliveries whose attempts have begun, also those whose attempts have failed since the last batch was read, and
// writes the audit event. Requests in progress go on. The new epoch makes the dispatcher release attempts that it has not sent yet.
func (q *Queue) finishDiscard(ctx context.Context, by access.Actor, organization int64, d discarded) (int64, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replayTimeout)
	defer cancel()
	dropped, err := returning(ctx, q, sqlite.Work{Payer: organization}, func(t *tx) (int64, error) {
		n, err := t.dropDeliveries(d.row, discardedSending+`
			UNION ALL
			SELECT d.id FROM deliveries d INDEXED BY deliveries_pending CROSS JOIN events e ON e.id = d.event_id
			WHERE d.subscription_id = ?1 AND d.state = `+delivery.Pending+` AND (d.due_at, d.id) > (?4, ?5) AND d.id <= ?2 AND e.created_at < ?3`,
			d.row, d.last, d.before, d.after.At, d.after.Row)
		if err != nil {
			return 0, err
		}
		if err := t.Exec("UPDATE subscriptions SET epoch = epoch + 1 WHERE id = ?", d.row); err != nil {
			return 0, err
		}
		t.announceChange(d.row)
		details := map[string]any{"deliveries": d.dropped + n, "complete": d.err == nil}
		if d.before != math.MaxInt64 {
			details["before"] = string(webhook.AppendTime(nil, d.before))
		}
		return d.dropped + n, t.audit(by, organization, access.SubscriptionDiscarded, audit.Subscription(d.id, d.row), details)
	})
	return dropped, errors.Join(d.err, err)
}

// DropOrphans drops the pending deliveries of deleted subscriptions, up to dropBatch of each. A pass handles up to orphansPerPass
// subscriptions. The next pass continues after them, so every subscription gets its turn, and retention never waits long.
func (q *Queue) DropOrphans(ctx context.Context) error {
	for _, row := range q.pending.Orphaned(orphansPerPass) {
		if err := q.change(ctx, sqlite.Work{Cost: dropBatch}, func(t *tx) error {
			_, err := t.dropPending(row, math.MaxInt64)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// dropPending drops up to dropBatch pending deliveries of a subscription, up to the delivery last, and returns how many. If an
// attempt is in progress, its record stays, and nothing follows it.
func (t *tx) dropPending(subscription, last int64) (int64, error) {
	return t.dropDeliveries(subscription, `
		SELECT d.id FROM deliveries d INDEXED BY deliveries_pending
		WHERE d.subscription_id = :subscription AND d.state = `+delivery.Pending+` AND d.id <= :last
		UNION ALL
		SELECT d.id FROM deliveries d INDEXED BY deliveries_sending
		WHERE d.subscription_id = :subscription AND `+delivery.SendingOn+` AND d.id <= :last LIMIT :most`,
		sql.Named("subscription", subscription), sql.Named("last", last), sql.Named("most", dropBatch))
}

// dropDeliveries drops the pending deliveries of a subscription that a SELECT returns, and returns how many. If an attempt of one is
// in progress, nothing follows it. So the writer forgets what it remembers of deliveries in progress.
func (t *tx) dropDeliveries(subscription int64, selected string, args ...any) (int64, error) {
	clear(t.sending)
	n, err := t.Affected(`
		UPDATE deliveries SET state = CASE state WHEN `+delivery.Sending+` THEN `+delivery.SendingLast+` ELSE `+delivery.Dropped+` END
		WHERE id IN (`+selected+`)`, args...)
	t.OnCommit(func() { t.pending.Add(subscription, -n) })
	return n, err
}

// DropAudit drops the pending deliveries of audit events to a subscription that no longer receives them.
func (q *Queue) DropAudit(now *sqlite.Tx, sub *webhook.Subscription) error {
	t := q.o.Memory.with(now)
	n, err := t.dropDeliveries(sub.RowID, `
		SELECT d.id FROM deliveries d INDEXED BY deliveries_pending CROSS JOIN events e ON e.id = d.event_id
		WHERE d.subscription_id = :subscription AND d.state = `+delivery.Pending+` AND e.type IN (SELECT value FROM json_each(:types))
		UNION ALL
		SELECT d.id FROM deliveries d INDEXED BY deliveries_sending CROSS JOIN events e ON e.id = d.event_id
		WHERE d.subscription_id = :subscription AND `+delivery.SendingOn+` AND e.type IN (SELECT value FROM json_each(:types))`,
		sql.Named("subscription", sub.RowID), sql.Named("types", sqlite.TextList(access.AuditTypes())))
	if err != nil {
		return fmt.Errorf("drop pending audit events: %w", err)
	}
	sub.PendingDeliveries -= n
	return nil
}

const (
	// dropBatch limits how long other writes wait for one transaction of upkeep.
	dropBatch = 500
	// orphansPerPass limits how long the rest of upkeep waits: each subscription takes a transaction of about 3 ms.
	orphansPerPass = 100
)
