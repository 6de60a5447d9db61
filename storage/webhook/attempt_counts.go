package webhook

import (
	"encoding/json"
	"fmt"
	"slices"
)

// DurationBounds are the upper bounds, in milliseconds, by which the durations of attempts are counted.
var DurationBounds = [...]int64{10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000}

// Durations counts attempts by how long they took: each under the first of DurationBounds that it does not exceed, the
// last number those beyond all.
type Durations [len(DurationBounds) + 1]int64

// Scan reads a JSON array of the counts.
func (d *Durations) Scan(src any) error {
	text, ok := src.(string)
	if !ok {
		return fmt.Errorf("scan durations: %T is not a string", src)
	}
	return json.Unmarshal([]byte(text), d)
}

// Quantile estimates the duration, in milliseconds, that the given part of the attempts did not exceed: as if those
// between two bounds were spread evenly. For what lies beyond the last bound it can only say the bound. ok is false where
// there are none.
func (d Durations) Quantile(part float64) (ms float64, ok bool) {
	var all int64
	for _, n := range d {
		all += n
	}
	if all == 0 {
		return 0, false
	}
	rank, below, lower := part*float64(all), 0.0, int64(0)
	for i, upper := range DurationBounds {
		n := float64(d[i])
		if n > 0 && below+n >= rank {
			return float64(lower) + float64(upper-lower)*(rank-below)/n, true
		}
		below, lower = below+n, upper
	}
	return float64(lower), true
}

// AttemptCounts counts attempts that have ended. Those cut off by Keyhook itself, and tests, are not among them.
type AttemptCounts struct {
	Succeeded int64     `db:"succeeded"`
	Failed    int64     `db:"failed"`
	Took      Durations `db:"took"`
}

// Add counts one attempt.
func (t *AttemptCounts) Add(succeeded bool, durationMS int64) {
	if succeeded {
		t.Succeeded++
	} else {
		t.Failed++
	}
	at, _ := slices.BinarySearch(DurationBounds[:], durationMS)
	t.Took[at]++
}

// Merge adds the counts of another.
func (t *AttemptCounts) Merge(o AttemptCounts) {
	t.Succeeded += o.Succeeded
	t.Failed += o.Failed
	for i := range t.Took {
		t.Took[i] += o.Took[i]
	}
}

// MinuteCounts is the AttemptCounts of a step of time.
type MinuteCounts struct {
	Minute int64 `db:"minute"` // its first, counted from the epoch
	AttemptCounts
}
