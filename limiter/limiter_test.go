package limiter_test

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/limiter"
)

// inBubble runs f in virtual time with a limiter whose windows last a minute.
func inBubble(t *testing.T, f func(t *testing.T, l *limiter.Limiter)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(t, limiter.New(time.Minute)) })
}

func equal(t *testing.T, what string, got, want limiter.Result) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestConcurrency(t *testing.T) {
	t.Parallel()

	t.Run("exactly limit of limit+200 requests from 64 goroutines pass", func(t *testing.T) {
		t.Parallel()
		const limit, extra, goroutines = 6000, 200, 64
		l := limiter.New(time.Hour)
		var passed, left, sum atomic.Int64
		left.Store(limit + extra)
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					if r := l.Take(7, limit); r.Allowed {
						passed.Add(1)
						sum.Add(r.Remaining)
					}
				}
			})
		}
		wg.Wait()
		if passed.Load() != limit {
			t.Errorf("%d passed, want %d", passed.Load(), limit)
		}
		// Each of the numbers limit-1 … 0 was returned exactly once.
		if want := int64(limit * (limit - 1) / 2); sum.Load() != want {
			t.Errorf("the remainders add up to %d, want %d", sum.Load(), want)
		}
	})

	t.Run("exactly limit requests pass per window while windows end and are swept under load", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			const limit, keys, rounds = 5, 300, 4
			l := limiter.New(time.Minute)
			var passed atomic.Int64
			for range rounds {
				var wg sync.WaitGroup
				for range 16 {
					wg.Go(func() {
						for key := range int64(keys) {
							if l.Take(key, limit).Allowed {
								passed.Add(1)
							}
						}
					})
				}
				wg.Wait()
				time.Sleep(time.Minute)
			}
			if want := int64(limit * keys * rounds); passed.Load() != want {
				t.Errorf("%d passed, want %d", passed.Load(), want)
			}
		})
	})
}

// The race detector fails this test if the rotation takes no lock: nothing else orders what the two goroutines do in the second shard.
func TestRotationLocksEveryShard(t *testing.T) {
	t.Parallel()
	for other := range int64(50) { // most of these keys are in another shard than key 0
		synctest.Test(t, func(*testing.T) {
			l := limiter.New(time.Minute)
			l.Take(0, 1)
			l.Take(other, 1)
			time.Sleep(time.Minute)
			var both sync.WaitGroup
			both.Go(func() { l.Take(0, 1) }) // sweeps all shards
			both.Go(func() { l.Take(other, 1) })
			both.Wait()
		})
	}
}

func TestWindow(t *testing.T) {
	t.Parallel()

	t.Run("a window begins at the key's first request, not on a grid", func(t *testing.T) {
		inBubble(t, func(t *testing.T, l *limiter.Limiter) {
			time.Sleep(41 * time.Second)
			equal(t, "first", l.Take(1, 1), limiter.Result{Allowed: true, Limit: 1, Reset: time.Minute})
			time.Sleep(time.Minute - time.Nanosecond)
			equal(t, "a nanosecond before the end", l.Take(1, 1), limiter.Result{Limit: 1, Reset: 1})
			time.Sleep(time.Nanosecond)
			equal(t, "at the end", l.Take(1, 1), limiter.Result{Allowed: true, Limit: 1, Reset: time.Minute})
		})
	})

	t.Run("a steady stream does not extend a window", func(t *testing.T) {
		inBubble(t, func(t *testing.T, l *limiter.Limiter) {
			const limit = 60
			passed := map[int]int{} // by minute since the first request
			for i := range 5 * 60 * 4 {
				if l.Take(1, limit).Allowed {
					passed[i/(60*4)]++
				}
				time.Sleep(time.Second / 4)
			}
			if diff := cmp.Diff(map[int]int{0: limit, 1: limit, 2: limit, 3: limit, 4: limit}, passed); diff != "" {
				t.Errorf("passed in each minute (-want +got):\n%s", diff)
			}
		})
	})

	t.Run("refused requests do not extend a window", func(t *testing.T) {
		inBubble(t, func(t *testing.T, l *limiter.Limiter) {
			l.Take(1, 1)
			for range 59 {
				time.Sleep(time.Second)
				if l.Take(1, 1).Allowed {
					t.Fatal("a second request passed")
				}
			}
			time.Sleep(time.Second)
			if !l.Take(1, 1).Allowed {
				t.Error("the request at 60 s was refused")
			}
		})
	})

	t.Run("each key has its own window", func(t *testing.T) {
		inBubble(t, func(t *testing.T, l *limiter.Limiter) {
			for _, key := range []int64{0, 1, -1, 64, 128, math.MaxInt64, math.MinInt64} {
				equal(t, "first of its key", l.Take(key, 2), limiter.Result{Allowed: true, Limit: 2, Remaining: 1, Reset: time.Minute})
			}
			time.Sleep(30 * time.Second)
			equal(t, "key 2", l.Take(2, 2), limiter.Result{Allowed: true, Limit: 2, Remaining: 1, Reset: time.Minute})
			equal(t, "key 1", l.Take(1, 2), limiter.Result{Allowed: true, Limit: 2, Reset: 30 * time.Second})
		})
	})
}

func TestLimit(t *testing.T) {
	t.Parallel()

	t.Run("a limit of 0 refuses all requests and still returns the end of the window", func(t *testing.T) {
		inBubble(t, func(t *testing.T, l *limiter.Limiter) {
			equal(t, "first", l.Take(1, 0), limiter.Result{Reset: time.Minute})
			time.Sleep(20 * time.Second)
			equal(t, "second", l.Take(1, 0), limiter.Result{Reset: 40 * time.Second})
		})
	})

	t.Run("a negative limit counts as 0", func(t *testing.T) {
		inBubble(t, func(t *testing.T, l *limiter.Limiter) {
			equal(t, "Take", l.Take(1, -5), limiter.Result{Reset: time.Minute})
			equal(t, "Peek", l.Peek(1, math.MinInt64), limiter.Result{Reset: time.Minute})
		})
	})

	t.Run("a limit may be the largest number", func(t *testing.T) {
		inBubble(t, func(t *testing.T, l *limiter.Limiter) {
			for i := range int64(3) {
				equal(t, "Take", l.Take(1, math.MaxInt64),
					limiter.Result{Allowed: true, Limit: math.MaxInt64, Remaining: math.MaxInt64 - 1 - i, Reset: time.Minute})
			}
		})
	})

	t.Run("a changed limit applies at once to the same count", func(t *testing.T) {
		inBubble(t, func(t *testing.T, l *limiter.Limiter) {
			for range 4 {
				l.Take(1, 10)
			}
			equal(t, "lowered", l.Take(1, 3), limiter.Result{Limit: 3, Reset: time.Minute})
			equal(t, "raised: the refused request used nothing up", l.Take(1, 6),
				limiter.Result{Allowed: true, Limit: 6, Remaining: 1, Reset: time.Minute})
			equal(t, "set to 0", l.Take(1, 0), limiter.Result{Reset: time.Minute})
			equal(t, "raised again", l.Take(1, 6), limiter.Result{Allowed: true, Limit: 6, Reset: time.Minute})
			equal(t, "used up", l.Take(1, 6), limiter.Result{Limit: 6, Reset: time.Minute})
		})
	})
}

func TestPeek(t *testing.T) {
	t.Parallel()

	t.Run("Peek counts nothing and starts no window", func(t *testing.T) {
		inBubble(t, func(t *testing.T, l *limiter.Limiter) {
			for range 5 {
				equal(t, "before the first", l.Peek(1, 2), limiter.Result{Allowed: true, Limit: 2, Remaining: 2, Reset: time.Minute})
			}
			if l.Len() != 0 {
				t.Errorf("%d windows after peeking alone", l.Len())
			}
			l.Take(1, 2)
			time.Sleep(10 * time.Second)
			equal(t, "after one", l.Peek(1, 2), limiter.Result{Allowed: true, Limit: 2, Remaining: 1, Reset: 50 * time.Second})
			l.Take(1, 2)
			equal(t, "after two", l.Peek(1, 2), limiter.Result{Limit: 2, Reset: 50 * time.Second})
			time.Sleep(50 * time.Second)
			equal(t, "in the next window", l.Peek(1, 2), limiter.Result{Allowed: true, Limit: 2, Remaining: 2, Reset: time.Minute})
		})
	})
}

func TestMemory(t *testing.T) {
	t.Parallel()

	t.Run("memory is bounded by the keys of the last two windows", func(t *testing.T) {
		inBubble(t, func(t *testing.T, l *limiter.Limiter) {
			const perMinute = 1000
			for i := range int64(10 * perMinute) {
				l.Take(i, 1) // every key is new
				time.Sleep(time.Minute / perMinute)
				if held := l.Len(); i%100 == 0 && (held > 2*perMinute+1 || held < int(min(i, perMinute))) {
					t.Fatalf("%d windows held after %d keys", held, i)
				}
			}
		})
	})

	t.Run("requests of one key free the memory of a rush", func(t *testing.T) {
		inBubble(t, func(t *testing.T, l *limiter.Limiter) {
			for key := range int64(50_000) {
				l.Take(key, 1)
			}
			for range 2 {
				time.Sleep(time.Minute)
				l.Take(1, 1)
			}
			if held := l.Len(); held > 2 {
				t.Errorf("%d windows held, of one live key", held)
			}
		})
	})
}

// Not parallel, because AllocsPerRun counts the allocations of all goroutines.
func TestAllocations(t *testing.T) {
	l := limiter.New(time.Hour)
	l.Take(1, 10)
	if n := testing.AllocsPerRun(100, func() { l.Take(1, 10); l.Peek(1, 10) }); n != 0 {
		t.Errorf("%v allocations for a key that has a window", n)
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	for name, window := range map[string]time.Duration{"zero": 0, "negative": -time.Second} {
		t.Run("New refuses a window that is "+name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			limiter.New(window)
		})
	}
}
