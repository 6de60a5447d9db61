package queue

import (
	"context"
	"fmt"

	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Deliveries of an ordered subscription are sent one at a time, in the order of publication. The next one waits until the one
// before is delivered or exhausted. The order is that of the events, so a new delivery of an old event goes before the
// deliveries of later events that still wait. Only a redelivery of one event is outside the order: it is sent at its own times,
// and nothing waits for it, except that one request is made at a time.
//
// Begin enforces the order in its transaction, and so does publishing when it begins a first attempt. The dispatcher only has to
// ask for the right delivery.

// SQL of ordered subscriptions. ?1 is the subscription.
var (
	// nothingSending reports that no attempt is in progress. Tests are outside the order.
	nothingSending = `NOT EXISTS (
		SELECT 1 FROM deliveries d INDEXED BY deliveries_sending WHERE d.subscription_id = ?1 AND d.state >= ` + delivery.Sending + ` AND d.cause <> ` + delivery.CauseTest + `)`
	// isNextInOrder reports whether the delivery ?2 may begin.
	isNextInOrder = `SELECT ` + nothingSending + ` AND coalesce((
		SELECT own.sequence = 0 OR own.id = (` + delivery.FirstInOrder("?1") + `) FROM deliveries own WHERE own.id = ?2 AND own.subscription_id = ?1), 0)`
	// nothingInFront reports whether a new delivery may begin.
	nothingInFront = `SELECT ` + nothingSending + ` AND NOT EXISTS (` + delivery.FirstInOrder("?1") + `)`
)

// OrderedJobs returns the next pending deliveries of an ordered subscription. Redeliveries come first, up to limit of them, by
// their due times. Then the others follow in their order, up to limit. They may be due in the future.
func (q *Queue) OrderedJobs(ctx context.Context, subscription int64, limit int) ([]webhook.Job, error) {
	return q.jobs(ctx, selectOrderedJobs, subscription, limit)
}

const orderedJobs = `
	SELECT ` + jobColumns + `, d.sequence
	FROM deliveries d INDEXED BY deliveries_ordered CROSS JOIN events e ON e.id = d.event_id
	WHERE d.subscription_id = ?1 AND d.state = ` + delivery.Pending

const selectOrderedJobs = `
	SELECT * FROM (` + orderedJobs + ` AND d.sequence = 0 ORDER BY d.due_at LIMIT +?2)
	UNION ALL
	SELECT * FROM (` + orderedJobs + ` AND d.sequence > 0 ORDER BY d.sequence, d.due_at LIMIT +?2)`

// SetOrdered sets whether the subscription is ordered; nil changes nothing. The deliveries that wait get their numbers in the
// order. The new epoch makes the dispatcher release the attempts that it has begun and not sent. Requests in progress go on, and
// the order begins when they have ended.
func (q *Queue) SetOrdered(t *sqlite.Tx, sub *webhook.Subscription, ordered *bool) error {
	if ordered == nil || *ordered == sub.Ordered {
		return nil
	}
	sub.Ordered, sub.Health = *ordered, sub.Renew()
	if !sub.Ordered {
		return nil
	}
	if err := t.Exec(`
		UPDATE deliveries SET sequence = event_id WHERE sequence IS NULL AND id IN (
			SELECT id FROM deliveries INDEXED BY deliveries_pending WHERE subscription_id = ?1 AND state = `+delivery.Pending+`
			UNION ALL
			SELECT id FROM deliveries INDEXED BY deliveries_sending WHERE subscription_id = ?1 AND state >= `+delivery.Sending+`)`, sub.RowID); err != nil {
		return fmt.Errorf("put deliveries in order: %w", err)
	}
	return nil
}
