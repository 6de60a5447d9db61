package queue

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/fanout"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Recover makes a subscription work again after its receiver was repaired. It creates new deliveries of the events whose
// deliveries ended exhausted since a time and that have not arrived, and activates the subscription. The new deliveries
// come first, so an interrupted recovery leaves the subscription as it was, and the next one continues. A dry run only counts.
//
// Without a time in the request, it is the first failure of the outage. A subscription without failures has no outage. Then it is the last
// success, or the creation of the subscription. Faults: NotFound; Conflict if a person has paused the subscription, unless the request
// activates it; Forbidden if the plan has no webhooks; Unavailable if the context ends first.
func (q *Queue) Recover(ctx context.Context, by access.Actor, organization int64, id string, request webhook.RecoveryRequest) (webhook.Recovery, error) {
	r, err := q.prepareRecovery(ctx, organization, id, request)
	if err == nil {
		r.query.by = by.Authority
		err = q.sendExhausted(ctx, &r)
	}
	if err != nil || request.DryRun {
		return r.sent, err
	}
	return r.sent, q.finishRecovery(ctx, by, r, func(t *tx, sub *webhook.Subscription) error {
		if err := requireActivation(*sub, request); err != nil {
			return err
		}
		return q.makeHealthy(t, sub)
	})
}

// retryNow makes due what waits for a retry. A healthy subscription may have much of it: its receiver fails for some events only.
func (q *Queue) retryNow(ctx context.Context, organization, subscription int64) (err error) {
	for n := int64(dropBatch); n == dropBatch && err == nil; {
		n, err = returning(ctx, q, sqlite.Work{Payer: organization, Cost: dropBatch}, func(t *tx) (int64, error) {
			t.announceChange(subscription)
			return t.Affected(`
				UPDATE deliveries SET due_at = ?1 WHERE id IN (
					SELECT id FROM deliveries INDEXED BY deliveries_pending
					WHERE subscription_id = ?2 AND state = `+delivery.Pending+` AND due_at > ?1 ORDER BY due_at LIMIT ?3)`,
				t.Now(), subscription, dropBatch)
		})
	}
	return err
}

// makeHealthy activates a subscription whose receiver was repaired.
func (q *Queue) makeHealthy(t *tx, sub *webhook.Subscription) error {
	if sub.Status == webhook.Healthy {
		return nil
	}
	before := sub.Health
	sub.Health = sub.Activate()
	if err := t.Exec("UPDATE subscriptions SET updated_at = ? WHERE id = ?", t.Now(), sub.RowID); err != nil {
		return err
	}
	t.announceChange(sub.RowID)
	return q.SetHealth(t.Tx, sub, before)
}

// recovery is how far a recovery got.
type recovery struct {
	query replayQuery
	sent  webhook.Recovery
	after scan.Position // of the last delivery that it has looked at
}

// sendExhausted creates the deliveries of a recovery, and notes how far it got, so that an interrupted recovery can continue. After each
// chunk, other replays get their turn.
func (q *Queue) sendExhausted(ctx context.Context, r *recovery) error {
	err := q.inSlices(ctx, r.query, func(most int) (chunk, error) { return q.nextExhausted(ctx, r.query, r.after, most) },
		func(c chunk, made webhook.Replayed) {
			r.sent.Deliveries += made.Total()
			if c.Seen > 0 {
				r.after = scan.Position{At: c.ReachedAt, Row: c.Reached}
			}
		})
	if err != nil && r.sent.Deliveries > 0 && !r.query.dryRun {
		return unfinishedReplay(ctx, r.sent.Deliveries, err)
	}
	return err
}

// requireActivation refuses to activate what a person has paused, unless the request says so.
func requireActivation(sub webhook.Subscription, request webhook.RecoveryRequest) error {
	if sub.ByPerson() && !request.Activate {
		return fault.New(fault.Conflict, "paused", `A person has paused the subscription, and only a recovery with "activate" makes it active.`)
	}
	return nil
}

// prepareRecovery finds the subscription and the time since which it recovers.
func (q *Queue) prepareRecovery(ctx context.Context, organization int64, id string, request webhook.RecoveryRequest) (r recovery, err error) {
	p, err := q.openReplay(ctx, organization, id, request.WithoutAudit, request.DryRun)
	if err == nil {
		err = requireActivation(p.sub, request)
	}
	if err != nil {
		return r, err
	}
	p.only = webhook.OnlyFailed
	p.exact, p.prefix = fanout.PatternLists(p.sub.EventTypes.Patterns())
	since := cmp.Or(request.Since, p.sub.FailingSince)
	if since == 0 {
		since = p.sub.CreatedAt
		access.Set(&since, p.sub.LastSuccessAt)
	}
	r = recovery{query: p, sent: webhook.Recovery{Pending: p.sub.PendingDeliveries, Since: since}, after: scan.Position{At: since}}
	if p.sub.QueueHeld {
		r.sent.BlockedBy = webhook.BlockedByHold
	}
	return r, nil
}

// nextExhausted reads the next deliveries that ended exhausted after a position, in the order of their ends. An event that ended
// exhausted several times counts for its last delivery.
func (q *Queue) nextExhausted(ctx context.Context, p replayQuery, after scan.Position, most int) (c chunk, err error) {
	err = q.o.Replays.Pool.Get(ctx, &c, `
		SELECT count(*) AS seen, coalesce(max(looked.due_at), 0) AS reached_at,
		       coalesce(max(looked.id) FILTER (WHERE looked.due_at = looked.last_due), 0) AS reached,
		       json_group_array(looked.event_id) FILTER (WHERE looked.found) AS rows, count(*) FILTER (WHERE looked.found) AS exhausted
		FROM (
			SELECT ended.id, ended.event_id, ended.due_at, max(ended.due_at) OVER () AS last_due, ended.cause <> `+delivery.CauseTest+` AND `+replayable+`
				AND NOT EXISTS (
					SELECT 1 FROM deliveries d WHERE d.event_id = ended.event_id AND d.subscription_id = :subscription
					AND d.state = `+delivery.Exhausted+` AND d.id > ended.id) AS found
			FROM (
				SELECT d.id, d.event_id, d.due_at, d.cause FROM deliveries d INDEXED BY deliveries_exhausted
				WHERE d.subscription_id = :subscription AND d.state = `+delivery.Exhausted+` AND (d.due_at, d.id) > (:after_due, :after_row)
				ORDER BY d.due_at, d.id LIMIT :most) ended
			CROSS JOIN events e ON e.id = ended.event_id) looked`,
		q.args(p, p.now, sql.Named("after_due", after.At), sql.Named("after_row", after.Row), sql.Named("most", most))...)
	return c, err
}

// finishRecovery makes due what waits and runs activate, if there is one, and writes the audit event of a recovery.
func (q *Queue) finishRecovery(ctx context.Context, by access.Actor, r recovery, activate func(*tx, *webhook.Subscription) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replayTimeout)
	defer cancel()
	organization, id := r.query.organization, r.query.sub.ID
	if activate != nil {
		if err := q.retryNow(ctx, organization, r.query.sub.RowID); err != nil {
			return err
		}
	}
	return q.change(ctx, sqlite.Work{Payer: organization}, func(t *tx) error {
		sub, err := q.SubscriptionIn(t.Tx, organization, id)
		if err == nil && activate != nil {
			err = principal.Require(t.Tx, r.query.by, access.WebhooksWrite) // the search may have taken long
		}
		if err == nil && activate != nil {
			err = activate(t, &sub)
		}
		if err != nil {
			return err
		}
		return t.audit(by, organization, access.SubscriptionRecovered, audit.Subscription(id, sub.RowID), map[string]any{
			"url_host": webhook.URLHost(sub.URL), "since": string(webhook.AppendTime(nil, r.sent.Since)),
			"deliveries": r.sent.Deliveries, "pending": r.sent.Pending,
		})
	})
}

// markedSubscription is a subscription that a probe brought back.
type markedSubscription struct {
	RowID          int64  `db:"id"`
	ID             string `db:"public_id"`
	Organization   int64  `db:"organization_id"`
	OrganizationID string `db:"organization_public_id"`
	Since          int64  `db:"recover_since"`
	Epoch          int64  `db:"epoch"` // a later outage changes it
}

// RecoverMarked recovers the subscriptions that probes brought back. It reads the file only after the start, after a mark and after
// a failure. A pass continues after the subscriptions of the last one, so that some that fail do not stop the others.
func (q *Queue) RecoverMarked(ctx context.Context) (err error) {
	if !q.mayRecover.Swap(false) {
		return nil
	}
	defer func() {
		if err != nil {
			q.mayRecover.Store(true)
		}
	}()
	var marked []markedSubscription
	if err := q.o.Reads.List(ctx, &marked, `
		SELECT s.id, s.public_id, s.organization_id, o.public_id AS organization_public_id, s.recover_since, s.epoch
		FROM subscriptions s INDEXED BY subscriptions_to_recover CROSS JOIN organizations o ON o.id = s.organization_id
		WHERE s.recover_since IS NOT NULL AND s.id > ? ORDER BY s.id LIMIT ?`, q.recoveredUpTo, recoveriesPerPass); err != nil {
		return err
	}
	if q.recoveredUpTo > 0 || len(marked) == recoveriesPerPass {
		q.mayRecover.Store(true)
	}
	q.recoveredUpTo = 0
	if len(marked) == recoveriesPerPass {
		q.recoveredUpTo = marked[len(marked)-1].RowID
	}
	for _, m := range marked {
		complete, failed := q.recoverOne(ctx, m)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("subscription %s: %w", m.ID, failed))
		} else if !complete {
			q.mayRecover.Store(true)
		}
	}
	return err
}

// begunRecovery is the recovery of a marked subscription.
type begunRecovery struct {
	recovery
	mark markedSubscription
}

// recoverOne sends again what ended exhausted in the outage of a subscription, and removes the mark. It ends after recoveryStep: then
// the next pass continues, and complete is false. It activates nothing: the probe has done that, and a person may have paused the
// subscription since then. What waits for a retry keeps its time, for which the receiver may have asked.
func (q *Queue) recoverOne(ctx context.Context, m markedSubscription) (complete bool, err error) {
	step, cancel := context.WithTimeout(ctx, recoveryStep)
	defer cancel()
	begun, ok := q.recovering[m.RowID]
	if !ok || begun.mark != m {
		begun = &begunRecovery{mark: m}
		begun.recovery, err = q.prepareRecovery(step, m.Organization, m.ID, webhook.RecoveryRequest{Since: m.Since, Activate: true})
	}
	if err == nil {
		q.recovering[m.RowID] = begun
		err = q.sendExhausted(step, &begun.recovery)
	}
	if err == nil {
		err = q.finishRecovery(ctx, access.System(m.Organization), begun.recovery, nil)
	} else if step.Err() != nil && ctx.Err() == nil {
		return false, nil
	}
	if err != nil && (ctx.Err() != nil || fault.KindOf(err) == fault.Unavailable || fault.KindOf(err) == fault.Internal) {
		return true, err
	}
	if err != nil {
		q.log.Warn("cannot send again what failed in the outage of a subscription that works again",
			"subscription", m.ID, "error", err, "mend", webhook.Mend{
				Action: webhook.ActionRecover, Organization: m.OrganizationID, Subscription: m.ID, With: string(webhook.AppendTime(nil, m.Since)),
			})
	}
	delete(q.recovering, m.RowID)
	return true, q.change(ctx, sqlite.Work{}, func(t *tx) error {
		return t.Exec("UPDATE subscriptions SET recover_since = NULL WHERE id = ? AND epoch = ?", m.RowID, m.Epoch)
	})
}

const (
	recoveriesPerPass = 10          // subscriptions that one pass continues
	recoveryStep      = time.Second // how long a subscription keeps the others waiting
)
