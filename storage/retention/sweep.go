package retention

import (
	"context"
	"fmt"
	"time"

	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/scan"
)

const (
	sweepRows     = 2000 // rows of one step: some milliseconds of one reader
	sweepInterval = 10 * time.Second
	passInterval  = time.Minute // pause after a sweep of both tables
)

// sweep is a slow walk through a table, again and again.
type sweep struct {
	next        string // SQL that reads the next rows
	after       int64  // the last row that was read
	latestTime  int64  // the latest time on the way, since the order was last broken
	passedYoung bool   // the sweep has passed a row that is not old
}

// sweepResult is what one step of a sweep found.
type sweepResult struct {
	firstOld int64 // the first old row after a young row; 0 if there is none
	disorder int64 // the last row before one that is earlier by more than clock.Tolerance; 0 if there is none
}

// sweeps are the sweeps of a store, and the time of the next step.
type sweeps struct {
	events, audit sweep
	next          time.Time
}

// Sweep does the next step through events and audit events. If it finds an old row, retention starts again from there.
func (c *Cleaner) Sweep(ctx context.Context) error {
	if time.Now().Before(c.sweeps.next) {
		return nil
	}
	c.sweeps.next = time.Now().Add(sweepInterval)
	events, err := c.sweepStep(ctx, &c.sweeps.events, c.o.KeepEvents)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	auditEvents, err := c.sweepStep(ctx, &c.sweeps.audit, c.o.KeepAudit)
	if err != nil {
		return fmt.Errorf("read audit events: %w", err)
	}
	if c.sweeps.events.after == 0 && c.sweeps.audit.after == 0 { // both tables were read to their end
		c.sweeps.next = time.Now().Add(passInterval)
	}
	if events.firstOld > 0 {
		c.old.oldEventsAfter = events.firstOld - 1
	}
	if auditEvents.firstOld > 0 {
		c.old.oldAuditAfter = auditEvents.firstOld - 1
	}
	if events.disorder == 0 {
		return nil
	}
	return c.o.Queue.SaveDisorder(ctx, events.disorder)
}

// sweepStep reads the next rows of a table. Rows older than maxAge are old; 0 means that none is.
func (c *Cleaner) sweepStep(ctx context.Context, w *sweep, maxAge time.Duration) (sweepResult, error) {
	var rows []scan.Row
	if err := c.o.Logs.List(ctx, &rows, w.next, w.after, sweepRows); err != nil {
		return sweepResult{}, err
	}
	now, trusted := c.o.TrustedTime()
	old := func(at int64) bool { return trusted && maxAge > 0 && at < now-maxAge.Milliseconds() }
	result := w.scan(rows, old)
	if len(rows) < sweepRows {
		*w = sweep{next: w.next}
	}
	return result, nil
}

// scan adds the next rows to the sweep.
func (w *sweep) scan(rows []scan.Row, old func(at int64) bool) (result sweepResult) {
	for _, row := range rows {
		if w.latestTime-row.At > clock.Tolerance.Milliseconds() {
			result.disorder, w.latestTime = w.after, row.At
		}
		w.latestTime = max(w.latestTime, row.At)
		switch {
		case !old(row.At):
			w.passedYoung = true
		case w.passedYoung && result.firstOld == 0:
			result.firstOld = row.ID
		}
		w.after = row.ID
	}
	return result
}
