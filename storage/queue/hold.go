package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/instance"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// While the queue is held, no attempt begins. Everything else works, and published events wait. The hold is a row of
// the file, so it survives a restart, and a restored copy contains it.

// holdName is the row of table instance with the storedHold.
const holdName = "hold"

type storedHold struct {
	Since  int64  `json:"since"`
	Reason string `json:"reason"`
	Last   int64  `json:"last_delivery"`
}

// Hold returns the current hold, or nil.
func (s *shared) Hold() *webhook.Hold { return s.committedHold.Load() }

// ReleasedAt returns when the hold last changed, in milliseconds; 0 if the queue was not held since the start.
func (s *shared) ReleasedAt() int64 { return s.releasedAt.Load() }

// Held reports whether the transaction sees a hold.
func (q *Queue) Held(now *sqlite.Tx) (bool, error) {
	hold, err := q.o.Memory.with(now).hold()
	return hold != nil, err
}

// hold returns the hold as this transaction sees it, or nil.
func (t *tx) hold() (*webhook.Hold, error) {
	if t.holdIsRead {
		return t.queueHold, nil
	}
	var stored storedHold
	found, err := instance.Load(t, holdName, &stored)
	if err != nil {
		return nil, err
	}
	if t.queueHold = nil; found {
		t.queueHold = new(webhook.Hold(stored))
	}
	t.holdIsRead = true
	return t.queueHold, nil
}

func (t *tx) loadHold() error {
	hold, err := t.hold()
	t.committedHold.Store(hold)
	return err
}

// HoldQueue stops all sending. When it returns, attempts on the wire may still end, and no other attempt begins until
// ReleaseQueue or DiscardQueue. An existing hold takes the reason, if there is one, and stays as it is otherwise.
func (q *Queue) HoldQueue(ctx context.Context, by access.Actor, reason string) error {
	return q.change(ctx, sqlite.Work{Payer: by.Organization, Urgent: true, Reserve: true}, func(t *tx) error {
		hold, err := t.hold()
		switch {
		case err != nil:
			return err
		case hold == nil:
			err = q.BeginHold(t.Tx, reason)
		case reason == "" || reason == hold.Reason:
			return nil
		default:
			err = t.writeHold(webhook.Hold{Since: hold.Since, Reason: reason, Last: hold.Last})
		}
		if err != nil {
			return err
		}
		return t.audit(by, 0, access.QueueHeld, audit.Target{Type: "queue"}, map[string]any{"reason": reason})
	})
}

// BeginHold begins a new hold.
func (q *Queue) BeginHold(now *sqlite.Tx, reason string) error {
	t := q.o.Memory.with(now)
	return t.writeHold(webhook.Hold{Since: t.Now(), Reason: reason, Last: t.lastDelivery})
}

func (t *tx) writeHold(hold webhook.Hold) error {
	if err := instance.Save(t.Tx, holdName, storedHold(hold)); err != nil {
		return err
	}
	t.announceHold(&hold)
	return nil
}

// announceHold publishes a new hold after the commit. It sets the value for readers first. So a watcher that hears
// of the change never reads the old value.
func (t *tx) announceHold(hold *webhook.Hold) {
	at := t.Now()
	t.OnCommit(func() {
		t.releasedAt.Store(at)
		t.committedHold.Store(hold)
	})
	t.holdIsRead = false
	t.announceChange()
}

// ReleaseQueue ends the hold and returns how many deliveries are pending. Without a hold it does nothing.
func (q *Queue) ReleaseQueue(ctx context.Context, by access.Actor) (int64, error) {
	return returning(ctx, q, sqlite.Work{}, func(t *tx) (int64, error) {
		hold, err := t.hold()
		if err != nil || hold == nil {
			return 0, err
		}
		waiting := q.pending.Total()
		return waiting, t.releaseQueue(by, access.QueueReleased, hold, map[string]any{"pending": waiting})
	})
}

func (t *tx) releaseQueue(by access.Actor, auditType string, hold *webhook.Hold, details map[string]any) error {
	if err := t.Exec("DELETE FROM instance WHERE name = ?", holdName); err != nil {
		return fmt.Errorf("release queue: %w", err)
	}
	t.announceHold(nil)
	details["reason"], details["held_since"] = hold.Reason, string(webhook.AppendTime(nil, hold.Since))
	return t.audit(by, 0, auditType, audit.Target{Type: "queue"}, details)
}

// DiscardQueue drops all deliveries that were pending when the queue was held, and keeps their events. Then it releases
// the queue for later deliveries. It returns how many it dropped. If it is interrupted, the queue stays held, and the
// caller has to repeat it. Faults: Conflict if the queue is not held.
func (q *Queue) DiscardQueue(ctx context.Context, by access.Actor) (int64, error) {
	expected := q.Hold()
	if expected == nil {
		return 0, errNotHeld
	}
	var dropped int64
	for _, subscription := range slices.Sorted(maps.Keys(q.pending.All())) {
		for n := int64(dropBatch); n == dropBatch; dropped += n {
			var err error
			if n, err = returning(ctx, q, sqlite.Work{Cost: dropBatch}, func(t *tx) (int64, error) {
				if err := requireHold(t, *expected); err != nil {
					return 0, err
				}
				return t.dropPending(subscription, expected.Last)
			}); err != nil {
				return dropped, err
			}
		}
	}
	return dropped, q.change(ctx, sqlite.Work{}, func(t *tx) error {
		if err := requireHold(t, *expected); err != nil {
			return err
		}
		return t.releaseQueue(by, access.QueueDiscarded, expected, map[string]any{"dropped": dropped})
	})
}

var errNotHeld = fault.New(fault.Conflict, "queue_not_held",
	"The queue is not held, so there is nothing to discard. Hold it first: a discard drops what is pending at that time.")

// requireHold refuses if the queue was released since that hold, even if it is held again.
func requireHold(t *tx, expected webhook.Hold) error {
	hold, err := t.hold()
	if err == nil && (hold == nil || *hold != expected) {
		return errNotHeld
	}
	return err
}
