package dispatch

import (
	"testing"
	"time"
)

// Inside the package, because a test cannot set the clock of its process back.
func TestTick(t *testing.T) {
	t.Parallel()

	t.Run("a clock that was set back wakes lanes whose wake times are now far away", func(t *testing.T) {
		t.Parallel()
		s := newTestScheduler(t)
		s.now += (24 * time.Hour).Milliseconds()
		l := s.lanes.laneOf(7, 1)
		l.table.noteDue(s.now + 1000)
		s.update(l)
		if l.table.hasMore || l.wakeAt != s.now+1000 {
			t.Fatalf("before: more %t, woken at %d", l.table.hasMore, l.wakeAt)
		}
		s.tick()
		if !l.table.hasMore || !l.turns[readSlots].Waits() || l.wakeAt != 0 {
			t.Errorf("after: more %t, in line to read %t, woken at %d", l.table.hasMore, l.turns[readSlots].Waits(), l.wakeAt)
		}
	})

	t.Run("a clock set back by less than a minute delays nothing for longer than that", func(t *testing.T) {
		t.Parallel()
		s := newTestScheduler(t)
		for ahead, due := range map[time.Duration]bool{
			-time.Hour: true, 0: true, time.Second: false, 10 * time.Minute: false, 11 * time.Minute: false, 12 * time.Minute: true, 24 * time.Hour: true,
		} {
			if s.isDue(s.now+ahead.Milliseconds()) != due {
				t.Errorf("%s ahead: due %t", ahead, !due)
			}
		}
	})
}

// The timetable keeps its order through any changes.
func TestTimetable(t *testing.T) {
	t.Parallel()
	var table timetable
	lanes := map[int64]*lane{}
	for i := range int64(100) {
		lanes[i] = newLane(i)
	}
	for step := range int64(10_000) {
		l := lanes[step*7919%100]
		table.set(l, step*104729%50) // 0 removes it
	}
	last := int64(0)
	for len(table) > 0 {
		l := table[0]
		if l.wakeAt < last {
			t.Fatalf("%d comes after %d", l.wakeAt, last)
		}
		last = l.wakeAt
		table.set(l, 0)
		if l.wakeAt != 0 || l.wakeIndex != 0 {
			t.Fatal("a removed lane still has an index")
		}
	}
}
