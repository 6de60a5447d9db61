package limiter

import (
	"sync"
	"time"
)

// window is the count of one key. It has no pointer, so the garbage collector does not scan slices of windows.
type window struct {
	ends time.Duration // since the limiter's start; only the first request sets it
	used int64         // requests allowed so far
}

func (w *window) result(allowed bool, limit int64, now time.Duration) Result {
	limit = max(limit, 0)
	return Result{Allowed: allowed, Limit: limit, Remaining: max(limit-w.used, 0), Reset: w.ends - now}
}

// generation contains the windows that started between two rotations. The map contains indexes into the slice, so counting is
// one lookup and one addition. A map of windows would need a second lookup for the write. The zero value is empty and ready.
type generation struct {
	index   map[int64]uint32
	windows []window
}

// shard contains some of the keys under one lock.
//
// Windows are never deleted one by one. New ones go into the young generation. Once per window length, the shard rotates: young becomes
// old, and the former old generation is dropped. Two rotations are at least one window length apart, so everything that is dropped has
// ended. This costs nothing per request and needs no goroutine. It also frees the memory after a rush, which deleting from a map would not.
type shard struct {
	mu           sync.Mutex
	lastRotation time.Duration // since the limiter's start
	young        generation
	old          generation
	_            [48]byte // padding to 128 bytes, two cache lines, so that the locks of neighbours do not slow each other down
}

// find returns the open window of key, or nil. The pointer is valid until the next findOrStart or rotate.
func (s *shard) find(key int64, now time.Duration) *window {
	for _, g := range [...]*generation{&s.young, &s.old} {
		if place, ok := g.index[key]; ok && now < g.windows[place].ends {
			return &g.windows[place]
		}
	}
	return nil
}

// findOrStart returns the window of key and starts one if none is open. The caller has rotated the generations, so no window
// of the young one has ended. A window in the old generation stays there, because it ends before it is dropped.
func (s *shard) findOrStart(key int64, now, length time.Duration) *window {
	if w := s.find(key, now); w != nil {
		return w
	}
	if s.young.index == nil {
		s.young.index = make(map[int64]uint32)
	}
	place := len(s.young.windows)
	s.young.index[key] = uint32(place)
	s.young.windows = append(s.young.windows, window{ends: now + length})
	return &s.young.windows[place]
}

// rotate drops the old generation if the last rotation was a window length ago. It reports whether it did.
func (s *shard) rotate(now, length time.Duration) bool {
	if now-s.lastRotation < length {
		return false
	}
	s.lastRotation, s.old, s.young = now, s.young, generation{}
	return true
}
