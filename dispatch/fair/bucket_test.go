package fair_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/dispatch/fair"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestBucket(t *testing.T) {
	t.Parallel()

	t.Run("TimeUntil is exact, and no second holds more than limit and burst", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			now := time.Unix(1_700_000_000, 0)
			limit := rapid.Int64Range(1, webhook.MaxRateLimit).Draw(t, "limit")
			highest := limit
			var b *fair.Bucket
			b = b.WithLimit(&limit, now)
			if !b.IsFull(now) || b.TimeUntil(b.Capacity(), now) != 0 || b.TimeUntil(b.Capacity()+1, now) != fair.Never {
				t.Fatalf("a new bucket of %d is not full", limit)
			}
			var taken []time.Time
			for range 200 {
				switch rapid.IntRange(0, 6).Draw(t, "what") {
				case 0:
					now = now.Add(time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "later")))
				case 1: // when the next token is there, and a moment before; floating point is not exact to the nanosecond
					const moment = 50 * time.Nanosecond
					if d := b.TimeUntil(1, now); d > moment {
						if b.TimeUntil(1, now.Add(d-moment)) == 0 {
							t.Fatalf("%s is too long a wait", d)
						}
						if now = now.Add(d + moment); b.TimeUntil(1, now) != 0 {
							t.Fatalf("%s is too short a wait", d)
						}
					}
				case 2:
					limit = rapid.Int64Range(1, webhook.MaxRateLimit).Draw(t, "another limit")
					highest = max(highest, limit)
					if b.WithLimit(&limit, now) != b || b.Capacity() != capacity(limit) || b.TimeUntil(1, now) > time.Second+time.Millisecond {
						t.Fatalf("under a limit of %d it holds %d", limit, b.Capacity())
					}
				case 3: // taken but not used
					if before := b.TimeUntil(b.Capacity(), now); b.TimeUntil(1, now) == 0 {
						b.Take(now)
						b.Return(now)
						if after := b.TimeUntil(b.Capacity(), now); abs(after-before) > time.Microsecond {
							t.Fatalf("%s until it is full, and %s before", after, before)
						}
					}
				default:
					wait := b.TimeUntil(1, now)
					if took := b.Take(now); took != (wait == 0) {
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
				if n := i - first + 1; n > int(highest)+capacity(highest) {
					t.Fatalf("%d within a second at %d a second", n, highest)
				}
			}
		})
	})

	t.Run("a nil bucket is never empty", func(t *testing.T) {
		t.Parallel()
		var b *fair.Bucket
		now := time.Now()
		b.Take(now)
		b.Return(now)
		if b.TimeUntil(1_000_000, now) != 0 || !b.IsFull(now) || b.Capacity() != math.MaxInt || b.WithLimit(nil, now) != nil {
			t.Error("it is not without a limit")
		}
	})
}

func capacity(limit int64) int { return int(1 + limit/10) }

func abs(d time.Duration) time.Duration { return max(d, -d) }
