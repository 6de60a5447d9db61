package webhook

import "slices"

// DurationBounds are the upper bounds, in milliseconds, by which the durations of attempts are counted.
var DurationBounds = [...]int64{10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000}

// Tally counts attempts that have ended. Those cut off by Keyhook itself, and tests, are not among them.
type Tally struct {
	Succeeded, Failed int64
	// Took counts them by duration: each under the first of DurationBounds that it does not exceed, the last number those
	// beyond all.
	Took [len(DurationBounds) + 1]int64
}

// Add counts one attempt.
func (t *Tally) Add(succeeded bool, durationMS int64) {
	if succeeded {
		t.Succeeded++
	} else {
		t.Failed++
	}
	at, _ := slices.BinarySearch(DurationBounds[:], durationMS)
	t.Took[at]++
}
