package dispatch

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/dispatch/sender"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Inside the package, because only here can a test see a bucket.

func TestBucket(t *testing.T) {
	t.Parallel()

	t.Run("timeUntil is exact, and no second holds more than limit and burst", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			now := time.Unix(1_700_000_000, 0)
			limit := rapid.Int64Range(1, webhook.MaxRateLimit).Draw(t, "limit")
			highest := limit
			var b *bucket
			b = b.withLimit(&limit, now)
			if !b.isFull(now) || b.timeUntil(b.capacity(), now) != 0 || b.timeUntil(b.capacity()+1, now) != never {
				t.Fatalf("a new bucket of %d is not full", limit)
			}
			var taken []time.Time
			for range 200 {
				switch rapid.IntRange(0, 6).Draw(t, "what") {
				case 0:
					now = now.Add(time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "later")))
				case 1: // when the next token is there, and a moment before; floating point is not exact to the nanosecond
					const moment = 50 * time.Nanosecond
					if d := b.timeUntil(1, now); d > moment {
						if b.timeUntil(1, now.Add(d-moment)) == 0 {
							t.Fatalf("%s is too long a wait", d)
						}
						if now = now.Add(d + moment); b.timeUntil(1, now) != 0 {
							t.Fatalf("%s is too short a wait", d)
						}
					}
				case 2:
					limit = rapid.Int64Range(1, webhook.MaxRateLimit).Draw(t, "another limit")
					highest = max(highest, limit)
					if b.withLimit(&limit, now) != b || b.capacity() != bucketCapacity(limit) || b.timeUntil(1, now) > time.Second+time.Millisecond {
						t.Fatalf("under a limit of %d it holds %d", limit, b.capacity())
					}
				case 3: // taken but not used
					if before := b.timeUntil(b.capacity(), now); b.timeUntil(1, now) == 0 {
						b.takeToken(now)
						b.returnToken(now)
						if after := b.timeUntil(b.capacity(), now); abs(after-before) > time.Microsecond {
							t.Fatalf("%s until it is full, and %s before", after, before)
						}
					}
				default:
					wait := b.timeUntil(1, now)
					if took := b.limiter.AllowN(now, 1); took != (wait == 0) {
						t.Fatalf("taken %t after a wait of %s", took, wait)
					} else if took {
						taken = append(taken, now)
					}
				}
			}
			for i, first := 0, 0; i < len(taken); i++ {
				for taken[i].Sub(taken[first]) >= time.Second {
					first++
				}
				if n := i - first + 1; n > int(highest)+bucketCapacity(highest) {
					t.Fatalf("%d within a second at %d a second", n, highest)
				}
			}
		})
	})

	t.Run("a nil bucket is never empty", func(t *testing.T) {
		t.Parallel()
		var b *bucket
		now := time.Now()
		b.takeToken(now)
		b.returnToken(now)
		if b.timeUntil(1_000_000, now) != 0 || !b.isFull(now) || b.capacity() != math.MaxInt || b.withLimit(nil, now) != nil {
			t.Error("it is not without a limit")
		}
	})
}

func abs(d time.Duration) time.Duration { return max(d, -d) }

// limitedLane makes a scheduler with one lane that has a rate limit and an empty bucket.
func limitedLane(t *testing.T, limit int64) (*scheduler, *lane) {
	t.Helper()
	s := newTestScheduler(t)
	l := s.laneOf(7, 1)
	l.target = &sender.Target{Target: webhook.Target{Subscription: 7, Gate: webhook.Gate{Webhooks: true}, RateLimitPerSecond: &limit}}
	s.setHealth(l, webhook.Health{Status: webhook.Healthy, Epoch: 1})
	l.version = l.wantVersion
	l.bucket = l.bucket.withLimit(&limit, s.clock)
	for range l.bucket.capacity() {
		l.bucket.takeToken(s.clock)
	}
	return s, l
}

func TestPacedLane(t *testing.T) {
	t.Parallel()

	t.Run("the token of an attempt that was not sent is returned", func(t *testing.T) {
		t.Parallel()
		s, l := limitedLane(t, 1)
		s.enqueue(l, webhook.Job{Delivery: 1, Subscription: 7})
		a := s.takeFromHead(l)
		s.queueForSending(a)
		s.takeBegun(l)
		s.takeBack(a)
		if l.stages[begun] != 1 || !s.maySend(l) || !l.turns[sendSlots].waits {
			t.Errorf("%d begun, and the next token comes in %s", l.stages[begun], l.bucket.timeUntil(1, s.clock))
		}
	})

	t.Run("a lane is woken once, when its token is there", func(t *testing.T) {
		t.Parallel()
		s, l := limitedLane(t, 3)
		if !s.admit(l, webhook.Job{Delivery: 1, Subscription: 7}, maxHead) {
			t.Fatal("no room")
		}
		s.update(l)
		wake := time.UnixMilli(l.wake.at)
		if wait := wake.Sub(s.clock); l.turns[beginPlaces].waits || wait < time.Second/3 || wait > time.Second/3+time.Millisecond {
			t.Fatalf("in line %t, woken after %s", l.turns[beginPlaces].waits, wait)
		}
		s.begin.took = 10 * time.Millisecond
		s.update(l)
		if early := wake.Sub(time.UnixMilli(l.wake.at)); early < 19*time.Millisecond || early > 21*time.Millisecond {
			t.Errorf("woken %s before the token is there", early)
		}
		s.clock = s.clock.Add(time.UnixMilli(l.wake.at).Sub(s.clock))
		s.now = s.clock.UnixMilli()
		if s.wakeLanes(); !l.turns[beginPlaces].waits || l.wake.at != 0 {
			t.Errorf("in line %t, to be woken at %d again", l.turns[beginPlaces].waits, l.wake.at)
		}
	})

	t.Run("a lane beyond the limit is dropped only when its bucket is full", func(t *testing.T) {
		t.Parallel()
		s, l := limitedLane(t, 50)
		for i := range int64(maxLanes) {
			s.laneOf(100+i, 1)
		}
		s.update(l)
		if s.lanes[7] != l || l.wake.at <= s.now || l.wake.at > s.now+122 {
			t.Fatalf("is kept %t, to be looked at in %d ms", s.lanes[7] == l, l.wake.at-s.now)
		}
		s.clock = s.clock.Add(121 * time.Millisecond)
		s.now = s.clock.UnixMilli()
		s.wakeLanes()
		if s.lanes[7] != nil || l.wake.at != 0 {
			t.Errorf("is kept %t, to be looked at again at %d", s.lanes[7] == l, l.wake.at)
		}
	})
}
