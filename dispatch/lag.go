package dispatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// lateAfter is how long a delivery may wait before an operator is told.
const lateAfter = time.Minute

// Delay says what deliveries wait for at present.
type Lag struct {
	// Since is when Keyhook itself last went on, where deliveries wait that nothing else keeps from being sent. It is zero
	// where no delivery waits for Keyhook.
	StalledSince time.Time
	// Cause is what Keyhook fails to do then.
	StallCause string
	// Late is how many healthy subscriptions without a rate limit have a delivery that has waited for more than a minute:
	// for a slow receiver, or for a slot of their organization.
	LateSubscriptions int
}

// The steps of a delivery in which Keyhook itself, and no receiver, can hold it up.
const (
	stepBegin  = iota // its attempt is recorded before it is sent
	stepSend          // there is a slot for it
	stepRecord        // nothing is sent while the ends of attempts cannot be recorded
	stepRead          // it is read from the table
	stepList          // subscriptions with pending deliveries are looked up
	stepCount
)

var stallCauses = [stepCount]string{
	stepBegin:  "the database does not take new attempts",
	stepSend:   "slots are free, but nothing is sent",
	stepRecord: "the database does not take the results of attempts",
	stepRead:   "the database does not return pending deliveries",
	stepList:   "the database does not list pending deliveries",
}

// delays watch each step: whether something waits for it, and since when it has not been taken. The scheduler's goroutine
// owns them.
type stepClock struct {
	since     [stepCount]time.Time // zero: nothing waits
	done      [stepCount]bool      // the step was taken in this round
	lateLanes int                  // lanes that are late
}

// moved notes that a step was taken.
func (d *stepClock) markDone(step int) { d.done[step] = true }

// observe notes whether something waits for a step at the end of a round.
func (d *stepClock) observe(step int, waits bool, now time.Time) {
	switch {
	case !waits:
		d.since[step] = time.Time{}
	case d.done[step] || d.since[step].IsZero():
		d.since[step] = now
	}
	d.done[step] = false
}

// publish tells of delays at the end of a round. Its cost does not depend on how many lanes there are: what may go on is in
// line by then, and what a round leaves in line although there is room for it waits for Keyhook.
func (s *scheduler) publishLag() {
	begin, probe, launch, read := &s.resources[beginPlaces], &s.resources[probePlaces], &s.resources[sendSlots], &s.resources[readSlots]
	for step, waits := range [stepCount]bool{
		stepBegin:  s.beginning || begin.hasNext(1) || begin.used < begin.capacity && probe.hasNext(1),
		stepSend:   launch.hasNext(1),
		stepRecord: s.failingOps[opRecord] && (begin.used > 0 || launch.used > 0 || begin.hasNext(1) || probe.hasNext(1)),
		stepRead:   read.used > 0 || read.hasNext(1) || s.lanesFailingRead > 0 || s.droppedUnread,
		stepList:   s.listing || s.failingOps[opList],
	} {
		s.steps.observe(step, waits && !s.stopping, s.clock)
	}
	d := Lag{LateSubscriptions: s.steps.lateLanes}
	for step, since := range s.steps.since {
		if !since.IsZero() && (d.StalledSince.IsZero() || since.Before(d.StalledSince)) {
			d.StalledSince, d.StallCause = since, stallCauses[step]
		}
	}
	s.lag.set(d)
}

// firstDue is when the lane's first delivery in memory became due; 0 where none waits, or where it waits for what its
// owner or its receiver has decided.
func (l *lane) dueSince() int64 {
	if l.bucket != nil || l.target == nil || l.isClosed() || l.health.Status != webhook.Healthy {
		return 0
	}
	switch {
	case l.begun.first != nil:
		return l.begun.first.DueAt
	case l.head.first != nil:
		return l.head.first.DueAt
	}
	return 0
}

// judge finds out whether the lane is late.
func (s *scheduler) updateLate(l *lane) {
	due := l.dueSince()
	late := due != 0 && s.now-due > lateAfter.Milliseconds()
	switch {
	case late && !l.late:
		s.steps.lateLanes++
	case !late && l.late:
		s.steps.lateLanes--
	}
	l.late = late
}

// lateness tells when the lane is to be looked at because it may be late by then. Steps of ten seconds are close enough,
// and leave the timetable alone while a lane is busy.
func (s *scheduler) lateWake(l *lane, at func(int64)) {
	const step = 10_000
	if due := l.dueSince(); due != 0 && !l.late {
		at((due+lateAfter.Milliseconds())/step*step + step)
	}
}

// published is a Delay that one goroutine sets and others get.
type sharedLag struct {
	mu  sync.Mutex
	lag Lag
}

func (p *sharedLag) set(d Lag) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lag = d
}

// Delay returns what deliveries waited for when the scheduler last looked. It asks nobody, and costs next to nothing.
func (d *Dispatcher) Lag() Lag {
	d.lag.mu.Lock()
	defer d.lag.mu.Unlock()
	return d.lag.lag
}

// Ready reports whether Keyhook keeps up: the error says that deliveries have waited for more than a minute though only
// Keyhook keeps them from being sent, the warning that they have waited as long for receivers. Anybody may read both.
func (d *Dispatcher) Ready(context.Context) (warning string, err error) {
	now := d.Lag()
	if now.LateSubscriptions > 0 {
		warning = fmt.Sprintf("subscriptions whose deliveries have waited for more than %s, for a slow receiver or a free slot: %d", lateAfter, now.LateSubscriptions)
	}
	if waited := time.Since(now.StalledSince); !now.StalledSince.IsZero() && waited > lateAfter {
		return warning, fmt.Errorf("deliveries that could be sent have waited for %s: %s", waited.Round(time.Second), now.StallCause)
	}
	return warning, nil
}
