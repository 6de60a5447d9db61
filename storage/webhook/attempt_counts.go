package webhook

import (
	"encoding/json"
	"slices"
)

// DurationBounds are the upper bounds, in milliseconds, of the classes in which durations of attempts are counted.
var DurationBounds = [...]int64{10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000}

// Durations counts attempts by their duration. An attempt counts under the first of DurationBounds that it does not exceed.
// The last number counts attempts above all bounds.
type Durations [len(DurationBounds) + 1]int64

// Scan reads a JSON array of the counts.
func (d *Durations) Scan(src any) error {
	text, _ := src.(string) // what is no text is no JSON
	return json.Unmarshal([]byte(text), d)
}

// Quantile estimates the duration, in milliseconds, that the given part of the attempts did not exceed. It assumes that the
// attempts between two bounds are spread evenly. Above the last bound it returns that bound. ok is false if there are no attempts.
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

// AttemptCounts counts attempts that have ended, except tests and attempts that Keyhook itself interrupted. It also counts
// deliveries that expired: retention deleted them while they were pending.
type AttemptCounts struct {
	Succeeded int64     `db:"succeeded"`
	Failed    int64     `db:"failed"`
	Expired   int64     `db:"expired"`
	Took      Durations `db:"took"`
}

// Add counts one attempt.
func (c *AttemptCounts) Add(succeeded bool, durationMS int64) {
	if succeeded {
		c.Succeeded++
	} else {
		c.Failed++
	}
	at, _ := slices.BinarySearch(DurationBounds[:], durationMS)
	c.Took[at]++
}

// Merge adds other counts.
func (c *AttemptCounts) Merge(o AttemptCounts) {
	c.Succeeded += o.Succeeded
	c.Failed += o.Failed
	c.Expired += o.Expired
	for i := range c.Took {
		c.Took[i] += o.Took[i]
	}
}

// MinuteCounts is the AttemptCounts of one minute, or of several.
type MinuteCounts struct {
	Minute int64 `db:"minute"` // the first, counted from the epoch
	AttemptCounts
}
