package dispatch

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// How a lane with a rate limit works.
const (
	longestLead = 50 * time.Millisecond // that an attempt is begun before its time on the wire
	pacedBytes  = 64 << 10              // weight of what it reads ahead, however slow it is
)

// bucket holds the tokens of a lane whose subscription has a rate limit: a request takes one as it goes on the wire,
// because it is there that receivers count. A nil bucket is that of a lane without a limit; it never lacks tokens.
//
// It holds one token, and as many as come in within a tenth of a second: a lane whose turn comes that late, because the
// machine is busy, loses nothing. In any second at most a tenth more than the limit, and one, goes on the wire.
type bucket struct{ limiter *rate.Limiter }

func bucketSize(limit int64) int { return int(1 + limit/10) }

// under returns the bucket for a limit that may have changed; nil is none. What is in a bucket stays in it: a change is
// no way to another burst.
func (b *bucket) under(limit *int64, now time.Time) *bucket {
	switch {
	case limit == nil:
		return nil
	case b == nil:
		return &bucket{rate.NewLimiter(rate.Limit(*limit), bucketSize(*limit))}
	case b.limiter.Limit() != rate.Limit(*limit):
		b.limiter.SetLimitAt(now, rate.Limit(*limit))
		b.limiter.SetBurstAt(now, bucketSize(*limit))
	}
	return b
}

// size is how many tokens the bucket holds at most.
func (b *bucket) size() int {
	if b == nil {
		return math.MaxInt
	}
	return b.limiter.Burst()
}

// readsAhead is how many jobs the lane may hold that have not begun. With a rate limit that is what it sends in a quarter
// of a second, or a few that are small: it holds them for a long time, in memory that others could make use of.
func (l *lane) readsAhead() int {
	if l.bucket == nil {
		return headSize
	}
	return min(max(int(l.bucket.limiter.Limit()/4), pacedBytes/l.average, 1), headSize)
}

// forever is a wait without an end.
const forever = time.Duration(math.MaxInt64)

// wait returns how long it takes until the bucket holds n tokens; forever where it cannot hold as many. It is 0 exactly
// when that many can be taken: the limiter, too, rounds to whole nanoseconds, downwards.
func (b *bucket) wait(n int, now time.Time) time.Duration {
	switch {
	case b == nil:
		return 0
	case n > b.limiter.Burst():
		return forever
	}
	missing := float64(n) - b.limiter.TokensAt(now)
	return max(time.Duration(missing/float64(b.limiter.Limit())*float64(time.Second)), 0)
}

// take takes a token if there is one.
func (b *bucket) take(now time.Time) {
	if b != nil {
		b.limiter.AllowN(now, 1)
	}
}

// restore puts a token back that was taken for nothing. Reservations cannot be cancelled once their time has come, but to
// take less than none is to give.
func (b *bucket) restore(now time.Time) {
	if b != nil {
		b.limiter.AllowN(now, -1)
	}
}

// full reports whether the bucket is as good as a new one.
func (b *bucket) full(now time.Time) bool { return b == nil || b.wait(b.size(), now) == 0 }

// inStep reports whether the lane's rate limit lets another attempt begin: whether there will be a token for it, besides
// those for the attempts that have begun already, by the time it can be on the wire.
func (s *scheduler) inStep(l *lane) bool {
	return l.bucket == nil || l.bucket.wait(l.chosen+l.begun.n+1, s.clock) <= s.lead
}

// tokens tells when the lane is to be looked at for the sake of its rate limit, as far as it waits for nothing else.
func (s *scheduler) tokens(l *lane, at func(int64)) {
	in := func(d time.Duration) {
		if d > 0 && d < forever {
			at(s.clock.Add(d + time.Millisecond - 1).UnixMilli()) // rounded upwards: not before the token is there
		}
	}
	if s.superfluous(l) {
		in(l.bucket.wait(l.bucket.size(), s.clock))
	}
	if !s.knows(l) || l.closed() {
		return
	}
	if l.begun.n > 0 {
		in(l.bucket.wait(1, s.clock))
	}
	if l.head.n > 0 && (!l.failing() || s.mayProbe(l)) {
		if d := l.bucket.wait(l.chosen+l.begun.n+1, s.clock); d < forever {
			in(d - s.lead)
		}
	}
}
