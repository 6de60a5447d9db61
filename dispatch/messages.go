package dispatch

import (
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// What the scheduler is told. The store says fresh and changed; the goroutines that work for the scheduler say the rest.
type (
	// fresh: there are new deliveries.
	fresh struct{ jobs []webhook.Job }
	// changed: these subscriptions, or any where none is named, are not what they were.
	changed struct{ subscriptions []int64 }
	// begun: the attempts are in the store, each under its row; 0 stands for one that was refused.
	begun struct {
		attempts []*attempt
		rows     []int64
		err      error
	}
	// bounced: it was not sent, because something has changed since that was decided.
	bounced struct{ *attempt }
	// sent: its request has ended.
	sent struct{ *attempt }
	// unrecorded: the store refuses to record its end. That is tried again.
	unrecorded struct {
		*attempt
		err error
	}
	// settled: its end is recorded.
	settled struct{ *attempt }
	// cutOff: it stays in the store as it is.
	cutOff struct {
		*attempt
		onWire bool
	}
	// unreleased: the store refuses to take attempts back. That is tried again.
	unreleased struct{ err error }
	// released: they were taken back.
	released struct{ attempts []*attempt }
	// swept: all that is pending, by subscription.
	swept struct {
		lanes []webhook.Lane
		err   error
		took  time.Duration
	}
)

// apply takes jobs into the heads of their lanes. Where older ones wait in the table, or there is no room, they will be
// read from there.
func (m fresh) apply(s *scheduler) {
	for i := range m.jobs {
		j := m.jobs[i]
		if _, shut := s.closed[j.Subscription]; shut {
			continue
		}
		l := s.lane(j.Subscription, j.Organization)
		if l.held[j.Delivery] != nil {
			continue
		}
		if l.more || !s.admit(l, j, freshSize) {
			l.more = true
		}
		s.touch(l)
	}
}

// spill notes that a subscription has new deliveries in the table.
func (s *scheduler) spill(subscription, organization int64) {
	if _, shut := s.closed[subscription]; shut {
		return
	}
	l := s.lane(subscription, organization)
	l.more = true
	s.touch(l)
}

// apply has what is known of the subscriptions read again before anything more is sent to them.
func (m changed) apply(s *scheduler) {
	if len(m.subscriptions) == 0 {
		s.all++
		clear(s.closed)
		s.sweep = true
		return
	}
	for _, subscription := range m.subscriptions {
		delete(s.closed, subscription)
		l := s.lane(subscription, unknown)
		l.want++
		l.more, l.shut, l.readAt = true, false, 0
		s.touch(l)
	}
}

// apply puts what has begun in line for the wire.
func (m begun) apply(s *scheduler) {
	s.beginning, s.batch = false, m.attempts
	s.lead = min(2*s.clock.Sub(s.beganAt), longestLead) // twice, because another may be under way when its turn comes
	defer clear(m.attempts)
	if m.err != nil {
		s.ail("begin attempts", m.err)
		s.beginFailed, s.beginAfter = true, s.clock.Add(s.o.PollInterval)
		for i := len(m.attempts) - 1; i >= 0; i-- {
			s.restore(m.attempts[i])
		}
		return
	}
	s.well("begin attempts")
	s.delays.moved(beginning)
	s.beginFailed = false
	for i, a := range m.attempts {
		a.lane.chosen--
		if a.row = m.rows[i]; a.row == 0 {
			s.refuse(a)
		} else {
			s.line(a)
		}
		s.touch(a.lane)
	}
}

// restore puts an attempt that was not begun back to the head of its lane.
func (s *scheduler) restore(a *attempt) {
	a.lane.chosen--
	s.open--
	s.charge(a.lane, toBegin, -1)
	if a.probe {
		s.charge(a.lane, toProbe, -1)
	}
	a.lane.head.unpop(a)
	s.touch(a.lane)
}

// refuse drops an attempt that the store did not let begin. Either its subscription is not what it was believed to be, or
// the delivery has ended: both are read again.
func (s *scheduler) refuse(a *attempt) {
	s.charge(a.lane, toBegin, -1)
	s.end(a)
	a.lane.want++
	a.lane.more, a.lane.refused = true, a.epoch
}

// line puts a begun attempt in line for the wire, or gives it back if it must not be sent any more.
func (s *scheduler) line(a *attempt) {
	l := a.lane
	if s.stopping || s.knows(l) && (l.closed() || a.epoch != l.health.Epoch || l.begun.n >= l.bucket.size()) {
		s.charge(l, toBegin, -1)
		s.giveBack = append(s.giveBack, a)
		return
	}
	l.begun.push(a)
}

// conform gives back what has begun under conditions that have passed.
func (s *scheduler) conform(l *lane) {
	line := l.begun
	l.begun = queue{}
	for a := line.pop(); a != nil; a = line.pop() {
		s.line(a)
	}
}

func (m unreleased) apply(s *scheduler) { s.ail("take attempts back", m.err) }

func (m released) apply(s *scheduler) {
	s.well("take attempts back")
	for _, a := range m.attempts {
		s.end(a)
		a.lane.more = !a.lane.shut
		s.touch(a.lane)
	}
}

// offWire frees the slot of a request.
func (s *scheduler) offWire(l *lane) {
	l.wire--
	s.charge(l, toLaunch, -1)
}

func (m bounced) apply(s *scheduler) {
	s.offWire(m.lane)
	m.lane.bucket.restore(s.clock)
	s.charge(m.lane, toBegin, 1)
	s.line(m.attempt)
	s.touch(m.lane)
}

func (m sent) apply(s *scheduler) {
	s.offWire(m.lane)
	m.lane.countEnd(s.round)
	m.lane.streak++
	if m.failed {
		m.lane.doubts++
	} else {
		m.lane.streak = 0
	}
	s.lighten(m.attempt)
	s.touch(m.lane)
}

// apply has everybody wait: what cannot be recorded is not sent. But an end that is refused again while others were taken,
// or for too long, is refused for its own sake: nobody waits for it then, though it is still tried.
func (m unrecorded) apply(s *scheduler) {
	switch a := m.attempt; {
	case a.refusedAt.IsZero():
		a.refusedAt, a.recorded, a.troubled = s.clock, s.recorded, true
		s.unrecorded++
		s.ail(recordAttempts, m.err)
	case a.troubled && (s.recorded > a.recorded || s.clock.Sub(a.refusedAt) > patience):
		a.troubled = false
		s.unrecorded--
		s.log.Error("the end of an attempt cannot be recorded", "subscription", a.target.ID, "event", a.EventID, "error", m.err)
	}
}

// apply learns what became of the delivery and of the subscription's health.
func (m settled) apply(s *scheduler) {
	a, l := m.attempt, m.lane
	s.end(a)
	s.recorded++
	s.well(recordAttempts)
	s.delays.moved(recording)
	if l.reading {
		l.settledMeanwhile[a.Delivery] = struct{}{}
	}
	if a.settled.State == webhook.Pending && !l.shut {
		l.later(a.settled.DueAt)
	}
	s.learn(l, a.settled)
	s.touch(l)
}

// learn takes over the health that the store has recorded, if it follows from the one that is known by this attempt
// alone. Otherwise something else has changed too, and the target is read again.
func (s *scheduler) learn(l *lane, made webhook.Settled) {
	switch epoch := made.Health.Epoch; {
	case !s.knows(l):
		if l.reading { // perhaps from before this
			l.want++
		}
	case epoch < l.health.Epoch: // old news
	case epoch == l.health.Epoch:
		l.health = made.Health
	case made.Changed && epoch == l.health.Epoch+1:
		l.health = made.Health
		s.conform(l)
	default:
		l.want++
	}
}

func (m cutOff) apply(s *scheduler) {
	if m.onWire {
		s.offWire(m.lane)
	}
	s.end(m.attempt)
}

// apply wakes the lanes of which the store knows more than they do.
func (m swept) apply(s *scheduler) {
	s.sweeping = false
	if m.err != nil {
		s.ail(listPending, m.err)
		s.sweepAfter = s.clock.Add(s.o.PollInterval)
		return
	}
	s.well(listPending)
	s.delays.moved(listing)
	s.dropped = false
	s.sweepAfter = s.clock.Add(sweepInterval(m.took))
	for _, pending := range m.lanes {
		if _, shut := s.closed[pending.Subscription]; shut {
			continue
		}
		l := s.lane(pending.Subscription, pending.Organization)
		// The lane may hold a new delivery and not know the older ones, for example after its subscription was closed. Read the
		// table to find them.
		if (len(l.held) > 0 || l.reading) && s.due(pending.DueAt) {
			l.more = true
		}
		l.later(pending.DueAt)
		s.touch(l)
	}
}

// What the store is asked to do, as logs name it.
const (
	recordAttempts = "record attempts"
	listPending    = "list pending deliveries"
)

// ail notes, once, that the store fails at something.
func (s *scheduler) ail(what string, err error) {
	if !s.ailing[what] && !s.stopping {
		s.ailing[what] = true
		s.log.Error("the store fails; what depends on it waits, and is tried again", "what", what, "error", err)
	}
}

// well notes that it no longer does.
func (s *scheduler) well(what string) {
	if s.ailing[what] {
		delete(s.ailing, what)
		s.log.Info("the store works again", "what", what)
	}
}
