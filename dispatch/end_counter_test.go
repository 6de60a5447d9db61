package dispatch

import (
	"testing"
	"time"
)

// TestEndCounter counts requests that end, and asks some time later how many ended lately.
func TestEndCounter(t *testing.T) {
	t.Parallel()
	const begin = 40 * time.Millisecond // the length of a period, longer than the shortest
	for after, want := range map[time.Duration]int{
		0:               3,
		begin - 1:       3,
		begin:           3, // in the next period
		2*begin - 1:     3,
		2 * begin:       0, // nothing ended in the period before
		100 * time.Hour: 0,
	} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			var c endCounter
			now := time.Now()
			for range 3 {
				c.count(now, begin)
			}
			if got := c.recent(now.Add(after), begin); got != want {
				t.Errorf("%d requests ended lately, want %d", got, want)
			}
		})
	}
}
