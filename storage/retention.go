package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
)

// How much retention takes at a time. A batch is one job among those that share a commit, so this is how long other
// writes may have to wait for it.
const (
	eventBatch        = 250
	deliveryBatch     = 1000
	auditBatch        = 500
	countBatch        = 500
	countOwners       = 200                    // subscriptions and organizations whose minutes are looked at in a batch
	minutesInterval   = 10 * time.Minute       // between looks at the minutes
	retentionInterval = 10 * time.Second       // between looks, once all has been looked at
	retentionSlice    = 500 * time.Millisecond // of each second
	vacuumPages       = 200
)

// retention forgets what is older than the settings say. Pending work of open subscriptions is never touched, however
// old; idempotency keys live as long as their event.
type retention struct {
	events, audit time.Duration // 0 keeps for ever
	after         int64         // event up to which all has been looked at in this pass
	auditAfter    int64         // audit event up to which all has been looked at in this pass
	behind        int64         // event after which sweep has found an old one; 0 is none
	auditBehind   int64         // audit event after which sweep has found an old one; 0 is none
	next          time.Time     // when to look again

	minutesAfter counted   // up to whom all minutes have been looked at in this pass
	minutesNext  time.Time // when to look at them again
}

// deleteOld deletes batches, with pauses as long as the work, so that others have their turn; and it stops after a while, so
// that the rest of upkeep has its own. It does nothing while the clock is doubted.
func (s *Store) deleteOld(ctx context.Context) error {
	r := &s.retention
	for end := time.Now().Add(retentionSlice); !time.Now().Before(r.next) && time.Now().Before(end); {
		began := time.Now()
		now, trusted := s.trustedTime()
		if !trusted {
			return nil
		}
		more, err := s.deleteOldBatch(ctx, now)
		if err != nil {
			return err
		}
		if !more && !r.lookBehind() {
			r.next = time.Now().Add(retentionInterval)
			return nil
		}
		if err := s.vacuum(ctx); err != nil {
			return fmt.Errorf("give back pages: %w", err)
		}
		select {
		case <-time.After(time.Since(began)):
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// lookBehind ends the part of a pass that begins at the lowest numbers. It reports whether there is another part, which
// begins at what sweep has found.
func (r *retention) lookBehind() bool {
	r.after, r.auditAfter = r.behind, r.auditBehind
	r.behind, r.auditBehind = 0, 0
	return r.after > 0 || r.auditAfter > 0
}

// deleteOldBatch takes a batch of everything that is too old at the given time. more is false when nothing is left of it.
func (s *Store) deleteOldBatch(ctx context.Context, now int64) (more bool, err error) {
	events, err := s.deleteOldEvents(ctx, now)
	if err != nil {
		return false, fmt.Errorf("delete old events: %w", err)
	}
	lines, err := s.deleteOldAudit(ctx, now)
	if err != nil {
		return false, fmt.Errorf("delete old audit events: %w", err)
	}
	minutes, err := s.deleteOldCounts(ctx, now)
	if err != nil {
		return false, fmt.Errorf("delete old counts: %w", err)
	}
	return events || lines || minutes, nil
}

// aged is an event old enough to go.
type aged struct {
	ID      int64 `db:"id"`
	Waiting bool  `db:"waiting"` // for an open subscription, or for the end of an attempt
}

// deleteOldEvents looks at the next old events and takes those that nothing waits for. more is false where the next events
// are not old; sweep looks behind them. While the queue is held nothing goes: an operator looks at what was restored, and
// DiscardQueue tells old from new by the numbers of rows, which are used again once they are free.
func (s *Store) deleteOldEvents(ctx context.Context, now int64) (more bool, err error) {
	if s.retention.events == 0 {
		return false, nil
	}
	after := s.retention.after
	done, err := returning(ctx, s.workFor(0).rows(eventBatch+deliveryBatch), func(t *tx) (progress, error) {
		return s.deleteEventBatch(t, after, now-s.retention.events.Milliseconds())
	})
	if err != nil {
		return false, err
	}
	s.retention.after = done.after
	return done.more, nil
}

// progress is how far a batch has come.
type progress struct {
	after int64 // the last event that is done with
	more  bool  // there was something to look at
}

// deleteEventBatch takes a batch of the events that come after the given one and were created before the given time.
func (s *Store) deleteEventBatch(t *tx, after, before int64) (progress, error) {
	if hold, err := t.hold(); err != nil || hold != nil {
		return progress{after: after}, err
	}
	last, err := lastOldEvent(t, after, before)
	if err != nil {
		return progress{}, err
	}
	old := []aged{}
	if err := t.List(&old, `
		SELECT e.id, EXISTS (
			SELECT 1 FROM deliveries d
			JOIN subscriptions s ON s.id = d.subscription_id
			JOIN organizations o ON o.id = s.organization_id JOIN plans p ON p.id = o.plan_id
			WHERE d.event_id = e.id AND (
				d.state = `+statePending+` AND s.status <> 'disabled' AND s.deleted_at IS NULL AND p.webhooks
				OR EXISTS (SELECT 1 FROM attempts a WHERE a.id BETWEEN d.id << 8 AND d.id << 8 | 255 AND a.outcome = `+outcomeSending+`))
		) AS waiting
		FROM events e WHERE e.id > ? AND e.id <= ? AND e.created_at < ? ORDER BY e.id`, after, last, before); err != nil {
		return progress{}, err
	}
	if len(old) == 0 {
		return progress{after: after}, nil
	}
	done := progress{old[len(old)-1].ID, true}
	old = slices.DeleteFunc(old, func(e aged) bool { return e.Waiting })
	deliveries, err := s.deleteDeliveries(t, old)
	if err != nil {
		return progress{}, err
	}
	if deliveries == deliveryBatch {
		done.after = after // the rest of them is for the next batch, and then the events
		return done, nil
	}
	_, err = t.Exec("DELETE FROM events WHERE id IN (SELECT value FROM json_each(?))", rowList(eventRows(old)))
	return done, err
}

// lastOldEvent returns the last event of the next batch; 0 where the next events are not old. A batch looks at every
// delivery of its events, and others wait for it. So it has at most deliveryBatch of them, but for a single event that
// has more.
func lastOldEvent(t *tx, after, before int64) (last int64, err error) {
	events := []int64{}
	// Events are numbered in the order of publication, so the old ones come first, but for a clock that was wrong.
	if err := t.List(&events, `
		SELECT e.id FROM (SELECT id, created_at FROM events WHERE id > ? ORDER BY id LIMIT ?) e
		WHERE e.created_at < ?`, after, eventBatch, before); err != nil {
		return 0, err
	}
	left := deliveryBatch
	for _, event := range events {
		var deliveries int
		if err := t.Get(&deliveries, "SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE event_id = ? LIMIT ?)", event, left+1); err != nil {
			return 0, err
		}
		if left -= deliveries; left < 0 && last > 0 {
			break
		}
		last = event
		if left <= 0 {
			break
		}
	}
	return last, nil
}

func eventRows(events []aged) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for _, e := range events {
			if !yield(e.ID) {
				return
			}
		}
	}
}

// deleteDeliveries deletes up to deliveryBatch of the events' deliveries, with their attempts, and returns how many.
// Those of one publication are numbered one after the other, so a few ranges hold them all.
func (s *Store) deleteDeliveries(t *tx, events []aged) (int, error) {
	var taken []struct {
		ID           int64 `db:"id"`
		Subscription int64 `db:"subscription_id"`
		State        int   `db:"state"`
	}
	if err := t.List(&taken, `
		SELECT id, subscription_id, state FROM deliveries WHERE event_id IN (SELECT value FROM json_each(?)) LIMIT ?`, rowList(eventRows(events)), deliveryBatch); err != nil {
		return 0, err
	}
	ids := make([]int64, 0, len(taken))
	for _, d := range taken {
		ids = append(ids, d.ID)
		if d.State == 0 {
			t.OnCommit(func() { s.pending.add(d.Subscription, -1) })
		}
	}
	slices.Sort(ids)
	for len(ids) > 0 {
		n := 1
		for n < len(ids) && ids[n] == ids[0]+int64(n) {
			n++
		}
		first, last := ids[0], ids[n-1]
		if _, err := t.Exec("DELETE FROM attempts WHERE id BETWEEN ?1 << 8 AND ?2 << 8 | 255", first, last); err != nil {
			return 0, err
		}
		if _, err := t.Exec("DELETE FROM deliveries WHERE id BETWEEN ?1 AND ?2", first, last); err != nil {
			return 0, err
		}
		ids = ids[n:]
	}
	return len(taken), nil
}

// deleteOldAudit deletes the next old lines of the audit log. more is false where the next lines are not old.
func (s *Store) deleteOldAudit(ctx context.Context, now int64) (more bool, err error) {
	if s.retention.audit == 0 {
		return false, nil
	}
	after, before := s.retention.auditAfter, now-s.retention.audit.Milliseconds()
	n, err := returning(ctx, s, func(t *tx) (int64, error) {
		return t.Affected(`
			DELETE FROM audit_events WHERE id IN (
				SELECT id FROM (SELECT id, at FROM audit_events WHERE id > ? ORDER BY id LIMIT ?) WHERE at < ?)`,
			after, auditBatch, before)
	})
	return n > 0, err
}

// deleteOldCounts deletes counts as old as events may be, of a few subscriptions and organizations. more is false when it has
// come to the last.
func (s *Store) deleteOldCounts(ctx context.Context, now int64) (more bool, err error) {
	r := &s.retention
	if r.events == 0 || time.Now().Before(r.minutesNext) {
		return false, nil
	}
	after, before := r.minutesAfter, (now-r.events.Milliseconds())/minute
	done, err := returning(ctx, s, func(t *tx) (counting, error) { return s.deleteCountBatch(t, after, before) })
	if err != nil {
		return false, err
	}
	if r.minutesAfter = done.after; !done.more {
		r.minutesAfter, r.minutesNext = counted{}, time.Now().Add(minutesInterval)
	}
	return done.more, nil
}

// counting is how far a batch has come with the counts.
type counting struct {
	after counted // the last whose old counts are gone
	more  bool
}

// deleteCountBatch takes a batch of the counts that come after the given ones and are of minutes before the given one.
func (s *Store) deleteCountBatch(t *tx, after counted, before int64) (counting, error) {
	left := int64(countBatch)
	for range countOwners {
		var of counted
		err := t.Get(&of, `
			SELECT organization_id, subscription_id FROM attempt_minutes
			WHERE (organization_id, subscription_id) > (?, ?) ORDER BY organization_id, subscription_id LIMIT 1`,
			after.Organization, after.Subscription)
		if errors.Is(err, sql.ErrNoRows) {
			return counting{after: after}, nil
		}
		if err != nil {
			return counting{}, err
		}
		n, err := t.Affected(`
			DELETE FROM attempt_minutes WHERE organization_id = ?1 AND subscription_id = ?2 AND minute IN (
				SELECT minute FROM attempt_minutes
				WHERE organization_id = ?1 AND subscription_id = ?2 AND minute < ?3 ORDER BY minute LIMIT ?4)`,
			of.Organization, of.Subscription, before, left)
		if err != nil {
			return counting{}, err
		}
		if left -= n; left <= 0 {
			break // the rest of these counts is for the next batch
		}
		after = of
	}
	return counting{after, true}, nil
}

// vacuum gives a few free pages back to the file system.
func (s *Store) vacuum(ctx context.Context) error {
	return s.change(ctx, func(t *tx) error {
		_, err := t.Exec(fmt.Sprintf("PRAGMA incremental_vacuum(%d)", vacuumPages))
		return err
	})
}
