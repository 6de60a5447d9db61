package dispatch

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// Limits of a lane with a rate limit.
const (
	maxBeginLead     = 50 * time.Millisecond // between the Begin of an attempt and its token
	limitedHeadBytes = 64 << 10              // weight of the jobs that it may always read ahead, even at a low rate
)

// bucket contains the tokens of a lane with a rate limit. A request takes a token when it is sent, because receivers count
// there. A nil bucket has no limit and never lacks tokens.
//
// It contains one token plus the tokens of a tenth of a second. So a lane that gets its turn that late, on a busy machine,
// loses nothing. In any second, at most the limit plus a tenth plus one request are sent.
type bucket struct{ limiter *rate.Limiter }

func bucketCapacity(limit int64) int { return int(1 + limit/10) }

// withLimit returns the bucket for a limit that may have changed; nil means no limit. The tokens stay, so a change of
// the limit gives no extra burst.
func (b *bucket) withLimit(limit *int64, now time.Time) *bucket {
	switch {
	case limit == nil:
		return nil
	case b == nil:
		return &bucket{rate.NewLimiter(rate.Limit(*limit), bucketCapacity(*limit))}
	case b.limiter.Limit() != rate.Limit(*limit):
		b.limiter.SetLimitAt(now, rate.Limit(*limit))
		b.limiter.SetBurstAt(now, bucketCapacity(*limit))
	}
	return b
}

// capacity returns how many tokens the bucket can hold.
func (b *bucket) capacity() int {
	if b == nil {
		return math.MaxInt
	}
	return b.limiter.Burst()
}

// maxQueued returns how many jobs that have not begun the lane may hold. With a rate limit, that is a quarter of a
// second's jobs, or a few small ones. Such a lane holds its jobs for long, and others could use the memory.
func (l *lane) maxQueued() int {
	if l.bucket == nil {
		return maxHead
	}
	return min(max(int(l.bucket.limiter.Limit()/4), limitedHeadBytes/l.memory.averageJob, 1), maxHead)
}

// never is a wait without end.
const never = time.Duration(math.MaxInt64)

// timeUntil returns the time until the bucket holds n tokens, or never if it cannot hold n. It is 0 exactly when n
// tokens can be taken, because the limiter also rounds down to whole nanoseconds.
func (b *bucket) timeUntil(n int, now time.Time) time.Duration {
	switch {
	case b == nil:
		return 0
	case n > b.limiter.Burst():
		return never
	}
	missing := float64(n) - b.limiter.TokensAt(now)
	return max(time.Duration(missing/float64(b.limiter.Limit())*float64(time.Second)), 0)
}

// takeToken takes a token if there is one.
func (b *bucket) takeToken(now time.Time) {
	if b != nil {
		b.limiter.AllowN(now, 1)
	}
}

// returnToken returns a token that was taken but not used. A reservation cannot be cancelled after its time has come,
// but taking -1 tokens adds one.
func (b *bucket) returnToken(now time.Time) {
	if b != nil {
		b.limiter.AllowN(now, -1)
	}
}

// isFull reports whether the bucket is like a new one.
func (b *bucket) isFull(now time.Time) bool { return b == nil || b.timeUntil(b.capacity(), now) == 0 }

// rateAllowsBegin reports whether the rate limit allows the lane to begin another attempt. There must be a token for it
// by the time when it can be sent. Attempts that have begun need tokens too.
func (s *scheduler) rateAllowsBegin(l *lane) bool {
	return l.bucket == nil || l.bucket.timeUntil(l.stages[beginning]+l.stages[begun]+1, s.clock) <= s.begin.lead()
}

// rateWake calls at with the times at which the lane must be updated because a token has come.
func (s *scheduler) rateWake(l *lane, at func(int64)) {
	in := func(d time.Duration) {
		if d > 0 && d < never {
			at(s.clock.Add(d + time.Millisecond - 1).UnixMilli()) // rounded up, so that the token is there
		}
	}
	if s.isDroppable(l) {
		in(l.bucket.timeUntil(l.bucket.capacity(), s.clock))
	}
	if !s.isCurrent(l) || l.isClosed() {
		return
	}
	if l.stages[begun] > 0 {
		in(l.bucket.timeUntil(1, s.clock))
	}
	if l.stages[queued] > 0 && (!l.isFailing() || s.mayProbe(l)) {
		if d := l.bucket.timeUntil(l.stages[beginning]+l.stages[begun]+1, s.clock); d < never {
			in(d - s.begin.lead())
		}
	}
}
