package queue

import (
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
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Recover makes a subscription work again after its receiver was mended. It creates new deliveries of the events whose
// deliveries ended exhausted since a time and that have not arrived, and activates the subscription. The new deliveries
// come first, so an interrupted recovery leaves the subscription as it was, and the next one continues. A dry run only counts.
//
// Without a time in the request, it is the first failure of the outage. A subscription without failures has no outage. Then it is
// the last success, or the creation of the subscription.
//
// Faults: NotFound; Conflict if a person has paused the subscription, unless the request activates it; Forbidden if the plan has no
// webhooks; Unavailable if the context ends first.
func (q *Queue) Recover(ctx context.Context, by access.Actor, organization int64, id string, request webhook.RecoveryRequest) (webhook.Recovery, error) {
	r, p, err := q.prepareRecovery(ctx, organization, id, request)
	if err != nil {
		return r, err
	}
	if err := q.sendExhausted(ctx, p, &r); err != nil || request.DryRun {
		return r, err
	}
	return r, q.finishRecovery(ctx, by, organization, r, p, func(t *tx, sub *webhook.Subscription) error {
		if err := requireActivation(*sub, request); err != nil {
			return err
		}
		return q.makeHealthy(t, sub)
	})
}

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

// sendExhausted creates the deliveries of a recovery, and counts them in r. After each chunk, other replays get their turn.
func (q *Queue) sendExhausted(ctx context.Context, p replayQuery, r *webhook.Recovery) error {
	var c chunk
	after := scan.Position{At: r.Since}
	err := q.inSlices(ctx, p, func(most int) (seen int64, err error) {
		c, err = q.nextExhausted(ctx, p, after, most)
		return c.Seen, err
	}, func() error {
		made, err := q.replayChunk(ctx, p, c)
		r.Deliveries += made.Total()
		after = scan.Position{At: c.ReachedAt, Row: c.Reached}
		return err
	})
	if r.Deliveries > 0 && !p.dryRun {
		return unfinishedReplay(ctx, r.Deliveries, err)
	}
	return err
}

// requireActivation refuses to activate what a person has paused, unless the request says so.
func requireActivation(sub webhook.Subscription, request webhook.RecoveryRequest) error {
	if sub.ByPerson() && !request.Activate {
		return fault.New(fault.Conflict, "paused",
			"A person has paused the subscription, and a recovery would activate it.")
	}
	return nil
}

// prepareRecovery finds the subscription and the time since which it recovers.
func (q *Queue) prepareRecovery(ctx context.Context, organization int64, id string, request webhook.RecoveryRequest) (r webhook.Recovery, p replayQuery, err error) {
	o, err := q.openReplay(ctx, organization, id, request.DryRun)
	if err == nil {
		err = requireActivation(o.sub, request)
	}
	if err != nil {
		return r, p, err
	}
	sub, p := o.sub, o.query
	p.only = webhook.OnlyFailed
	p.exact, p.prefix = fanout.PatternLists(sub.EventTypes.Patterns())
	r = webhook.Recovery{Pending: sub.PendingDeliveries, Since: request.Since}
	if sub.QueueHeld {
		r.BlockedBy = webhook.BlockedByHold
	}
	switch {
	case request.Since != 0:
	case sub.FailingSince != 0:
		r.Since = sub.FailingSince
	case sub.LastSuccessAt != nil:
		r.Since = *sub.LastSuccessAt
	default:
		r.Since = sub.CreatedAt
	}
	return r, p, nil
}

// nextExhausted reads the next deliveries that ended exhausted after a position, in the order of their ends. An event that ended
// exhausted several times counts for its last delivery.
func (q *Queue) nextExhausted(ctx context.Context, p replayQuery, after scan.Position, most int) (c chunk, err error) {
	err = q.replays.Pool.Get(ctx, &c, `
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
		p.args(q.keepEvents, p.now, sql.Named("after_due", after.At), sql.Named("after_row", after.Row), sql.Named("most", most))...)
	return c, err
}

// finishRecovery runs activate, and writes the audit event of a recovery.
func (q *Queue) finishRecovery(
	ctx context.Context, by access.Actor, organization int64, r webhook.Recovery, p replayQuery, activate func(*tx, *webhook.Subscription) error,
) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replayTimeout)
	defer cancel()
	return q.change(ctx, sqlite.Work{Payer: organization}, func(t *tx) error {
		sub, err := q.SubscriptionIn(t.Tx, organization, p.id)
		if err != nil {
			return err
		}
		if err := activate(t, &sub); err != nil {
			return err
		}
		return t.audit(by, organization, access.SubscriptionRecovered, audit.Subscription(p.id, sub.RowID), map[string]any{
			"url_host": webhook.URLHost(sub.URL), "since": string(webhook.AppendTime(nil, r.Since)), "deliveries": r.Deliveries, "pending": r.Pending,
		})
	})
}

// markForRecovery notes that a probe brought a disabled subscription back. Upkeep sends again what ended exhausted since the
// outage began. If it has not done that for an earlier outage yet, the mark stays at the beginning of that one.
func (t *tx) markForRecovery(subscription, since int64) error {
	err := t.Exec("UPDATE subscriptions SET recover_since = min(coalesce(recover_since, ?1), ?1) WHERE id = ?2", since, subscription)
	t.OnCommit(func() { t.mayRecover.Store(true) })
	return err
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

// RecoverMarked sends again what ended exhausted in the outages of the subscriptions that probes brought back. It reads the file only
// after the start, after a mark and after a failure. One that fails does not stop the others.
func (q *Queue) RecoverMarked(ctx context.Context) error {
	if !q.mayRecover.Swap(false) {
		return nil
	}
	var marked []markedSubscription
	err := q.reads.List(ctx, &marked, `
		SELECT s.id, s.public_id, s.organization_id, o.public_id AS organization_public_id, s.recover_since, s.epoch
		FROM subscriptions s INDEXED BY subscriptions_to_recover CROSS JOIN organizations o ON o.id = s.organization_id
		WHERE s.recover_since IS NOT NULL ORDER BY s.id`)
	for _, m := range marked {
		if failed := q.recoverOne(ctx, m); failed != nil {
			err = errors.Join(err, fmt.Errorf("subscription %s: %w", m.ID, failed))
		}
	}
	if err != nil {
		q.mayRecover.Store(true)
	}
	return err
}

// recoverOne sends again what ended exhausted in the outage of a subscription, and removes the mark. It activates nothing: the probe has
// done that, and a person may have paused the subscription since then.
func (q *Queue) recoverOne(ctx context.Context, m markedSubscription) error {
	step, cancel := context.WithTimeout(ctx, recoveryStep)
	defer cancel()
	r, p, err := q.prepareRecovery(step, m.Organization, m.ID, webhook.RecoveryRequest{Since: m.Since, Activate: true})
	if err == nil {
		err = q.sendExhausted(step, p, &r)
	}
	if err != nil && step.Err() != nil && ctx.Err() == nil {
		q.mayRecover.Store(true)
		return nil
	}
	if err == nil {
		err = q.finishRecovery(ctx, access.System(m.Organization), m.Organization, r, p, func(*tx, *webhook.Subscription) error { return nil })
	}
	if err != nil && (ctx.Err() != nil || fault.KindOf(err) == fault.Unavailable || fault.KindOf(err) == fault.Internal) {
		return err
	}
	if err != nil {
		q.log.Warn("cannot send again what failed in the outage of a subscription that works again",
			"subscription", m.ID, "error", err, "mend", webhook.Mend{
				Action: webhook.ActionRecover, Organization: m.OrganizationID, Subscription: m.ID, With: string(webhook.AppendTime(nil, m.Since)),
			})
	}
	return q.change(ctx, sqlite.Work{}, func(t *tx) error {
		return t.Exec("UPDATE subscriptions SET recover_since = NULL WHERE id = ? AND epoch = ?", m.RowID, m.Epoch)
	})
}

// recoveryStep is how long a subscription keeps the others waiting: a replay may have the turn of its organization. The next pass tries
// again from the beginning, because an outage leaves few exhausted deliveries.
const recoveryStep = time.Second
