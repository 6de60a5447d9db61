package dispatch_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/dispatch"
)

func TestBackoff(t *testing.T) {
	t.Parallel()

	t.Run("the defaults wait 15, 60, 240 and then 600 seconds", func(t *testing.T) {
		t.Parallel()
		b := dispatch.Backoff{Base: 15 * time.Second, Factor: 4, Max: 10 * time.Minute}
		for n, want := range map[int]time.Duration{
			-1: 15 * time.Second, 0: 15 * time.Second, 1: 15 * time.Second, 2: time.Minute, 3: 4 * time.Minute,
			4: 10 * time.Minute, 5: 10 * time.Minute, 1_000_000: 10 * time.Minute,
		} {
			if got := b.Delay(n); got != want {
				t.Errorf("after failure %d: %s, want %s", n, got, want)
			}
		}
	})

	t.Run("no number of failures overflows", func(t *testing.T) {
		t.Parallel()
		b := dispatch.Backoff{Base: time.Millisecond, Factor: 1.0001, Max: 1<<63 - 1}
		before := time.Duration(0)
		for n := 1; n <= 1_000_000; n++ {
			d := b.Delay(n)
			if d < before || d < b.Base {
				t.Fatalf("after failure %d: %s, and %s before that", n, d, before)
			}
			before = d
		}
	})

	t.Run("delays grow, never exceed the maximum, and jitter changes them by at most a fifth", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			b := dispatch.Backoff{
				Base:   time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "base")),
				Factor: rapid.Float64Range(1, 1e9).Draw(t, "factor"),
			}
			b.Max = b.Base + time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "above base"))
			n := rapid.IntRange(1, 1_000_000).Draw(t, "n")
			d := b.Delay(n)
			if d < b.Base || d > b.Max || b.Delay(n+1) < d {
				t.Fatalf("delay %s, then %s", d, b.Delay(n+1))
			}
			for range 20 {
				j := b.Jittered(n, rapid.Float64Range(0, 1).Draw(t, "random"))
				// A float64 of this size rounds to a nanosecond more or less.
				if low, high := d*8/10-1024, min(d*12/10+1024, b.Max); j < low || j > high {
					t.Fatalf("jittered to %s, want %s to %s", j, low, high)
				}
			}
		})
	})
}
