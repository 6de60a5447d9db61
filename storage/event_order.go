package storage

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/keyhook/keyhook/storage/clock"
)

// Events and audit events are numbered in the order in which they were written. Their times follow that order, unless the
// clock was ahead and was set back. Two things rest on the order: retention looks at the lowest numbers only, and a replay
// searches the numbers for a time. So the store keeps where the order is broken, and sweeps through the tables for old
// rows that stand behind younger ones.

const (
	sweepRows     = 2000 // that a sweep looks at: some milliseconds of one reader
	sweepInterval = 10 * time.Second
	passInterval  = time.Minute // before the tables are looked through again from the beginning
)

// keptDisorder names the row of the instance that holds Store.disorder.
const keptDisorder = "disorder"

// loadOrder finds the number of the newest event, and reads up to where events are out of order.
func (s *Store) loadOrder(t *tx) error {
	var newest stamped
	err := t.Get(&newest, "SELECT id, created_at AS at FROM events WHERE id = (SELECT max(id) FROM events)")
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("find newest event: %w", err)
	}
	// Where the newest events have been deleted, their numbers must not be used again: subscriptions remember theirs.
	var birth int64
	if err := t.Get(&birth, "SELECT coalesce(max(birth), 0) FROM subscriptions"); err != nil {
		return fmt.Errorf("find newest subscription: %w", err)
	}
	s.lastEvent, s.latest = max(newest.ID, birth), newest.At
	kept, err := instance(t, keptDisorder)
	if len(kept) == 8 {
		s.disorder = int64(binary.BigEndian.Uint64(kept))
	}
	return err
}

// stamped is a row with its time.
type stamped struct {
	ID int64 `db:"id"`
	At int64 `db:"at"`
}

// keepOrder begins a transaction: it notes that the clock was set back since the one before.
func (s *Store) keepOrder(t *tx) error {
	now := t.Now()
	if s.latest-now <= clock.Tolerance.Milliseconds() {
		t.OnCommit(func() { s.latest = max(s.latest, now) })
		return nil
	}
	t.OnCommit(func() { s.latest = now })
	return s.noteDisorder(t, s.lastEvent)
}

// noteDisorder keeps that the events up to this row are not in the order of time.
func (s *Store) noteDisorder(t *tx, row int64) error {
	if row <= s.disorder {
		return nil
	}
	if _, err := t.Exec("INSERT OR REPLACE INTO instance (name, value) VALUES (?, ?)",
		keptDisorder, binary.BigEndian.AppendUint64(nil, uint64(row))); err != nil {
		return fmt.Errorf("note that events are out of order: %w", err)
	}
	t.OnCommit(func() { s.disorder = row })
	return nil
}

// sweep is a slow walk through a table, again and again.
type sweep struct {
	next    string // the statement that reads the next rows
	after   int64  // up to where the walk has come
	highest int64  // the latest time on the way, since the order was last broken
	young   bool   // a row on the way was not old
}

// sweepResult is what a step of a sweep has found.
type sweepResult struct {
	old      int64 // the first old row behind a young one; 0 is none
	disorder int64 // the last row before one that is earlier by more than clock.Tolerance; 0 is none
}

// sweeps are those of the store.
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

// sweep takes the next step through events and audit events, and has retention look at an old row that it finds.
func (s *Store) sweep(ctx context.Context) error {
	r := &s.retention
	if time.Now().Before(s.sweeps.next) {
		return nil
	}
	s.sweeps.next = time.Now().Add(sweepInterval)
	events, err := s.sweepStep(ctx, &s.sweeps.events, r.events)
	if err != nil {
		return fmt.Errorf("look through the events: %w", err)
	}
	lines, err := s.sweepStep(ctx, &s.sweeps.audit, r.audit)
	if err != nil {
		return fmt.Errorf("look through the audit events: %w", err)
	}
	if s.sweeps.events.after == 0 && s.sweeps.audit.after == 0 { // both tables were looked through to their end
		s.sweeps.next = time.Now().Add(passInterval)
	}
	if events.old > 0 {
		r.behind = events.old - 1
	}
	if lines.old > 0 {
		r.auditBehind = lines.old - 1
	}
	if events.disorder == 0 {
		return nil
	}
	return s.change(ctx, func(t *tx) error { return s.noteDisorder(t, events.disorder) })
}

// sweepStep reads the next rows of a table whose rows are kept for so long.
func (s *Store) sweepStep(ctx context.Context, w *sweep, kept time.Duration) (sweepResult, error) {
	var rows []stamped
	if err := s.logs.List(ctx, &rows, w.next, w.after, sweepRows); err != nil {
		return sweepResult{}, err
	}
	now, trusted := s.trustedTime()
	old := func(at int64) bool { return trusted && kept > 0 && at < now-kept.Milliseconds() }
	f := w.take(rows, old)
	if len(rows) < sweepRows {
		*w = sweep{next: w.next}
	}
	return f, nil
}

// take takes in the next rows.
func (w *sweep) take(rows []stamped, old func(at int64) bool) (f sweepResult) {
	for _, row := range rows {
		if w.highest-row.At > clock.Tolerance.Milliseconds() {
			f.disorder, w.highest = w.after, row.At
		}
		w.highest = max(w.highest, row.At)
		switch {
		case !old(row.At):
			w.young = true
		case w.young && f.old == 0:
			f.old = row.ID
		}
		w.after = row.ID
	}
	return f
}
