package storage

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// A held queue sends nothing: no attempt begins. Everything else goes on, and what is published waits. The hold is a row of
// the file, so it outlives restarts, and the copy that a restore puts in place brings it along.

// keptHold is a Hold as it stands in the file.
type keptHold struct {
	Since  int64  `json:"since"`
	Reason string `json:"reason"`
	Last   int64  `json:"last_delivery"`
}

// Held returns what holds the queue; nil where nothing does.
func (s *Store) Held() *webhook.Hold { return s.queueHold.Load() }

// hold returns what holds the queue as of this transaction; nil where nothing does.
func (t *tx) hold() (*webhook.Hold, error) {
	if t.cache.holdKnown {
		return t.cache.hold, nil
	}
	var text []byte
	err := t.Get(&text, "SELECT value FROM instance WHERE name = 'hold'")
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("read hold: %w", err)
	}
	t.cache.hold = nil
	if err == nil {
		var kept keptHold
		if err := json.Unmarshal(text, &kept); err != nil {
			return nil, fmt.Errorf("read hold: %w", err)
		}
		t.cache.hold = &webhook.Hold{Since: kept.Since, Reason: kept.Reason, Last: kept.Last}
	}
	t.cache.holdKnown = true
	return t.cache.hold, nil
}

// loadHold reads at the start whether the queue is held.
func (s *Store) loadHold(t *tx) error {
	hold, err := t.hold()
	s.queueHold.Store(hold)
	return err
}

// HoldQueue stops all sending, from the moment that it returns: what is on the wire by then ends, and nothing else begins
// until ReleaseQueue or DiscardQueue. A queue that is held already stays as it is.
func (s *Store) HoldQueue(ctx context.Context, by access.Actor, reason string) error {
	return s.workFor(by.Organization).first().change(ctx, func(t *tx) error {
		if hold, err := t.hold(); err != nil || hold != nil {
			return err
		}
		if err := s.holdQueue(t, reason); err != nil {
			return err
		}
		return s.audit(t, by, 0, access.QueueHeld, auditTarget{Type: "queue"}, map[string]any{"reason": reason})
	})
}

// holdQueue writes the hold down.
func (s *Store) holdQueue(t *tx, reason string) error {
	kept := keptHold{Since: t.Now(), Reason: reason}
	if err := t.Get(&kept.Last, "SELECT coalesce(max(id), 0) FROM deliveries"); err != nil {
		return fmt.Errorf("find newest delivery: %w", err)
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return fmt.Errorf("encode hold: %w", err)
	}
	if _, err := t.Exec("INSERT OR REPLACE INTO instance (name, value) VALUES ('hold', ?)", text); err != nil {
		return fmt.Errorf("hold queue: %w", err)
	}
	s.holdChanged(t, &webhook.Hold{Since: kept.Since, Reason: kept.Reason, Last: kept.Last})
	return nil
}

// holdChanged tells everybody, once that is committed: those who ask how to send to a subscription first, so that nobody
// who was told of the change is answered as before it.
func (s *Store) holdChanged(t *tx, hold *webhook.Hold) {
	at := t.Now()
	t.OnCommit(func() {
		s.releasedAt.Store(at)
		s.queueHold.Store(hold)
	})
	s.announceChange(t)
}

// ReleaseQueue has all that waits sent again, and returns how many deliveries that were. A queue that is not held stays as
// it is.
func (s *Store) ReleaseQueue(ctx context.Context, by access.Actor) (int64, error) {
	return returning(ctx, s, func(t *tx) (int64, error) {
		hold, err := t.hold()
		if err != nil || hold == nil {
			return 0, err
		}
		waiting := s.pending.total()
		return waiting, s.releaseQueue(t, by, access.QueueReleased, hold, map[string]any{"pending": waiting})
	})
}

// releaseQueue ends the hold.
func (s *Store) releaseQueue(t *tx, by access.Actor, auditType string, hold *webhook.Hold, details map[string]any) error {
	if _, err := t.Exec("DELETE FROM instance WHERE name = 'hold'"); err != nil {
		return fmt.Errorf("release queue: %w", err)
	}
	s.holdChanged(t, nil)
	details["reason"], details["held_since"] = hold.Reason, string(webhook.AppendTime(nil, hold.Since))
	return s.audit(t, by, 0, auditType, auditTarget{Type: "queue"}, details)
}

// DiscardQueue drops all deliveries that were pending when the queue was held, keeps their events, and releases the queue
// for those that came later. It returns how many it dropped. One that is cut off leaves the queue held, and is to be asked
// for again. Faults: Conflict where the queue is not held.
func (s *Store) DiscardQueue(ctx context.Context, by access.Actor) (int64, error) {
	asked := s.Held()
	if asked == nil {
		return 0, errNotHeld
	}
	var dropped int64
	for _, subscription := range slices.Sorted(maps.Keys(s.pending.all())) {
		for n := int64(dropBatch); n == dropBatch; dropped += n {
			var err error
			if n, err = s.discardSome(ctx, subscription, *asked); err != nil {
				return dropped, err
			}
		}
	}
	return dropped, s.change(ctx, func(t *tx) error {
		hold, err := t.hold()
		if err != nil {
			return err
		}
		if hold == nil || *hold != *asked {
			return errNotHeld
		}
		return s.releaseQueue(t, by, access.QueueDiscarded, hold, map[string]any{"dropped": dropped})
	})
}

var errNotHeld = fault.New(fault.Conflict, "queue_not_held",
	"The queue is not held, so there is nothing to discard; hold it first to drop what is pending by then.")

// discardSome drops up to dropBatch of the deliveries that a subscription had when the queue was held. A queue that was
// released, and held anew, since it was asked for is not what was to be discarded.
func (s *Store) discardSome(ctx context.Context, subscription int64, asked webhook.Hold) (int64, error) {
	return returning(ctx, s, func(t *tx) (int64, error) {
		hold, err := t.hold()
		if err != nil {
			return 0, err
		}
		if hold == nil || *hold != asked {
			return 0, errNotHeld
		}
		n, err := t.Affected(`
			UPDATE deliveries SET state = `+stateDropped+` WHERE id IN (
				SELECT id FROM deliveries INDEXED BY deliveries_pending
				WHERE subscription_id = ? AND state = `+statePending+` AND id <= ? LIMIT ?)`, subscription, hold.Last, dropBatch)
		t.OnCommit(func() { s.pending.add(subscription, -n) })
		return n, err
	})
}

// Queue tells what waits to be sent, and whether it is held. Its cost is that of Lanes.
func (s *Store) Queue(ctx context.Context) (webhook.Queue, error) {
	counts := s.pending.all()
	q := webhook.Queue{Hold: s.Held(), Subscriptions: int64(len(counts)), Largest: []webhook.Queued{}}
	for _, n := range counts {
		q.Deliveries += n
	}
	largest := slices.SortedFunc(maps.Keys(counts), func(a, b int64) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for _, row := range largest[min(len(largest), webhook.MaxQueued):] {
		delete(counts, row)
	}
	err := s.list(ctx, &q.Largest, `
		SELECT s.public_id AS subscription_public_id, o.public_id AS organization_public_id, s.url, j.value AS pending, first.due_at AS oldest_due
		FROM json_each(?) j
		JOIN subscriptions s ON s.id = CAST(j.key AS INTEGER) JOIN organizations o ON o.id = s.organization_id
		JOIN deliveries first ON first.id = (
			`+firstPending("s.id")+`)`, rowCounts(counts))
	slices.SortStableFunc(q.Largest, func(a, b webhook.Queued) int { return cmp.Compare(b.Pending, a.Pending) })
	return q, err
}
