package dispatch

import (
	"errors"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage/webhook"
)

// TestBodies shows that the deliveries of an event count their shared body once, in whatever order they come and go.
func TestBodies(t *testing.T) {
	t.Parallel()
	s := newTestScheduler(t)
	text := strings.Repeat("x", 10_000)
	admit := func(lane, event, delivery int64) *attempt {
		t.Helper()
		j := webhook.Job{Delivery: delivery, Subscription: lane, Event: event, Body: []byte(text)} // each has a copy, like jobs that were read
		if !s.admit(s.lanes.laneOf(lane, 1), j, maxHead) {
			t.Fatalf("delivery %d was not admitted", delivery)
		}
		return s.lanes.laneOf(lane, 1).attempts[delivery]
	}
	weighs := func(bodies, jobs int) {
		t.Helper()
		used := s.lanes.resources[memoryBytes].Used
		if want := bodies*len(text) + jobs*jobWeight; used != want || len(s.lanes.bodies) != bodies {
			t.Errorf("%d bytes and %d bodies, want %d and %d", used, len(s.lanes.bodies), want, bodies)
		}
	}
	one, two, other := admit(1, 7, 1), admit(2, 7, 2), admit(2, 8, 3)
	weighs(2, 3)
	if &one.Body[0] != &two.Body[0] || &two.Body[0] == &other.Body[0] {
		t.Error("two deliveries of one event do not share its body, or those of two do")
	}
	if s.lanes.laneOf(2, 1).memory.used != 2*weight(two.Job) {
		t.Errorf("the second lane holds %d bytes", s.lanes.laneOf(2, 1).memory.used)
	}
	s.lanes.dropBody(one)
	s.lanes.dropBody(one) // first when its request ends, then when its result is saved
	weighs(2, 2)
	s.lanes.move(one, gone)
	s.lanes.move(two, gone)
	weighs(1, 1)
	again := admit(1, 7, 1)
	weighs(2, 2)
	s.lanes.move(other, gone)
	s.lanes.move(again, gone)
	weighs(0, 0)
	if s.lanes.laneOf(1, 1).memory.used != 0 || s.lanes.laneOf(2, 1).memory.used != 0 {
		t.Errorf("the lanes hold %d and %d bytes", s.lanes.laneOf(1, 1).memory.used, s.lanes.laneOf(2, 1).memory.used)
	}
}

// TestLanesLeaveMemory lets eight lanes of an organization take all the memory that they may, one after the other.
func TestLanesLeaveMemory(t *testing.T) {
	t.Parallel()
	s := newTestScheduler(t)
	var jobs [8]int
	for subscription := range jobs {
		l := s.lanes.laneOf(int64(subscription), 1)
		for row := int64(1000 * subscription); s.admit(l, webhook.Job{Delivery: row, Event: row, Body: make([]byte, 10_000)}, 1000); row++ {
			jobs[subscription]++
		}
	}
	if jobs[7] < jobs[0]/10 {
		t.Errorf("the lanes have %d jobs", jobs)
	}
}

// TestChangedBodies has an attempt in each stage when its body changes. It is not sent, and it is read again.
func TestChangedBodies(t *testing.T) {
	t.Parallel()
	const event = 7
	job := webhook.Job{Delivery: 1, Subscription: 1, Event: event, Body: []byte("old")}
	enqueued := func(s *scheduler, l *lane) *attempt {
		s.lanes.enqueue(l, job)
		return l.attempts[job.Delivery]
	}
	begins := func(s *scheduler, l *lane) *attempt {
		enqueued(s, l)
		return s.lanes.takeFromHead(l)
	}
	for name, c := range map[string]struct {
		before func(s *scheduler, l *lane) *attempt
		after  func(s *scheduler, a *attempt)
		want   stage
	}{
		"queued": {enqueued, func(*scheduler, *attempt) {}, gone},
		"beginning, and the store fails": {begins, func(s *scheduler, a *attempt) {
			s.finishBegin([]webhook.Start{{Delivery: a.Delivery, Subscription: a.Subscription}}, nil, errors.New("the disk is full"))
		}, gone},
		"beginning": {begins, func(s *scheduler, a *attempt) {
			s.finishBegin([]webhook.Start{{Delivery: a.Delivery, Subscription: a.Subscription}}, []int64{1}, nil)
		}, releasing},
		"begun": {func(s *scheduler, l *lane) *attempt {
			s.enterBegun(l, job)
			return l.attempts[job.Delivery]
		}, func(*scheduler, *attempt) {}, releasing},
		"sending, but its request has not begun": {func(s *scheduler, l *lane) *attempt {
			s.enterBegun(l, job)
			return s.lanes.takeBegun(l)
		}, func(s *scheduler, a *attempt) { s.takeBack(a) }, releasing},
	} {
		t.Run("an attempt that is "+name+" leaves memory or is released", func(t *testing.T) {
			t.Parallel()
			s := newTestScheduler(t)
			l := s.lanes.laneOf(job.Subscription, 1)
			a := c.before(s, l)
			s.dropBodies([]int64{event})
			if len(s.lanes.bodies) != 0 {
				t.Error("the old body is in memory")
			}
			if c.after(s, a); a.stage != c.want {
				t.Errorf("it is %s, want %s", a.stage, c.want)
			}
			if a.stage == releasing {
				s.finishRelease([]attemptKey{{job.Subscription, job.Delivery}})
			}
			if !l.table.hasMore {
				t.Error("it is not read again")
			}
		})
	}

	t.Run("a read that began before the change is repeated", func(t *testing.T) {
		t.Parallel()
		s := newTestScheduler(t)
		l := s.lanes.laneOf(job.Subscription, 1)
		read := &laneRead{lane: l, limit: 10, jobs: []webhook.Job{job}, usedLimit: 10}
		s.lanes.setRead(l, read)
		s.dropBodies([]int64{event})
		s.finishRead(read, nil)
		if len(l.attempts) > 0 || !l.table.hasMore {
			t.Errorf("%d jobs are in memory; more: %t", len(l.attempts), l.table.hasMore)
		}
	})

	t.Run("a request that was decided before the change does not begin after it", func(t *testing.T) {
		t.Parallel()
		s := newTestScheduler(t)
		_, _, before := s.inbox.takeAll(nil)
		s.BodiesChanged([]int64{event})
		if s.inbox.changes.Load() == before {
			t.Error("the change is not counted")
		}
	})
}
