package fair

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// Bucket contains the tokens of a receiver with a rate limit. A request takes a token when it is sent, because receivers count
// there. A nil bucket has no limit and never lacks tokens.
//
// It contains one token plus the tokens of a tenth of a second. So a sender that gets its turn that late, on a busy machine,
// loses nothing. In any second, at most the limit plus a tenth plus one request are sent.
type Bucket struct{ limiter *rate.Limiter }

func capacity(limit int64) int { return int(1 + limit/10) }

// WithLimit returns the bucket for a limit, in requests a second, that may have changed; nil means no limit. The tokens stay, so
// a change of the limit gives no extra burst.
func (b *Bucket) WithLimit(limit *int64, now time.Time) *Bucket {
	switch {
	case limit == nil:
		return nil
	case b == nil:
		return &Bucket{rate.NewLimiter(rate.Limit(*limit), capacity(*limit))}
	case b.Limit() != float64(*limit):
		b.limiter.SetLimitAt(now, rate.Limit(*limit))
		b.limiter.SetBurstAt(now, capacity(*limit))
	}
	return b
}

// Limit returns the requests a second.
func (b *Bucket) Limit() float64 {
	if b == nil {
		return math.Inf(1)
	}
	return float64(b.limiter.Limit())
}

// Capacity returns how many tokens the bucket can hold.
func (b *Bucket) Capacity() int {
	if b == nil {
		return math.MaxInt
	}
	return b.limiter.Burst()
}

// Never is a wait without end.
const Never = time.Duration(math.MaxInt64)

// TimeUntil returns the time until the bucket holds n tokens, or Never if it cannot hold n. It is 0 exactly when n
// tokens can be taken, because the limiter also rounds down to whole nanoseconds.
func (b *Bucket) TimeUntil(n int, now time.Time) time.Duration {
	switch {
	case b == nil:
		return 0
	case n > b.limiter.Burst():
		return Never
	}
	missing := float64(n) - b.limiter.TokensAt(now)
	return max(time.Duration(missing/b.Limit()*float64(time.Second)), 0)
}

// Take takes a token, and reports whether there was one.
func (b *Bucket) Take(now time.Time) bool { return b == nil || b.limiter.AllowN(now, 1) }

// Return returns a token that was not used. A reservation cannot be cancelled once its time has come, but taking -1 tokens adds one.
func (b *Bucket) Return(now time.Time) {
	if b != nil {
		b.limiter.AllowN(now, -1)
	}
}

// IsFull reports whether the bucket is like a new one.
func (b *Bucket) IsFull(now time.Time) bool { return b == nil || b.TimeUntil(b.Capacity(), now) == 0 }
