package scan

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/keyhook/keyhook/storage/clock"
)

// DisorderName is the row of table instance with the disorder: events up to that row may be out of order. Later ones are in
// order, within clock.Tolerance.
const DisorderName = "disorder"

// EncodeDisorder returns the value of that row.
func EncodeDisorder(row int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(row)) }

// DecodeDisorder reads the value of that row. It returns 0 if there is none.
func DecodeDisorder(value []byte) (row int64) {
	if len(value) == 8 {
		row = int64(binary.BigEndian.Uint64(value))
	}
	return row
}

// Row is a row id and the time of the row.
type Row struct {
	ID int64 `db:"id"`
	At int64 `db:"at"`
}

// Range is a range of row ids of events.
type Range struct{ After, Last int64 }

// Period returns the parts of a range that may have events of a period, in milliseconds. The numbers of events follow the order of
// writing, and so do their times, unless the clock was ahead and was set back: up to the row disorder, every event is read. Later events
// are in the order of time, within clock.Tolerance. So a binary search finds the period.
func (r *Reader) Period(ctx context.Context, since, until int64, all Range, disorder int64) ([]Range, error) {
	const slack = int64(clock.Tolerance / time.Millisecond)
	disordered := Range{all.After, min(all.Last, disorder)}
	ordered := Range{max(all.After, disorder), all.Last}
	first, err := r.firstEventSince(ctx, max(since, slack)-slack, ordered)
	if err != nil {
		return nil, err
	}
	end := ordered.Last + 1
	if until <= math.MaxInt64-slack {
		if end, err = r.firstEventSince(ctx, until+slack, ordered); err != nil {
			return nil, err
		}
	}
	parts := []Range{disordered, {first - 1, end - 1}}
	return slices.DeleteFunc(parts, func(part Range) bool { return part.After >= part.Last }), nil
}

// firstEventSince returns the first row of a range whose event was created at that time or later. If there is none, it
// returns the row after the range. In ordered rows the binary search takes about twenty steps, however long the history is.
func (r *Reader) firstEventSince(ctx context.Context, at int64, in Range) (int64, error) {
	low, high := in.After+1, in.Last+1 // all rows before low are earlier, and no row from high on is
	for low < high {
		middle := low + (high-low)/2
		var e Row
		err := r.Get(ctx, &e, "SELECT id, created_at AS at FROM events WHERE id >= ? ORDER BY id LIMIT 1", middle)
		switch {
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			return 0, fmt.Errorf("look for the first event of a period: %w", err)
		case err == nil && e.At < at:
			low = min(e.ID+1, high)
		default:
			high = middle
		}
	}
	return low, nil
}
