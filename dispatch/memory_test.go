package dispatch

import (
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
		if !s.admit(s.laneOf(lane, 1), j, maxHead) {
			t.Fatalf("delivery %d was not admitted", delivery)
		}
		return s.laneOf(lane, 1).attempts[delivery]
	}
	weighs := func(bodies, jobs int) {
		t.Helper()
		used := s.resources[memoryBytes].used
		if want := bodies*len(text) + jobs*jobWeight; used != want || len(s.bodies) != bodies {
			t.Errorf("%d bytes and %d bodies, want %d and %d", used, len(s.bodies), want, bodies)
		}
	}
	one, two, other := admit(1, 7, 1), admit(2, 7, 2), admit(2, 8, 3)
	weighs(2, 3)
	if &one.Body[0] != &two.Body[0] || &two.Body[0] == &other.Body[0] {
		t.Error("two deliveries of one event do not share its body, or those of two do")
	}
	if s.laneOf(2, 1).memory.used != 2*weight(two.Job) {
		t.Errorf("the second lane holds %d bytes", s.laneOf(2, 1).memory.used)
	}
	s.dropBody(one)
	s.dropBody(one) // first when its request ends, then when its result is saved
	weighs(2, 2)
	s.move(one, gone)
	s.move(two, gone)
	weighs(1, 1)
	again := admit(1, 7, 1)
	weighs(2, 2)
	s.move(other, gone)
	s.move(again, gone)
	weighs(0, 0)
	if s.laneOf(1, 1).memory.used != 0 || s.laneOf(2, 1).memory.used != 0 {
		t.Errorf("the lanes hold %d and %d bytes", s.laneOf(1, 1).memory.used, s.laneOf(2, 1).memory.used)
	}
}

// TestLanesLeaveMemory lets eight lanes of an organization take all the memory that they may, one after the other.
func TestLanesLeaveMemory(t *testing.T) {
	t.Parallel()
	s := newTestScheduler(t)
	var jobs [8]int
	for subscription := range jobs {
		l := s.laneOf(int64(subscription), 1)
		for row := int64(1000 * subscription); s.admit(l, webhook.Job{Delivery: row, Event: row, Body: make([]byte, 10_000)}, 1000); row++ {
			jobs[subscription]++
		}
	}
	if jobs[7] < jobs[0]/10 {
		t.Errorf("the lanes have %d jobs", jobs)
	}
}
