package dispatch

import (
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch/sender"
	"github.com/keyhook/keyhook/storage/webhook"
)

// limitedLane makes a scheduler with one lane that has a rate limit and an empty bucket.
func limitedLane(t *testing.T, limit int64) (*scheduler, *lane) {
	t.Helper()
	s := newTestScheduler(t)
	l := s.lanes.laneOf(7, 1)
	l.target = &sender.Target{Target: webhook.Target{Subscription: 7, Gate: webhook.Gate{Webhooks: true}, RateLimitPerSecond: &limit}}
	s.setHealth(l, webhook.Health{Status: webhook.Healthy, Epoch: 1})
	l.version = l.wantVersion
	l.bucket = l.bucket.WithLimit(&limit, s.clock)
	for range l.bucket.Capacity() {
		l.bucket.Take(s.clock)
	}
	return s, l
}

func TestPacedLane(t *testing.T) {
	t.Parallel()

	t.Run("the token of an attempt that was not sent is returned", func(t *testing.T) {
		t.Parallel()
		s, l := limitedLane(t, 1)
		s.lanes.enqueue(l, webhook.Job{Delivery: 1, Subscription: 7})
		a := s.lanes.takeFromHead(l)
		s.lanes.queueForSending(a)
		s.lanes.takeBegun(l)
		s.takeBack(a)
		if l.stages[begun] != 1 || !s.maySend(l) || !l.turns[sendSlots].Waits() {
			t.Errorf("%d begun, and the next token comes in %s", l.stages[begun], l.bucket.TimeUntil(1, s.clock))
		}
	})

	t.Run("a lane is woken once, when its token is there", func(t *testing.T) {
		t.Parallel()
		s, l := limitedLane(t, 3)
		if !s.admit(l, webhook.Job{Delivery: 1, Subscription: 7}, maxHead) {
			t.Fatal("no room")
		}
		s.update(l)
		wake := time.UnixMilli(l.wakeAt)
		if wait := wake.Sub(s.clock); l.turns[beginPlaces].Waits() || wait < time.Second/3 || wait > time.Second/3+time.Millisecond {
			t.Fatalf("in line %t, woken after %s", l.turns[beginPlaces].Waits(), wait)
		}
		s.begin.took = 10 * time.Millisecond
		s.update(l)
		if early := wake.Sub(time.UnixMilli(l.wakeAt)); early < 19*time.Millisecond || early > 21*time.Millisecond {
			t.Errorf("woken %s before the token is there", early)
		}
		s.clock = s.clock.Add(time.UnixMilli(l.wakeAt).Sub(s.clock))
		s.now = s.clock.UnixMilli()
		if s.wakeLanes(); !l.turns[beginPlaces].Waits() || l.wakeAt != 0 {
			t.Errorf("in line %t, to be woken at %d again", l.turns[beginPlaces].Waits(), l.wakeAt)
		}
	})

	t.Run("a lane beyond the limit is dropped only when its bucket is full", func(t *testing.T) {
		t.Parallel()
		s, l := limitedLane(t, 50)
		for i := range int64(maxLanes) {
			s.lanes.laneOf(100+i, 1)
		}
		s.update(l)
		if s.lanes.of[7] != l || l.wakeAt <= s.now || l.wakeAt > s.now+122 {
			t.Fatalf("is kept %t, to be looked at in %d ms", s.lanes.of[7] == l, l.wakeAt-s.now)
		}
		s.clock = s.clock.Add(121 * time.Millisecond)
		s.now = s.clock.UnixMilli()
		s.wakeLanes()
		if s.lanes.of[7] != nil || l.wakeAt != 0 {
			t.Errorf("is kept %t, to be looked at again at %d", s.lanes.of[7] == l, l.wakeAt)
		}
	})
}
