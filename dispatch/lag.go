package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// lateAfter is how long a delivery may wait before the operator is told.
const lateAfter = time.Minute

// lag says which deliveries are late, and why.
type lag struct {
	stalledSince time.Time // when Keyhook itself last made progress; zero: no delivery waits for nothing but Keyhook
	stallCause   string    // what Keyhook fails to do since then
	// lateSubscriptions counts healthy subscriptions without a rate limit whose first delivery has waited for more than
	// a minute. They wait for a slow receiver, or for a slot of their organization.
	lateSubscriptions int
}

// The steps of a delivery that Keyhook itself can delay. The store takes part in all but stepSend.
const (
	stepBegin  = iota
	stepSend   // taking a free slot
	stepRecord // nothing is sent while that fails
	stepRead
	stepList
	stepRelease
	stepCount
)

var steps = [stepCount]struct{ name, stallCause string }{
	stepBegin:   {"begin attempts", "the database does not take new attempts"},
	stepSend:    {"send attempts", "slots are free, but nothing is sent"},
	stepRecord:  {"record attempts", "the database does not take the results of attempts"},
	stepRead:    {"read deliveries", "the database does not return pending deliveries"},
	stepList:    {"list pending deliveries", "the database does not list pending deliveries"},
	stepRelease: {name: "release attempts"}, // nothing waits for it
}

// stepClock knows for each step whether something waits for it, and since when. The scheduler's goroutine owns it.
type stepClock struct {
	since [stepCount]time.Time // zero: nothing waits
	done  [stepCount]bool      // in this round
	fails [stepCount]bool      // the store fails at it now
}

// observe notes at the end of a round whether something waits for a step.
func (d *stepClock) observe(step int, waits bool, now time.Time) {
	switch {
	case !waits:
		d.since[step] = time.Time{}
	case d.done[step] || d.since[step].IsZero():
		d.since[step] = now
	}
	d.done[step] = false
}

// publishLag publishes the lag at the end of a round. Its cost does not depend on the number of lanes. At the end of a
// round, every lane that may go on waits for a resource. If it still waits although there is room, it waits for Keyhook.
func (s *scheduler) publishLag() {
	begin, probe, launch, read := &s.lanes.resources[beginPlaces], &s.lanes.resources[probePlaces], &s.lanes.resources[sendSlots], &s.lanes.resources[readSlots]
	for step, waits := range [stepCount]bool{
		stepBegin:  s.begin.running || begin.HasNext(1) || probe.HasNext(1),
		stepSend:   launch.HasNext(1) && !s.savesTooSlowly(),
		stepRecord: s.savesTooSlowly() || s.steps.fails[stepRecord] && (begin.Used > 0 || probe.Used > 0 || launch.Used > 0 || begin.HasNext(1) || probe.HasNext(1)),
		stepRead:   read.Used > 0 || read.HasNext(1) || s.lanes.failingReads > 0 || s.reads.droppedUnread,
		stepList:   s.reads.listing || s.steps.fails[stepList],
	} {
		s.steps.observe(step, waits && !s.stopping, s.clock)
	}
	now := lag{lateSubscriptions: s.lanes.late}
	for step, since := range s.steps.since {
		if !since.IsZero() && (now.stalledSince.IsZero() || since.Before(now.stalledSince)) {
			now.stalledSince, now.stallCause = since, steps[step].stallCause
		}
	}
	s.lag.Lock()
	s.lag.latest = now
	s.lag.Unlock()
}

func (s *scheduler) storeFails(step int, err error) {
	if !s.steps.fails[step] && !s.stopping {
		s.steps.fails[step] = true
		s.log.Error("a database operation fails, so some deliveries wait; the server tries again", "what", steps[step].name, "error", err)
	}
}

// storeWorks notes that the store did a step, and logs that it works again.
func (s *scheduler) storeWorks(step int) {
	s.steps.done[step] = true
	if s.steps.fails[step] {
		s.steps.fails[step] = false
		s.log.Info("the database operation works again", "what", steps[step].name)
	}
}

// dueSince returns when the lane's first delivery in memory became due. It returns 0 if none waits, or if its owner's
// settings or its receiver's failures explain the wait.
func (l *lane) dueSince() int64 {
	if l.bucket != nil || l.target == nil || l.isOrdered() || !l.sends || l.gate.Status != webhook.Healthy {
		return 0
	}
	if first := cmp.Or(l.begun.first, l.head.first); first != nil {
		return first.DueAt
	}
	return 0
}

// lateWake calls at with the time at which the lane may become late. It rounds up to ten seconds. That is exact enough,
// and a busy lane seldom changes its place in the timetable.
func (s *scheduler) lateWake(l *lane, at func(int64)) {
	const step = 10_000
	if due := l.dueSince(); due != 0 && !l.late {
		at((due+lateAfter.Milliseconds())/step*step + step)
	}
}

// Ready reports whether Keyhook keeps up. The error says that deliveries have waited for Keyhook for more than a
// minute. The warning says that deliveries have waited as long for receivers. Both texts are safe to show to anybody.
func (d *Dispatcher) Ready(context.Context) (warning string, err error) {
	d.lag.Lock()
	now := d.lag.latest
	d.lag.Unlock()
	if now.lateSubscriptions > 0 {
		warning = fmt.Sprintf("subscriptions with deliveries that have waited for more than %s for a slow receiver or a free slot: %d", lateAfter, now.lateSubscriptions)
	}
	if waited := time.Since(now.stalledSince); !now.stalledSince.IsZero() && waited > lateAfter {
		return warning, fmt.Errorf("deliveries that could be sent have waited for %s: %s; look at the log for the error", waited.Round(time.Second), now.stallCause)
	}
	return warning, nil
}
