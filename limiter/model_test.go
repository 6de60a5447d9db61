package limiter_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/limiter"
)

// model is the simplest possible limiter: one map, and nothing is ever deleted.
type model struct {
	length time.Duration
	begun  map[int64]time.Time
	used   map[int64]int64
}

func (m *model) take(key, limit int64, count bool) limiter.Result {
	now := time.Now()
	begun, used := m.begun[key], m.used[key]
	if begun.IsZero() || !now.Before(begun.Add(m.length)) {
		begun, used = now, 0
	}
	limit = max(limit, 0)
	allowed := used < limit
	if count {
		if allowed {
			used++
		}
		m.begun[key], m.used[key] = begun, used
	}
	return limiter.Result{Allowed: allowed, Limit: limit, Remaining: max(limit-used, 0), Reset: m.length - now.Sub(begun)}
}

// step is one call after a pause.
type step struct {
	Pause      time.Duration
	Key, Limit int64
	Peek       bool
}

// run takes the steps on a limiter and on the model, in virtual time. It returns the first difference or "".
func run(length time.Duration, steps []step) string {
	l := limiter.New(length)
	m := model{length, map[int64]time.Time{}, map[int64]int64{}}
	for i, s := range steps {
		time.Sleep(s.Pause)
		var got limiter.Result
		want := m.take(s.Key, s.Limit, !s.Peek)
		if s.Peek {
			got = l.Peek(s.Key, s.Limit)
		} else {
			got = l.Take(s.Key, s.Limit)
		}
		if got != want {
			return fmt.Sprintf("after %+v (-model +limiter):\n%s", steps[:i+1], cmp.Diff(want, got))
		}
	}
	return ""
}

// Any sequence of calls, keys, limits and pauses gives the results of the model. So nothing is dropped too early, and
// nothing is counted twice on its way through the generations.
func TestModel(t *testing.T) {
	t.Parallel()
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			Pause: time.Duration(rapid.Int64Range(0, 8).Draw(t, "pause")),
			Key:   rapid.Int64Range(0, 5).Draw(t, "key"),
			Limit: rapid.Int64Range(-1, 4).Draw(t, "limit"),
			Peek:  rapid.Bool().Draw(t, "peek"),
		}
	}), 1, 200)
	rapid.Check(t, func(rt *rapid.T) {
		length := time.Duration(rapid.Int64Range(1, 20).Draw(rt, "window"))
		drawn := steps.Draw(rt, "steps") // outside the bubble, because rapid ends a bad draw with a panic
		difference := ""
		synctest.Test(t, func(*testing.T) { difference = run(length, drawn) })
		if difference != "" {
			rt.Fatal(difference)
		}
	})
}

// Every sequence of five steps with two keys, limits from 0 to 2, and pauses around the ends of windows.
func TestSmallUniverse(t *testing.T) {
	t.Parallel()
	const length, depth = 4, 5
	universe := []step{
		{Key: 1, Limit: 1}, {Key: 1, Limit: 2}, {Key: 2, Limit: 1},
		{Key: 1, Limit: 0, Pause: 1}, {Key: 1, Limit: 1, Pause: 2}, {Key: 2, Limit: 2, Pause: 4},
	}
	synctest.Test(t, func(t *testing.T) {
		taken := make([]step, depth)
		var extend func(at int)
		extend = func(at int) {
			if at == depth {
				if difference := run(length, taken); difference != "" {
					t.Fatal(difference)
				}
				return
			}
			for _, s := range universe {
				taken[at] = s
				extend(at + 1)
			}
		}
		extend(0)
	})
}
