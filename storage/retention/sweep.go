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

type sweep struct {
	rows         string // SQL that reads the next rows
	after        int64  // the last row that was read
	passedFuture bool   // the sweep has passed a row from the future
	passedYoung  bool   // the sweep has passed a row that is not old: what follows was written later
	beforeOld    int64  // the row before an old one; 0 if none was found. DeleteOld begins again there
}

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
	if err := c.sweepStep(ctx, &c.sweeps.events, c.o.KeepEvents); err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	if err := c.sweepStep(ctx, &c.sweeps.audit, c.o.KeepAudit); err != nil {
		return fmt.Errorf("read audit events: %w", err)
	}
	if c.sweeps.events.after == 0 && c.sweeps.audit.after == 0 { // both tables were read to their end
		c.sweeps.next = time.Now().Add(passInterval)
	}
	return nil
}

// sweepStep reads the next rows of a table. It notes the first row that is older than maxAge and follows rows from the future. If maxAge is
// 0, no row is old.
func (c *Cleaner) sweepStep(ctx context.Context, w *sweep, maxAge time.Duration) error {
	var rows []scan.Row
	if err := c.o.Logs.List(ctx, &rows, w.rows, w.after, sweepRows); err != nil {
		return err
	}
	now, trusted := c.o.TrustedTime()
	found := false
	for _, row := range rows {
		switch age := ageOf(row.At, now, maxAge.Milliseconds()); {
		case !trusted, maxAge == 0, age == young:
			w.passedYoung = true
		case age == future:
			w.passedFuture = true
		case w.passedFuture && !w.passedYoung && !found:
			found, w.beforeOld = true, row.ID-1
		}
		w.after = row.ID
	}
	if len(rows) < sweepRows {
		w.after, w.passedFuture, w.passedYoung = 0, false, false
	}
	return nil
}

// age is what the time of a row says. Rows are numbered in the order of writing. So a row that follows a young one is young too, whatever
// its time: the clock was behind when it was written. A time from the future says nothing.
type age int

const (
	old age = iota
	young
	future
)

func ageOf(at, now, maxAge int64) age {
	switch {
	case at > now+clock.Tolerance.Milliseconds():
		return future
	case at >= now-maxAge:
		return young
	}
	return old
}
