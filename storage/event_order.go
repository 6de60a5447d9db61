package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/timeline"
)

// The numbers of events and audit events follow the order of writing. Their times do too, unless the clock was ahead
// and was set back. Retention relies on that order, because it reads only the lowest numbers. So does a replay, which
// searches the numbers for a time.
//
// So the store remembers up to which row the order is broken. Sweeps through the tables find old rows behind younger
// ones.

const (
	sweepRows     = 2000 // rows of one step: some milliseconds of one reader
	sweepInterval = 10 * time.Second
	passInterval  = time.Minute // pause after a sweep of both tables
)

// loadOrder finds the number of the newest event, and the row up to which events are out of order.
func (s *Store) loadOrder(t *tx) error {
	var newest timeline.Row
	err := t.Get(&newest, "SELECT id, created_at AS at FROM events WHERE id = (SELECT max(id) FROM events)")
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("find newest event: %w", err)
	}
	// If the newest events were deleted, their numbers must not be used again, because subscriptions remember them.
	var birth int64
	if err := t.Get(&birth, "SELECT coalesce(max(birth), 0) FROM subscriptions"); err != nil {
		return fmt.Errorf("find newest subscription: %w", err)
	}
	s.lastEvent, s.latestTime = max(newest.ID, birth), newest.At
	value, err := instanceValue(t, timeline.DisorderName)
	s.disorder = timeline.DecodeDisorder(value)
	return err
}

// checkOrder runs at the start of each transaction. It notices if the clock was set back since the last one.
func (s *Store) checkOrder(t *tx) error {
	now := t.Now()
	if s.latestTime-now <= clock.Tolerance.Milliseconds() {
		t.OnCommit(func() { s.latestTime = max(s.latestTime, now) })
		return nil
	}
	t.OnCommit(func() { s.latestTime = now })
	return s.saveDisorder(t, s.lastEvent)
}

// saveDisorder stores that the events up to this row are not in the order of time.
func (s *Store) saveDisorder(t *tx, row int64) error {
	if row <= s.disorder {
		return nil
	}
	if err := setInstanceValue(t, timeline.DisorderName, timeline.EncodeDisorder(row)); err != nil {
		return err
	}
	t.OnCommit(func() { s.disorder = row })
	return nil
}

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

func newSweeps() sweeps {
	return sweeps{
		events: sweep{next: "SELECT id, created_at AS at FROM events WHERE id > ? ORDER BY id LIMIT ?"},
		audit:  sweep{next: "SELECT id, at FROM audit_events WHERE id > ? ORDER BY id LIMIT ?"},
	}
}

// sweep does the next step through events and audit events. If it finds an old row, retention starts again from there.
func (s *Store) sweep(ctx context.Context) error {
	r := &s.retention
	if time.Now().Before(s.sweeps.next) {
		return nil
	}
	s.sweeps.next = time.Now().Add(sweepInterval)
	events, err := s.sweepStep(ctx, &s.sweeps.events, r.events)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	lines, err := s.sweepStep(ctx, &s.sweeps.audit, r.audit)
	if err != nil {
		return fmt.Errorf("read audit events: %w", err)
	}
	if s.sweeps.events.after == 0 && s.sweeps.audit.after == 0 { // both tables were read to their end
		s.sweeps.next = time.Now().Add(passInterval)
	}
	if events.firstOld > 0 {
		r.oldEventsAfter = events.firstOld - 1
	}
	if lines.firstOld > 0 {
		r.oldAuditAfter = lines.firstOld - 1
	}
	if events.disorder == 0 {
		return nil
	}
	return s.change(ctx, func(t *tx) error { return s.saveDisorder(t, events.disorder) })
}

// sweepStep reads the next rows of a table. Rows older than maxAge are old; 0 means that none is.
func (s *Store) sweepStep(ctx context.Context, w *sweep, maxAge time.Duration) (sweepResult, error) {
	var rows []timeline.Row
	if err := s.logs.List(ctx, &rows, w.next, w.after, sweepRows); err != nil {
		return sweepResult{}, err
	}
	now, trusted := s.trustedTime()
	old := func(at int64) bool { return trusted && maxAge > 0 && at < now-maxAge.Milliseconds() }
	result := w.scan(rows, old)
	if len(rows) < sweepRows {
		*w = sweep{next: w.next}
	}
	return result, nil
}

// scan adds the next rows to the sweep.
func (w *sweep) scan(rows []timeline.Row, old func(at int64) bool) (result sweepResult) {
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
