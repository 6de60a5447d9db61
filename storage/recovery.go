package storage

import (
	"context"
	"fmt"
	"math"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Recover makes a subscription work again after its receiver was mended. It creates new deliveries of the events whose
// deliveries ended exhausted since a time and that have not arrived, and activates the subscription. The new deliveries
// come first, so an interrupted recovery leaves the subscription as it was, and the next one continues.
//
// If since is 0, it is the first failure of the outage. A subscription without failures has no outage. Then it is the last
// success, or the creation of the subscription.
//
// Faults: NotFound; Forbidden if the plan has no webhooks; Unavailable if the context ends first.
func (s *Store) Recover(ctx context.Context, by access.Actor, organization int64, id string, since int64) (webhook.Recovery, error) {
	r, p, err := s.prepareRecovery(ctx, organization, id, since)
	if err != nil {
		return r, err
	}
	err = s.walkExhausted(ctx, p, r.Since, func(c chunk) error {
		made, err := s.replayChunk(ctx, p, c)
		r.Deliveries += made.Total()
		return err
	})
	if err != nil && r.Deliveries == 0 {
		return r, err
	}
	if err != nil {
		return r, unfinishedReplay(ctx, r.Deliveries, err)
	}
	return r, s.activateRecovered(ctx, by, organization, r, p)
}

// CountRecovery says what Recover would send. Faults: as Recover.
func (s *Store) CountRecovery(ctx context.Context, organization int64, id string, since int64) (webhook.Recovery, error) {
	r, p, err := s.prepareRecovery(ctx, organization, id, since)
	if err != nil {
		return r, err
	}
	return r, s.walkExhausted(ctx, p, r.Since, func(c chunk) error {
		r.Deliveries += c.Total()
		return nil
	})
}

// prepareRecovery finds the subscription and the time since which it recovers.
func (s *Store) prepareRecovery(ctx context.Context, organization int64, id string, since int64) (r webhook.Recovery, p replayQuery, err error) {
	sub, err := returning(ctx, s.workFor(organization), func(t *tx) (webhook.Subscription, error) {
		sub, err := s.subscription(t, organization, id)
		if err != nil {
			return sub, err
		}
		p.now = t.Now()
		return sub, t.quotas.RequireWebhooks(t.Tx, organization)
	})
	if err != nil {
		return r, p, err
	}
	p.id, p.subscription, p.organization = id, sub.RowID, organization
	p.until, p.only, p.excludedTypes = math.MaxInt64, webhook.OnlyFailed, excludedTypes(sub)
	p.exact, p.prefix = patternLists(sub.EventTypes.Patterns())
	r = webhook.Recovery{Pending: sub.PendingDeliveries, Since: since}
	switch {
	case since != 0:
	case sub.FailingSince != 0:
		r.Since = sub.FailingSince
	case sub.LastSuccessAt != nil:
		r.Since = *sub.LastSuccessAt
	default:
		r.Since = sub.CreatedAt
	}
	return r, p, nil
}

// exhaustedChunk is a chunk of the deliveries that ended exhausted, in the order of their ends.
type exhaustedChunk struct {
	chunk
	ReachedAt int64 `db:"reached_at"` // the end of the last delivery that was read
}

// walkExhausted reads the deliveries that ended exhausted since a time. It calls do for each chunk with events that a
// replay delivers. After each chunk, other replays get their turn.
func (s *Store) walkExhausted(ctx context.Context, p replayQuery, since int64, do func(chunk) error) error {
	after := scan.Position{At: since}
	for {
		c, err := s.nextExhausted(ctx, p, after)
		if err != nil {
			return fmt.Errorf("read exhausted deliveries: %w", err)
		}
		if c.Total() > 0 {
			if err := do(c.chunk); err != nil {
				return err
			}
		}
		if c.Seen < replayEvents {
			return nil
		}
		after = scan.Position{At: c.ReachedAt, Row: c.Reached}
	}
}

// nextExhausted reads the next deliveries after a position. An event that ended exhausted several times counts for its
// last delivery.
func (s *Store) nextExhausted(ctx context.Context, p replayQuery, after scan.Position) (c exhaustedChunk, err error) {
	end, err := s.beginReplayRead(ctx, p.organization)
	if err != nil {
		return c, err
	}
	defer end()
	err = s.replays.Pool.Get(ctx, &c, `
		SELECT count(*) AS seen, coalesce(max(looked.due_at), 0) AS reached_at,
		       coalesce(max(looked.id) FILTER (WHERE looked.due_at = looked.last_due), 0) AS reached,
		       json_group_array(looked.event_id) FILTER (WHERE looked.found) AS rows, count(*) FILTER (WHERE looked.found) AS exhausted
		FROM (
			SELECT ended.id, ended.event_id, ended.due_at, max(ended.due_at) OVER () AS last_due, ended.cause <> `+delivery.CauseTest+` AND `+replayable+`
				AND NOT EXISTS (
					SELECT 1 FROM deliveries d WHERE d.event_id = ended.event_id AND d.subscription_id = ?2
					AND d.state = `+delivery.Exhausted+` AND d.id > ended.id) AS found
			FROM (
				SELECT d.id, d.event_id, d.due_at, d.cause FROM deliveries d INDEXED BY deliveries_exhausted
				WHERE d.subscription_id = ?2 AND d.state = `+delivery.Exhausted+` AND (d.due_at, d.id) > (?9, ?10)
				ORDER BY d.due_at, d.id LIMIT ?11) ended
			CROSS JOIN events e ON e.id = ended.event_id) looked`,
		p.args(s.keepEvents, p.now, after.At, after.Row, replayEvents)...)
	return c, err
}

// activateRecovered activates the subscription after its recovery, and writes the audit event.
func (s *Store) activateRecovered(ctx context.Context, by access.Actor, organization int64, r webhook.Recovery, p replayQuery) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replayTimeout)
	defer cancel()
	return s.workFor(organization).change(ctx, func(t *tx) error {
		sub, err := s.subscription(t, organization, p.id)
		if err != nil {
			return err
		}
		if sub.Status != webhook.Healthy {
			active := checkedChange{SubscriptionChange: webhook.SubscriptionChange{IsActive: new(true)}}
			if err := s.applyChange(t, by, organization, &sub, active); err != nil {
				return err
			}
		}
		return s.audit(t, by, organization, access.SubscriptionRecovered, auditTarget{"subscription", p.id, sub.RowID}, map[string]any{
			"url_host": webhook.URLHost(sub.URL), "since": string(webhook.AppendTime(nil, r.Since)), "deliveries": r.Deliveries, "pending": r.Pending,
		})
	})
}

// markForRecovery notes that a probe brought a disabled subscription back. Upkeep sends again what ended exhausted since the
// outage began.
func (s *Store) markForRecovery(t *tx, subscription, since int64) error {
	_, err := t.Exec("UPDATE subscriptions SET recover_since = ? WHERE id = ?", since, subscription)
	t.OnCommit(func() { s.mayRecover.Store(true) })
	return err
}

// recoverMarked recovers the subscriptions that probes brought back. It reads the file only after the start and after a mark.
func (s *Store) recoverMarked(ctx context.Context) (err error) {
	if !s.mayRecover.Swap(false) {
		return nil
	}
	defer func() {
		if err != nil {
			s.mayRecover.Store(true)
		}
	}()
	var marked []struct {
		RowID          int64  `db:"id"`
		ID             string `db:"public_id"`
		Organization   int64  `db:"organization_id"`
		OrganizationID string `db:"organization_public_id"`
		Since          int64  `db:"recover_since"`
	}
	if err := s.list(ctx, &marked, `
		SELECT s.id, s.public_id, s.organization_id, o.public_id AS organization_public_id, s.recover_since
		FROM subscriptions s INDEXED BY subscriptions_to_recover CROSS JOIN organizations o ON o.id = s.organization_id
		WHERE s.recover_since IS NOT NULL ORDER BY s.id LIMIT ?`, recoveriesPerPass); err != nil {
		return err
	}
	if len(marked) == recoveriesPerPass {
		s.mayRecover.Store(true)
	}
	for _, m := range marked {
		_, err := s.Recover(ctx, access.System(m.Organization), m.Organization, m.ID, m.Since)
		if err != nil && (ctx.Err() != nil || fault.KindOf(err) == fault.Unavailable || fault.KindOf(err) == fault.Internal) {
			return err
		}
		if err != nil {
			s.log.Warn("cannot send again what failed in the outage of a subscription that works again",
				"subscription", m.ID, "error", err, "mend", "run: "+webhook.RecoverCommand(m.OrganizationID, m.ID)+" --since "+string(webhook.AppendTime(nil, m.Since)))
		}
		if err := s.change(ctx, func(t *tx) error {
			_, err := t.Exec("UPDATE subscriptions SET recover_since = NULL WHERE id = ? AND recover_since = ?", m.RowID, m.Since)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// recoveriesPerPass limits how long the rest of upkeep waits.
const recoveriesPerPass = 10
