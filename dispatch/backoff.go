package dispatch

import (
	"math"
	"math/rand/v2"
	"time"
)

// jitter is the largest random change of a delay, as a part of it. It spreads retries of deliveries that failed
// together.
const jitter = 0.2

// Backoff computes the delay after consecutive failures: first Base, then each delay is Factor times the last, and
// never more than Max.
type Backoff struct {
	Base   time.Duration
	Factor float64 // at least 1
	Max    time.Duration
}

// Delay returns the delay after the n-th failure, counted from 1, without jitter. It never shrinks as n grows.
func (b Backoff) Delay(n int) time.Duration {
	// A floating-point power overflows to +Inf, where an integer would wrap around.
	d := float64(b.Base) * math.Pow(b.Factor, float64(max(n, 1)-1))
	if d >= float64(b.Max) {
		return b.Max
	}
	return time.Duration(d)
}

// Jittered returns Delay, shortened or lengthened by up to a fifth, and never more than Max.
func (b Backoff) Jittered(n int) time.Duration {
	d := float64(b.Delay(n)) * (1 - jitter + 2*jitter*rand.Float64())
	return min(time.Duration(d), b.Max)
}
