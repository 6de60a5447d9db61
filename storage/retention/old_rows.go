package retention

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The sizes of batches. A batch is one write among those that share a commit. So its size limits how long other writes wait for it.
const (
	eventBatch        = 250
	deliveryBatch     = 1000
	auditBatch        = 500
	countBatch        = 500
	countOwners       = 200                    // subscriptions and organizations per batch of minute counts
	minutesInterval   = 10 * time.Minute       // pause after a pass over the minute counts
	retentionInterval = 10 * time.Second       // pause after a pass over the events
	retentionSlice    = 500 * time.Millisecond // of each second
	vacuumPages       = 200
)

type oldRows struct {
	after      int64     // the last event that this pass has read
	auditAfter int64     // the last audit event that this pass has read
	next       time.Time // time of the next pass

	minutesAfter countOwner // the last owner whose minutes this pass has read
	minutesNext  time.Time  // time of the next pass over the minutes
}

// countOwner is whose attempts are counted together; see table attempt_minutes.
type countOwner struct {
	Organization int64 `db:"organization_id"`
	Subscription int64 `db:"subscription_id"`
}

// beforeOwners comes before all owners of counts. A pass over the minutes begins there.
var beforeOwners = countOwner{Subscription: -1}

// DeleteOld deletes what is older than the settings allow. It never deletes pending deliveries of open subscriptions, however old they
// are. Idempotency keys live as long as their events.
//
// It ends after retentionSlice, so that the rest of upkeep gets its turn. It does nothing while the clock is in doubt.
func (c *Cleaner) DeleteOld(ctx context.Context) error {
	r := &c.old
	if time.Now().Before(r.next) {
		return nil
	}
	return scan.Batches(ctx, retentionSlice, func() (more bool, err error) {
		now, trusted := c.o.TrustedTime()
		if !trusted {
			return false, nil
		}
		if more, err = c.deleteOldBatch(ctx, now); err == nil && !more { // new rows take a tenth of the file, and the disk gets the rest
			err = c.o.Logs.Get(ctx, &more, "SELECT auto_vacuum = 2 AND freelist_count * 10 > page_count FROM pragma_auto_vacuum, pragma_freelist_count, pragma_page_count")
		}
		if err != nil {
			return false, err
		}
		if !more && !c.nextRange() {
			r.next = time.Now().Add(retentionInterval)
			return false, nil
		}
		return true, c.vacuum(ctx)
	})
}

// nextRange ends the part of a pass that starts at the lowest numbers. It returns true if Sweep found old rows further
// on. The next part starts there.
func (c *Cleaner) nextRange() bool {
	c.old.after, c.old.auditAfter = c.sweeps.events.beforeOld, c.sweeps.audit.beforeOld
	c.sweeps.events.beforeOld, c.sweeps.audit.beforeOld = 0, 0
	return c.old.after > 0 || c.old.auditAfter > 0
}

// deleteOldBatch deletes one batch of everything that is too old. more is false if nothing old is left.
func (c *Cleaner) deleteOldBatch(ctx context.Context, now int64) (more bool, err error) {
	events, err1 := c.deleteOldEvents(ctx, now)
	auditEvents, err2 := c.deleteOldAudit(ctx, now)
	minutes, err3 := c.deleteOldCounts(ctx, now)
	return events || auditEvents || minutes, errors.Join(err1, err2, err3)
}

type oldEvent struct {
	ID      int64 `db:"id"`
	Waiting bool  `db:"waiting"` // a delivery is pending for an open subscription, or an attempt is running
}

// deleteOldEvents deletes a batch of old events without pending work. more is false if the next events are not old; sweep looks behind them.
//
// While the queue is held, it deletes nothing, so that an operator can examine what was restored.
func (c *Cleaner) deleteOldEvents(ctx context.Context, now int64) (more bool, err error) {
	if c.o.KeepEvents == 0 {
		return false, nil
	}
	after := c.old.after // the writer may still read it when ctx ends, and it changes then
	done, err := sqlite.Returning(ctx, c.o.File, sqlite.Work{Cost: eventBatch + deliveryBatch}, func(t *sqlite.Tx) (eventProgress, error) {
		return c.deleteEventBatch(t, after, now)
	})
	if err == nil {
		c.old.after = done.after
	}
	return done.more, err
}

// eventProgress is how far a batch of events got.
type eventProgress struct {
	after int64 // the last event that is done
	more  bool  // the batch was not empty
}

// deleteEventBatch deletes a batch of the events after the row after that are old at the time now.
func (c *Cleaner) deleteEventBatch(t *sqlite.Tx, after, now int64) (eventProgress, error) {
	if held, err := c.o.Queue.Held(t); err != nil || held {
		return eventProgress{after: after}, err
	}
	last, err := lastOldEvent(t, after, now, c.o.KeepEvents.Milliseconds())
	if err != nil {
		return eventProgress{}, err
	}
	old := []oldEvent{}
	if err := t.List(&old, `
		SELECT e.id, `+delivery.EventWaits+` AS waiting
		FROM events e WHERE e.id > ? AND e.id <= ? AND e.created_at < ? ORDER BY e.id`, after, last, now-c.o.KeepEvents.Milliseconds()); err != nil {
		return eventProgress{}, err
	}
	if len(old) == 0 {
		return eventProgress{after: after}, nil
	}
	done := eventProgress{old[len(old)-1].ID, true}
	complete, err := c.deleteEvents(t, old)
	if !complete {
		done.after = after // the next batch deletes the other deliveries, and then the events
	}
	return done, err
}

// deleteEvents deletes those of the events that do not wait. If they have too many deliveries for one transaction, it deletes some
// of these, and complete is false.
func (c *Cleaner) deleteEvents(t *sqlite.Tx, events []oldEvent) (complete bool, err error) {
	var rows []int64
	for _, e := range events {
		if !e.Waiting {
			rows = append(rows, e.ID)
		}
	}
	deliveries, err := c.deleteDeliveries(t, rows)
	if err != nil || deliveries == deliveryBatch {
		return false, err
	}
	gone := sqlite.RowList(slices.Values(rows))
	if err := t.Exec(`
		UPDATE organizations SET expired_event = max(coalesce(expired_event, 0), gone.last)
		FROM (SELECT e.organization_id, max(e.id) AS last FROM json_each(?) j CROSS JOIN events e ON e.id = j.value GROUP BY e.organization_id) gone
		WHERE organizations.id = gone.organization_id`, gone); err != nil {
		return false, err
	}
	return true, t.Exec("DELETE FROM events WHERE id IN (SELECT value FROM json_each(?))", gone)
}

// lastOldEvent returns the last event of the next batch, or 0 if the next events are not old.
func lastOldEvent(t *sqlite.Tx, after, now, maxAge int64) (last int64, err error) {
	var events []int64
	if err := t.List(&events, oldRowsOf("events", "created_at"), after, eventBatch, now-maxAge, now+clock.Tolerance.Milliseconds()); err != nil {
		return 0, err
	}
	return lastWithFewDeliveries(t, events)
}

// oldRowsOf returns SQL that selects the old ones of the next rows of a table: after the row ?1, of ?2 rows, before the time ?3. It selects none
// behind a young row, which is one up to the time ?4; see age.
func oldRowsOf(table, at string) string {
	return `
		WITH next AS (SELECT id, ` + at + ` AS at FROM ` + table + ` WHERE id > ?1 ORDER BY id LIMIT ?2)
		SELECT id FROM next WHERE at < ?3 AND id < coalesce((SELECT min(id) FROM next WHERE at BETWEEN ?3 AND ?4), 1 << 62)`
}

// lastWithFewDeliveries returns the last event of a batch that takes the first of these events; 0 if there are none. A batch reads every
// delivery of its events, and other writes wait for it. So it has at most deliveryBatch deliveries, unless a single event has more.
func lastWithFewDeliveries(t *sqlite.Tx, events []int64) (last int64, err error) {
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

// deleteDeliveries deletes up to deliveryBatch deliveries of the events, with their attempts, and returns how many. The
// deliveries of one event have consecutive numbers, so a few ranges contain them all.
func (c *Cleaner) deleteDeliveries(t *sqlite.Tx, events []int64) (int, error) {
	var deliveries []struct {
		ID           int64                 `db:"id"`
		Subscription int64                 `db:"subscription_id"`
		State        webhook.DeliveryState `db:"state"`
	}
	if err := t.List(&deliveries, `
		SELECT id, subscription_id, state FROM deliveries WHERE event_id IN (SELECT value FROM json_each(?)) LIMIT ?`, sqlite.RowList(slices.Values(events)), deliveryBatch); err != nil {
		return 0, err
	}
	ids := make([]int64, 0, len(deliveries))
	for _, d := range deliveries {
		ids = append(ids, d.ID)
		if d.State == webhook.Pending { // an event with an attempt in progress is not deleted
			if err := c.o.Queue.Expired(t, d.Subscription); err != nil {
				return 0, err
			}
		}
	}
	slices.Sort(ids)
	for len(ids) > 0 {
		n := 1
		for n < len(ids) && ids[n] == ids[0]+int64(n) {
			n++
		}
		first, last := ids[0], ids[n-1]
		if err := t.Exec("DELETE FROM attempts AS a WHERE "+delivery.Attempts("?1", "?2"), first, last); err != nil {
			return 0, err
		}
		if err := t.Exec("DELETE FROM deliveries WHERE id BETWEEN ?1 AND ?2", first, last); err != nil {
			return 0, err
		}
		ids = ids[n:]
	}
	return len(deliveries), nil
}

// deleteOldAudit deletes the next old audit events. more is false if the next ones are not old.
func (c *Cleaner) deleteOldAudit(ctx context.Context, now int64) (more bool, err error) {
	if c.o.KeepAudit == 0 {
		return false, nil
	}
	after, before, latest := c.old.auditAfter, now-c.o.KeepAudit.Milliseconds(), now+clock.Tolerance.Milliseconds()
	n, err := sqlite.Returning(ctx, c.o.File, sqlite.Work{Cost: auditBatch}, func(t *sqlite.Tx) (int64, error) {
		return t.Affected("DELETE FROM audit_events WHERE id IN ("+oldRowsOf("audit_events", "at")+")", after, auditBatch, before, latest)
	})
	return n > 0, err
}

// deleteOldCounts deletes the counts that are as old as deleted events, of a few owners. more is false after the last owner.
func (c *Cleaner) deleteOldCounts(ctx context.Context, now int64) (more bool, err error) {
	r := &c.old
	if c.o.KeepEvents == 0 || time.Now().Before(r.minutesNext) {
		return false, nil
	}
	after, before := r.minutesAfter, (now-c.o.KeepEvents.Milliseconds())/time.Minute.Milliseconds()
	done, err := sqlite.Returning(ctx, c.o.File, sqlite.Work{Cost: countBatch}, func(t *sqlite.Tx) (countProgress, error) { return c.deleteCountBatch(t, after, before) })
	if err != nil {
		return false, err
	}
	if r.minutesAfter = done.after; !done.more {
		r.minutesAfter, r.minutesNext = beforeOwners, time.Now().Add(minutesInterval)
	}
	return done.more, nil
}

// countProgress is how far a batch of counts got.
type countProgress struct {
	after countOwner // the last owner without old counts
	more  bool
}

// deleteCountBatch deletes a batch of counts of the owners after the given one, from minutes before the given one.
func (c *Cleaner) deleteCountBatch(t *sqlite.Tx, after countOwner, before int64) (countProgress, error) {
	left := int64(countBatch)
	for range countOwners {
		var owner countOwner
		err := t.Get(&owner, `
			SELECT organization_id, subscription_id FROM attempt_minutes
			WHERE (organization_id, subscription_id) > (?, ?) ORDER BY organization_id, subscription_id LIMIT 1`,
			after.Organization, after.Subscription)
		if errors.Is(err, sql.ErrNoRows) {
			return countProgress{after: after}, nil
		}
		if err != nil {
			return countProgress{}, err
		}
		n, err := t.Affected(`
			DELETE FROM attempt_minutes WHERE organization_id = ?1 AND subscription_id = ?2 AND minute IN (
				SELECT minute FROM attempt_minutes
				WHERE organization_id = ?1 AND subscription_id = ?2 AND minute < ?3 ORDER BY minute LIMIT ?4)`,
			owner.Organization, owner.Subscription, before, left)
		if err != nil {
			return countProgress{}, err
		}
		if left -= n; left <= 0 {
			break // the next batch deletes the other counts of this owner
		}
		after = owner
	}
	return countProgress{after, true}, nil
}

// vacuum returns a few free pages to the file system.
func (c *Cleaner) vacuum(ctx context.Context) error {
	if err := c.change(ctx, func(t *sqlite.Tx) error {
		return t.Exec(fmt.Sprintf("PRAGMA incremental_vacuum(%d)", vacuumPages))
	}); err != nil {
		return fmt.Errorf("give back pages: %w", err)
	}
	return nil
}
