package dispatch

import (
	"container/heap"
	"time"

	"github.com/keyhook/keyhook/dispatch/fair"
	"github.com/keyhook/keyhook/storage/webhook"
)

// timetable is a heap of the lanes that have a wake time, the earliest first.
type timetable []*lane

// set sets the time at which the lane is updated; 0 removes it.
func (t *timetable) set(l *lane, at int64) {
	before := l.wakeAt
	l.wakeAt = at
	switch {
	case at == before:
	case at == 0:
		heap.Remove(t, l.wakeIndex-1)
	case before == 0:
		heap.Push(t, l)
	default:
		heap.Fix(t, l.wakeIndex-1)
	}
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (t timetable) Len() int           { return len(t) }
func (t timetable) Less(i, j int) bool { return t[i].wakeAt < t[j].wakeAt }
func (t timetable) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].wakeIndex, t[j].wakeIndex = i+1, j+1
}
func (t *timetable) Push(x any) {
	l := x.(*lane)
	*t = append(*t, l)
	l.wakeIndex = len(*t)
}
func (t *timetable) Pop() any {
	last := len(*t) - 1
	l := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	l.wakeIndex = 0
	return l
}

func (s *scheduler) untilNextWake() time.Duration {
	d := s.options.PollInterval
	if len(s.timetable) > 0 {
		d = min(d, time.UnixMilli(s.timetable[0].wakeAt).Sub(s.clock))
	}
	if s.begin.failed && s.lanes.blocking == 0 && !s.begin.running { // otherwise a message will wake the scheduler
		d = min(d, s.begin.after.Sub(s.clock))
	}
	return max(d, time.Millisecond)
}

func (s *scheduler) wakeLanes() {
	for len(s.timetable) > 0 && s.timetable[0].wakeAt <= s.now {
		l := s.timetable[0]
		s.timetable.set(l, 0)
		s.update(l)
	}
}

// nextWake returns when the lane must be updated even if nothing happens; 0: never.
func (s *scheduler) nextWake(l *lane) int64 {
	wake := l.table.nextDue
	wakeBy := func(t int64) {
		if !s.isDue(t) && (wake == 0 || t < wake) {
			wake = t
		}
	}
	if s.needsRead(l) {
		wakeBy(l.table.readAfter)
	}
	if l.isFailing() && (l.table.hasMore || l.stages[queued] > 0) {
		wakeBy(l.gate.ProbeAt)
	}
	if l.bucket != nil {
		s.rateWake(l, wakeBy)
	}
	if interval := max(s.options.PollInterval.Milliseconds(), 1); s.mayWaitForOthers(l) {
		wakeBy((s.now/interval + 1) * interval) // not exact, so that a busy lane seldom changes its place in the timetable
	}
	s.lateWake(l, wakeBy)
	return wake
}

// mayWaitForOthers reports whether the lane might go on because other organizations use fewer slots or less memory than before. It is
// not told. Lanes without requests or jobs wait for their turn instead.
func (s *scheduler) mayWaitForOthers(l *lane) bool {
	requests := l.requests()
	return l.stages[begun] > 0 && requests > 0 && requests < s.options.PerSubscription && l.gate.Status == webhook.Healthy && !l.isOrdered() ||
		l.memory.used > 0 && s.needsRead(l) && s.jobsToRead(l) == 0
}

// rateWake calls at with the times at which the lane must be updated because a token has come.
func (s *scheduler) rateWake(l *lane, at func(int64)) {
	in := func(d time.Duration) {
		if d > 0 && d < fair.Never {
			at(s.clock.Add(d + time.Millisecond - 1).UnixMilli()) // rounded up, so that the token is there
		}
	}
	if s.isDroppable(l) {
		in(l.bucket.TimeUntil(l.bucket.Capacity(), s.clock))
	}
	if !l.isCurrent() || !l.sends {
		return
	}
	if l.stages[begun] > 0 {
		in(l.bucket.TimeUntil(1, s.clock))
	}
	if l.stages[queued] > 0 && (!l.isFailing() || s.mayProbe(l)) {
		if d := l.bucket.TimeUntil(l.stages[beginning]+l.stages[begun]+1, s.clock); d < fair.Never {
			in(d - s.begin.lead())
		}
	}
}
