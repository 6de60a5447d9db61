package limiter

import (
	"sync"
	"time"
)

// window is one key's count. It holds no pointer, so the garbage collector does not look into the slices of them.
type window struct {
	ends time.Duration // since the limiter's start; set by the first request and by none after it
	used int64         // requests allowed so far
}

// result describes w to the caller.
func (w *window) result(allowed bool, limit int64, now time.Duration) Result {
	limit = max(limit, 0)
	return Result{Allowed: allowed, Limit: limit, Remaining: max(limit-w.used, 0), Reset: w.ends - now}
}

// generation holds the windows that were started between two turns. The map leads to a place in the slice, so that
// counting is one look-up and one addition; a map of windows would have to be searched a second time to be written. The
// zero value is empty and ready.
type generation struct {
	index   map[int64]uint32
	windows []window
}

// shard is a part of the keys under one lock.
//
// Windows are never deleted one by one. New ones go into the young generation; once per window length the shard turns:
// young becomes old, and what was old is dropped whole. At least one window length lies between two turns, so whatever
// is dropped has ended. This costs nothing per request, needs no goroutine, and gives the memory back after a rush,
// which deleting from a map would not.
type shard struct {
	mu           sync.Mutex
	lastRotation time.Duration // the last turn
	young        generation
	old          generation
	_            [48]byte // fills up 128 bytes, two cache lines: neighbours' locks do not slow each other down
}

// find returns the open window of key, or nil. The pointer is good until the next open or turn.
func (s *shard) find(key int64, now time.Duration) *window {
	for _, g := range [...]*generation{&s.young, &s.old} {
		if place, ok := g.index[key]; ok && now < g.windows[place].ends {
			return &g.windows[place]
		}
	}
	return nil
}

// open returns the window of key and starts one where none is open. A window found in the old generation stays there:
// it ends before it is dropped.
func (s *shard) findOrStart(key int64, now, length time.Duration) *window {
	if w := s.find(key, now); w != nil {
		return w
	}
	started := window{ends: now + length}
	if place, ok := s.young.index[key]; ok {
		s.young.windows[place] = started
		return &s.young.windows[place]
	}
	if s.young.index == nil {
		s.young.index = make(map[int64]uint32)
	}
	place := len(s.young.windows)
	s.young.index[key] = uint32(place)
	s.young.windows = append(s.young.windows, started)
	return &s.young.windows[place]
}

// turn drops the old generation if the last turn is a window length ago, and says whether it did.
func (s *shard) rotate(now, length time.Duration) bool {
	if now-s.lastRotation < length {
		return false
	}
	s.lastRotation, s.old, s.young = now, s.young, generation{}
	return true
}
