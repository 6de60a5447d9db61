package storage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
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
		return sub, requireWebhooks(t, organization)
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
	end, err := s.replays.Take(ctx, p.organization)
	if err != nil {
		return c, err
	}
	defer end()
	free, err := s.replays.Slot(ctx)
	if err != nil {
		return c, err
	}
	defer free()
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
			if err := s.applyChange(t, by, organization, &sub, webhook.SubscriptionChange{IsActive: new(true)}); err != nil {
				return err
			}
		}
		return s.audit(t, by, organization, access.SubscriptionRecovered, auditTarget{"subscription", p.id, sub.RowID}, map[string]any{
			"url_host": hostOf(sub.URL), "since": string(webhook.AppendTime(nil, r.Since)), "deliveries": r.Deliveries, "pending": r.Pending,
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

// Discard drops the pending deliveries of a subscription, of events from before a time, and returns how many. They are
// never sent, and their events stay. If before is 0, it drops all that are pending now. If it is interrupted, the caller
// can repeat it.
//
// Faults: NotFound; Unavailable if the context ends first.
func (s *Store) Discard(ctx context.Context, by access.Actor, organization int64, id string, before int64) (dropped int64, err error) {
	o, err := returning(ctx, s.workFor(organization), func(t *tx) (o discarded, err error) {
		o.last = s.lastDelivery
		o.row, err = subscriptionRow(t, organization, id)
		return o, err
	})
	if err != nil {
		return 0, err
	}
	if before == 0 {
		before = math.MaxInt64
	}
	after, more := scan.Position{At: math.MinInt64}, true
	for more {
		var waiting []waitingDelivery
		if waiting, err = s.nextWaiting(ctx, organization, o.row, o.last, after); err != nil {
			break
		}
		if more = len(waiting) == dropBatch; more {
			after = scan.Position{At: waiting[dropBatch-1].DueAt, Row: waiting[dropBatch-1].ID}
		}
		waiting = slices.DeleteFunc(waiting, func(d waitingDelivery) bool { return d.EventAt >= before })
		var n int64
		if n, err = s.discardWaiting(ctx, organization, o.row, waiting); err != nil {
			break
		}
		dropped += n
	}
	if err != nil && dropped == 0 {
		return 0, err
	}
	return s.finishDiscard(ctx, by, organization, discarded{id: id, row: o.row, last: o.last, before: before, dropped: dropped, err: err})
}

// discarded is how far a discard got.
type discarded struct {
	id        string // of the subscription
	row, last int64  // its row, and the newest delivery when the discard began
	before    int64
	dropped   int64
	err       error // why it ended early; nil if it did not
}

// waitingDelivery is a pending delivery with the time of its event.
type waitingDelivery struct {
	ID      int64 `db:"id"`
	DueAt   int64 `db:"due_at"`
	EventAt int64 `db:"event_at"`
}

// nextWaiting reads the next pending deliveries of a subscription after a position, up to the delivery last.
func (s *Store) nextWaiting(ctx context.Context, organization, subscription, last int64, after scan.Position) (waiting []waitingDelivery, err error) {
	end, err := s.replays.Take(ctx, organization)
	if err != nil {
		return nil, err
	}
	defer end()
	free, err := s.replays.Slot(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	err = s.replays.Pool.List(ctx, &waiting, `
		SELECT d.id, d.due_at, e.created_at AS event_at
		FROM deliveries d INDEXED BY deliveries_pending CROSS JOIN events e ON e.id = d.event_id
		WHERE d.subscription_id = ?1 AND d.state = `+delivery.Pending+` AND (d.due_at, d.id) > (?2, ?3) AND d.id <= ?4
		ORDER BY d.due_at, d.id LIMIT ?5`, subscription, after.At, after.Row, last, dropBatch)
	return waiting, err
}

// discardWaiting drops deliveries of a subscription that still wait. If an attempt of one is in progress by now, its record
// stays, and nothing follows it.
func (s *Store) discardWaiting(ctx context.Context, organization, subscription int64, waiting []waitingDelivery) (int64, error) {
	if len(waiting) == 0 {
		return 0, nil
	}
	ids := func(yield func(int64) bool) {
		for _, d := range waiting {
			if !yield(d.ID) {
				return
			}
		}
	}
	return returning(ctx, s.workFor(organization).rows(len(waiting)), func(t *tx) (int64, error) {
		clear(t.sending) // an attempt may have begun since they were read
		n, err := t.Affected(dropDeliveries+`SELECT value FROM json_each(?)) AND state IN (`+delivery.Pending+`, `+delivery.Sending+`)`, sqlite.RowList(ids))
		t.OnCommit(func() { s.pending.Add(subscription, -n) })
		return n, err
	})
}

// finishDiscard drops the deliveries whose attempts have begun, and writes the audit event. Requests in progress go on. The
// new epoch makes the dispatcher release attempts that it has not sent yet.
func (s *Store) finishDiscard(ctx context.Context, by access.Actor, organization int64, d discarded) (int64, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replayTimeout)
	defer cancel()
	dropped, err := returning(ctx, s.workFor(organization), func(t *tx) (int64, error) {
		clear(t.sending)
		n, err := t.Affected(dropDeliveries+`
			SELECT d.id FROM deliveries d INDEXED BY deliveries_sending CROSS JOIN events e ON e.id = d.event_id
			WHERE d.subscription_id = ?1 AND d.state >= `+delivery.Sending+` AND d.state = `+delivery.Sending+` AND d.id <= ?2 AND e.created_at < ?3)`,
			d.row, d.last, d.before)
		if err != nil {
			return 0, err
		}
		if _, err := t.Exec("UPDATE subscriptions SET epoch = epoch + 1 WHERE id = ?", d.row); err != nil {
			return 0, err
		}
		t.OnCommit(func() { s.pending.Add(d.row, -n) })
		s.announceChange(t, d.row)
		details := map[string]any{"deliveries": d.dropped + n, "complete": d.err == nil}
		if d.before != math.MaxInt64 {
			details["before"] = string(webhook.AppendTime(nil, d.before))
		}
		return d.dropped + n, s.audit(t, by, organization, access.SubscriptionDiscarded, auditTarget{"subscription", d.id, d.row}, details)
	})
	return dropped, errors.Join(d.err, err)
}
