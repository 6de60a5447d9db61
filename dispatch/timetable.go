package dispatch

import (
	"container/heap"
	"time"
)

// timetable is a heap of the lanes that have a wake time, the earliest first.
type timetable []*lane

// wakeAt sets the time at which the lane is updated; 0 removes it.
func (t *timetable) wakeAt(l *lane, at int64) {
	before := l.wakeAt
	l.wakeAt = at
	switch {
	case at == before:
	case at == 0:
		heap.Remove(t, l.timetableIndex-1)
	case before == 0:
		heap.Push(t, l)
	default:
		heap.Fix(t, l.timetableIndex-1)
	}
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (t timetable) Len() int           { return len(t) }
func (t timetable) Less(i, j int) bool { return t[i].wakeAt < t[j].wakeAt }
func (t timetable) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].timetableIndex, t[j].timetableIndex = i+1, j+1
}
func (t *timetable) Push(x any) {
	l := x.(*lane)
	*t = append(*t, l)
	l.timetableIndex = len(*t)
}
func (t *timetable) Pop() any {
	last := len(*t) - 1
	l := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	l.timetableIndex = 0
	return l
}

// untilNextWake returns how long the scheduler may sleep.
func (s *scheduler) untilNextWake() time.Duration {
	d := s.options.PollInterval
	if len(s.timetable) > 0 {
		d = min(d, time.UnixMilli(s.timetable[0].wakeAt).Sub(s.clock))
	}
	if s.begin.failed && s.blockingResults == 0 && !s.begin.running { // otherwise a message will wake the scheduler
		d = min(d, s.begin.after.Sub(s.clock))
	}
	return max(d, time.Millisecond)
}

// wakeLanes updates the lanes whose wake time has come.
func (s *scheduler) wakeLanes() {
	for len(s.timetable) > 0 && s.timetable[0].wakeAt <= s.now {
		l := s.timetable[0]
		s.timetable.wakeAt(l, 0)
		s.update(l)
	}
}

// nextWake returns when the lane must be updated even if nothing happens; 0: never.
func (s *scheduler) nextWake(l *lane) int64 {
	wake := l.nextDue
	wakeBy := func(t int64) {
		if !s.isDue(t) && (wake == 0 || t < wake) {
			wake = t
		}
	}
	if s.needsRead(l) {
		wakeBy(l.readAfter)
	}
	if l.isFailing() && (l.tableHasMore || l.head.n > 0) {
		wakeBy(l.health.ProbeAt)
	}
	if l.bucket != nil {
		s.rateWake(l, wakeBy)
	}
	s.lateWake(l, wakeBy)
	return wake
}
