package dispatch

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// How a lane with a rate limit works.
const (
	maxBeginLead     = 50 * time.Millisecond // that an attempt is begun before its time on the wire
	limitedHeadBytes = 64 << 10              // weight of what it reads ahead, however slow it is
)

// bucket holds the tokens of a lane whose subscription has a rate limit: a request takes one as it goes on the wire,
// because it is there that receivers count. A nil bucket is that of a lane without a limit; it never lacks tokens.
//
// It holds one token, and as many as come in within a tenth of a second: a lane whose turn comes that late, because the
// machine is busy, loses nothing. In any second at most a tenth more than the limit, and one, goes on the wire.
type bucket struct{ limiter *rate.Limiter }

func bucketCapacity(limit int64) int { return int(1 + limit/10) }

// under returns the bucket for a limit that may have changed; nil is none. What is in a bucket stays in it: a change is
// no way to another burst.
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

// size is how many tokens the bucket holds at most.
func (b *bucket) capacity() int {
	if b == nil {
		return math.MaxInt
	}
	return b.limiter.Burst()
}

// readsAhead is how many jobs the lane may hold that have not begun. With a rate limit that is what it sends in a quarter
// of a second, or a few that are small: it holds them for a long time, in memory that others could make use of.
func (l *lane) maxQueued() int {
	if l.bucket == nil {
		return maxHead
	}
	return min(max(int(l.bucket.limiter.Limit()/4), limitedHeadBytes/l.averageWeight, 1), maxHead)
}

// forever is a wait without an end.
const never = time.Duration(math.MaxInt64)

// wait returns how long it takes until the bucket holds n tokens; forever where it cannot hold as many. It is 0 exactly
// when that many can be taken: the limiter, too, rounds to whole nanoseconds, downwards.
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

// take takes a token if there is one.
func (b *bucket) takeToken(now time.Time) {
	if b != nil {
		b.limiter.AllowN(now, 1)
	}
}

// restore puts a token back that was taken for nothing. Reservations cannot be cancelled once their time has come, but to
// take less than none is to give.
func (b *bucket) returnToken(now time.Time) {
	if b != nil {
		b.limiter.AllowN(now, -1)
	}
}

// full reports whether the bucket is as good as a new one.
func (b *bucket) isFull(now time.Time) bool { return b == nil || b.timeUntil(b.capacity(), now) == 0 }

// inStep reports whether the lane's rate limit lets another attempt begin: whether there will be a token for it, besides
// those for the attempts that have begun already, by the time it can be on the wire.
func (s *scheduler) rateAllowsBegin(l *lane) bool {
	return l.bucket == nil || l.bucket.timeUntil(l.beginning+l.begun.n+1, s.clock) <= s.beginLead
}

// tokens tells when the lane is to be looked at for the sake of its rate limit, as far as it waits for nothing else.
func (s *scheduler) rateWake(l *lane, at func(int64)) {
	in := func(d time.Duration) {
		if d > 0 && d < never {
			at(s.clock.Add(d + time.Millisecond - 1).UnixMilli()) // rounded upwards: not before the token is there
		}
	}
	if s.isDroppable(l) {
		in(l.bucket.timeUntil(l.bucket.capacity(), s.clock))
	}
	if !s.isCurrent(l) || l.isClosed() {
		return
	}
	if l.begun.n > 0 {
		in(l.bucket.timeUntil(1, s.clock))
	}
	if l.head.n > 0 && (!l.isFailing() || s.mayProbe(l)) {
		if d := l.bucket.timeUntil(l.beginning+l.begun.n+1, s.clock); d < never {
			in(d - s.beginLead)
		}
	}
}
