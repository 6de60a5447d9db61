package queue

import (
	"fmt"

	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/instance"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// The numbers of events and audit events follow the order of writing. Their times do too, unless the clock was ahead
// and was set back. Retention relies on that order, because it reads only the lowest numbers. So does a replay, which
// searches the numbers for a time.
//
// So the writer remembers up to which row the order is broken.

// eventOrder is the end of the tables, and their order.
type eventOrder struct {
	lastEvent    int64 // row id of the newest event
	lastDelivery int64 // row id of the newest delivery
	latestTime   int64 // the latest time of any transaction since the clock was last set back
	disorder     int64 // events up to this row may be out of order; later ones are in order, within clock.Tolerance
}

// loadOrder finds the numbers of the newest event and the newest delivery, and the row up to which events are out of order. If the
// newest ones were deleted, their numbers must not be used again: subscriptions and readers of feeds remember those of events, and a
// hold remembers that of a delivery.
func (t *tx) loadOrder() error {
	var newest struct {
		Event    int64 `db:"event"`
		Time     int64 `db:"time"`
		Delivery int64 `db:"delivery"`
	}
	if err := t.Get(&newest, `
		SELECT max(coalesce((SELECT max(id) FROM events), 0), coalesce((SELECT max(birth) FROM subscriptions), 0),
		           coalesce((SELECT max(expired_event) FROM organizations), 0)) AS event,
		       coalesce((SELECT created_at FROM events WHERE id = (SELECT max(id) FROM events)), 0) AS time,
		       coalesce((SELECT max(id) FROM deliveries), 0) AS delivery`); err != nil {
		return fmt.Errorf("find newest rows: %w", err)
	}
	t.lastEvent, t.latestTime, t.lastDelivery = newest.Event, newest.Time, newest.Delivery
	if hold := t.committedHold.Load(); hold != nil {
		t.lastDelivery = max(t.lastDelivery, hold.Last)
	}
	value, err := instance.Value(t, scan.DisorderName)
	t.disorder = scan.DecodeDisorder(value)
	return err
}

// checkOrder runs at the start of each transaction. It notices if the clock was set back since the last one.
func (t *tx) checkOrder() error {
	now := t.Now()
	if t.latestTime-now <= clock.Tolerance.Milliseconds() {
		t.OnCommit(func() { t.latestTime = max(t.latestTime, now) })
		return nil
	}
	row := t.lastEvent
	t.OnCommit(func() { t.latestTime, t.disorder = now, max(t.disorder, row) })
	if row <= t.disorder {
		return nil
	}
	return instance.Set(t.Tx, scan.DisorderName, scan.EncodeDisorder(row))
}

// NextEvent returns the row id that the next event gets.
func (q *Queue) NextEvent(*sqlite.Tx) int64 { return q.o.Memory.lastEvent + 1 }
