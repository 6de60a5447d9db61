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
type Delay struct {
	// Since is when Keyhook itself last went on, where deliveries wait that nothing else keeps from being sent. It is zero
	// where no delivery waits for Keyhook.
	Since time.Time
	// Cause is what Keyhook fails to do then.
	Cause string
	// Late is how many healthy subscriptions without a rate limit have a delivery that has waited for more than a minute:
	// for a slow receiver, or for a slot of their organization.
	Late int
}

// The steps of a delivery in which Keyhook itself, and no receiver, can hold it up.
const (
	beginning = iota // its attempt is recorded before it is sent
	launching        // there is a slot for it
	recording        // nothing is sent while the ends of attempts cannot be recorded
	reading          // it is read from the table
	listing          // subscriptions with pending deliveries are looked up
	steps
)

var causes = [steps]string{
	beginning: "the database does not take new attempts",
	launching: "slots are free, but nothing is sent",
	recording: "the database does not take the results of attempts",
	reading:   "the database does not return pending deliveries",
	listing:   "the database does not list pending deliveries",
}

// delays watch each step: whether something waits for it, and since when it has not been taken. The scheduler's goroutine
// owns them.
type delays struct {
	since [steps]time.Time // zero: nothing waits
	went  [steps]bool      // the step was taken in this round
	late  int              // lanes that are late
}

// moved notes that a step was taken.
func (d *delays) moved(step int) { d.went[step] = true }

// observe notes whether something waits for a step at the end of a round.
func (d *delays) observe(step int, waits bool, now time.Time) {
	switch {
	case !waits:
		d.since[step] = time.Time{}
	case d.went[step] || d.since[step].IsZero():
		d.since[step] = now
	}
	d.went[step] = false
}

// publish tells of delays at the end of a round. Its cost does not depend on how many lanes there are: what may go on is in
// line by then, and what a round leaves in line although there is room for it waits for Keyhook.
func (s *scheduler) publish() {
	begin, probe, launch, read := &s.turns[toBegin], &s.turns[toProbe], &s.turns[toLaunch], &s.turns[toRead]
	for step, waits := range [steps]bool{
		beginning: s.beginning || begin.ready(1) || begin.used < begin.all && probe.ready(1),
		launching: launch.ready(1),
		recording: s.ailing[recordAttempts] && (begin.used > 0 || launch.used > 0 || begin.ready(1) || probe.ready(1)),
		reading:   read.used > 0 || read.ready(1) || s.unread > 0 || s.dropped,
		listing:   s.sweeping || s.ailing[listPending],
	} {
		s.delays.observe(step, waits && !s.stopping, s.clock)
	}
	d := Delay{Late: s.delays.late}
	for step, since := range s.delays.since {
		if !since.IsZero() && (d.Since.IsZero() || since.Before(d.Since)) {
			d.Since, d.Cause = since, causes[step]
		}
	}
	s.delay.set(d)
}

// firstDue is when the lane's first delivery in memory became due; 0 where none waits, or where it waits for what its
// owner or its receiver has decided.
func (l *lane) firstDue() int64 {
	if l.bucket != nil || l.target == nil || l.closed() || l.health.Status != webhook.Healthy {
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
func (s *scheduler) judge(l *lane) {
	due := l.firstDue()
	late := due != 0 && s.now-due > lateAfter.Milliseconds()
	switch {
	case late && !l.late:
		s.delays.late++
	case !late && l.late:
		s.delays.late--
	}
	l.late = late
}

// lateness tells when the lane is to be looked at because it may be late by then. Steps of ten seconds are close enough,
// and leave the timetable alone while a lane is busy.
func (s *scheduler) lateness(l *lane, at func(int64)) {
	const step = 10_000
	if due := l.firstDue(); due != 0 && !l.late {
		at((due+lateAfter.Milliseconds())/step*step + step)
	}
}

// published is a Delay that one goroutine sets and others get.
type published struct {
	mu    sync.Mutex
	delay Delay
}

func (p *published) set(d Delay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Delay returns what deliveries waited for when the scheduler last looked. It asks nobody, and costs next to nothing.
func (d *Dispatcher) Delay() Delay {
	d.delay.mu.Lock()
	defer d.delay.mu.Unlock()
	return d.delay.delay
}

// Ready reports whether Keyhook keeps up: the error says that deliveries have waited for more than a minute though only
// Keyhook keeps them from being sent, the warning that they have waited as long for receivers. Anybody may read both.
func (d *Dispatcher) Ready(context.Context) (warning string, err error) {
	now := d.Delay()
	if now.Late > 0 {
		warning = fmt.Sprintf("subscriptions whose deliveries have waited for more than %s, for a slow receiver or a free slot: %d", lateAfter, now.Late)
	}
	if waited := time.Since(now.Since); !now.Since.IsZero() && waited > lateAfter {
		return warning, fmt.Errorf("deliveries that could be sent have waited for %s: %s", waited.Round(time.Second), now.Cause)
	}
	return warning, nil
}
