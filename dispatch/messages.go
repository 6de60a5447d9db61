package dispatch

import (
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// What the scheduler is told. The store says fresh and changed; the goroutines that work for the scheduler say the rest.
type (
	// fresh: there are new deliveries.
	jobsCreated struct{ jobs []webhook.Job }
	// changed: these subscriptions, or any where none is named, are not what they were.
	subscriptionsChanged struct{ subscriptions []int64 }
	// begun: the attempts are in the store, each under its row; 0 stands for one that was refused.
	beginReturned struct {
		attempts []*attempt
		rows     []int64
		err      error
	}
	// bounced: it was not sent, because something has changed since that was decided.
	sendRefused struct{ *attempt }
	// sent: its request has ended.
	requestEnded struct{ *attempt }
	// unrecorded: the store refuses to record its end. That is tried again.
	recordFailed struct {
		*attempt
		err error
	}
	// settled: its end is recorded.
	attemptSettled struct{ *attempt }
	// cutOff: it stays in the store as it is.
	attemptCutOff struct {
		*attempt
		onWire bool
	}
	// unreleased: the store refuses to take attempts back. That is tried again.
	releaseFailed struct{ err error }
	// released: they were taken back.
	attemptsReleased struct{ attempts []*attempt }
	// swept: all that is pending, by subscription.
	lanesListed struct {
		lanes    []webhook.Lane
		err      error
		duration time.Duration
	}
)

// apply takes jobs into the heads of their lanes. Where older ones wait in the table, or there is no room, they will be
// read from there.
func (m jobsCreated) apply(s *scheduler) {
	for i := range m.jobs {
		j := m.jobs[i]
		if _, shut := s.parked[j.Subscription]; shut {
			continue
		}
		l := s.laneOf(j.Subscription, j.Organization)
		if l.attempts[j.Delivery] != nil {
			continue
		}
		if l.tableHasMore || !s.admit(l, j, maxNewJobs) {
			l.tableHasMore = true
		}
		s.update(l)
	}
}

// spill notes that a subscription has new deliveries in the table.
func (s *scheduler) markSpilled(subscription, organization int64) {
	if _, shut := s.parked[subscription]; shut {
		return
	}
	l := s.laneOf(subscription, organization)
	l.tableHasMore = true
	s.update(l)
}

// apply has what is known of the subscriptions read again before anything more is sent to them.
func (m subscriptionsChanged) apply(s *scheduler) {
	if len(m.subscriptions) == 0 {
		s.globalVersion++
		clear(s.parked)
		s.listNow = true
		return
	}
	for _, subscription := range m.subscriptions {
		delete(s.parked, subscription)
		l := s.laneOf(subscription, unknownOrg)
		l.wantVersion++
		l.tableHasMore, l.parked, l.readAfter = true, false, 0
		s.update(l)
	}
}

// apply puts what has begun in line for the wire.
func (m beginReturned) apply(s *scheduler) {
	s.beginning, s.spareBatch = false, m.attempts
	s.beginLead = min(2*s.clock.Sub(s.beginStarted), maxBeginLead) // twice, because another may be under way when its turn comes
	defer clear(m.attempts)
	if m.err != nil {
		s.storeFails("begin attempts", m.err)
		s.beginFailed, s.beginAfter = true, s.clock.Add(s.options.PollInterval)
		for i := len(m.attempts) - 1; i >= 0; i-- {
			s.returnToHead(m.attempts[i])
		}
		return
	}
	s.storeWorks("begin attempts")
	s.steps.markDone(stepBegin)
	s.beginFailed = false
	for i, a := range m.attempts {
		a.lane.beginning--
		if a.row = m.rows[i]; a.row == 0 {
			s.dropRefused(a)
		} else {
			s.queueForSending(a)
		}
		s.update(a.lane)
	}
}

// restore puts an attempt that was not begun back to the head of its lane.
func (s *scheduler) returnToHead(a *attempt) {
	a.lane.beginning--
	s.unsettled--
	s.charge(a.lane, beginPlaces, -1)
	if a.probe {
		s.charge(a.lane, probePlaces, -1)
	}
	a.lane.head.pushFront(a)
	s.update(a.lane)
}

// refuse drops an attempt that the store did not let begin. Either its subscription is not what it was believed to be, or
// the delivery has ended: both are read again.
func (s *scheduler) dropRefused(a *attempt) {
	s.charge(a.lane, beginPlaces, -1)
	s.finish(a)
	a.lane.wantVersion++
	a.lane.tableHasMore, a.lane.refusedEpoch = true, a.epoch
}

// line puts a begun attempt in line for the wire, or gives it back if it must not be sent any more.
func (s *scheduler) queueForSending(a *attempt) {
	l := a.lane
	if s.stopping || s.isCurrent(l) && (l.isClosed() || a.epoch != l.health.Epoch || l.begun.n >= l.bucket.capacity()) {
		s.charge(l, beginPlaces, -1)
		s.toRelease = append(s.toRelease, a)
		return
	}
	l.begun.push(a)
}

// conform gives back what has begun under conditions that have passed.
func (s *scheduler) recheckBegun(l *lane) {
	line := l.begun
	l.begun = queue{}
	for a := line.pop(); a != nil; a = line.pop() {
		s.queueForSending(a)
	}
}

func (m releaseFailed) apply(s *scheduler) { s.storeFails("take attempts back", m.err) }

func (m attemptsReleased) apply(s *scheduler) {
	s.storeWorks("take attempts back")
	for _, a := range m.attempts {
		s.finish(a)
		a.lane.tableHasMore = !a.lane.parked
		s.update(a.lane)
	}
}

// offWire frees the slot of a request.
func (s *scheduler) freeSlot(l *lane) {
	l.sending--
	s.charge(l, sendSlots, -1)
}

func (m sendRefused) apply(s *scheduler) {
	s.freeSlot(m.lane)
	m.lane.bucket.returnToken(s.clock)
	s.charge(m.lane, beginPlaces, 1)
	s.queueForSending(m.attempt)
	s.update(m.lane)
}

func (m requestEnded) apply(s *scheduler) {
	s.freeSlot(m.lane)
	m.lane.countEnd(s.beginRound)
	m.lane.failureStreak++
	if m.failed {
		m.lane.unsettledFailures++
	} else {
		m.lane.failureStreak = 0
	}
	s.dropBody(m.attempt)
	s.update(m.lane)
}

// apply has everybody wait: what cannot be recorded is not sent. But an end that is refused again while others were taken,
// or for too long, is refused for its own sake: nobody waits for it then, though it is still tried.
func (m recordFailed) apply(s *scheduler) {
	switch a := m.attempt; {
	case a.recordFailedAt.IsZero():
		a.recordFailedAt, a.recordedBefore, a.blocksSending = s.clock, s.recordedResults, true
		s.blockingResults++
		s.storeFails(opRecord, m.err)
	case a.blocksSending && (s.recordedResults > a.recordedBefore || s.clock.Sub(a.recordFailedAt) > maxRecordWait):
		a.blocksSending = false
		s.blockingResults--
		s.log.Error("the end of an attempt cannot be recorded", "subscription", a.target.ID, "event", a.EventID, "error", m.err)
	}
}

// apply learns what became of the delivery and of the subscription's health.
func (m attemptSettled) apply(s *scheduler) {
	a, l := m.attempt, m.lane
	s.finish(a)
	s.recordedResults++
	s.storeWorks(opRecord)
	s.steps.markDone(stepRecord)
	if l.reading {
		l.settledDuringRead[a.Delivery] = struct{}{}
	}
	if a.settled.State == webhook.Pending && !l.parked {
		l.noteDue(a.settled.DueAt)
	}
	s.updateHealth(l, a.settled)
	s.update(l)
}

// learn takes over the health that the store has recorded, if it follows from the one that is known by this attempt
// alone. Otherwise something else has changed too, and the target is read again.
func (s *scheduler) updateHealth(l *lane, made webhook.Settled) {
	switch epoch := made.Health.Epoch; {
	case !s.isCurrent(l):
		if l.reading { // perhaps from before this
			l.wantVersion++
		}
	case epoch < l.health.Epoch: // old news
	case epoch == l.health.Epoch:
		l.health = made.Health
	case made.Changed && epoch == l.health.Epoch+1:
		l.health = made.Health
		s.recheckBegun(l)
	default:
		l.wantVersion++
	}
}

func (m attemptCutOff) apply(s *scheduler) {
	if m.onWire {
		s.freeSlot(m.lane)
	}
	s.finish(m.attempt)
}

// apply wakes the lanes of which the store knows more than they do.
func (m lanesListed) apply(s *scheduler) {
	s.listing = false
	if m.err != nil {
		s.storeFails(opList, m.err)
		s.listAfter = s.clock.Add(s.options.PollInterval)
		return
	}
	s.storeWorks(opList)
	s.steps.markDone(stepList)
	s.droppedUnread = false
	s.listAfter = s.clock.Add(listInterval(m.duration))
	for _, pending := range m.lanes {
		if _, shut := s.parked[pending.Subscription]; shut {
			continue
		}
		l := s.laneOf(pending.Subscription, pending.Organization)
		// The lane may hold a new delivery and not know the older ones, for example after its subscription was closed. Read the
		// table to find them.
		if (len(l.attempts) > 0 || l.reading) && s.isDue(pending.DueAt) {
			l.tableHasMore = true
		}
		l.noteDue(pending.DueAt)
		s.update(l)
	}
}

// What the store is asked to do, as logs name it.
const (
	opRecord = "record attempts"
	opList   = "list pending deliveries"
)

// ail notes, once, that the store fails at something.
func (s *scheduler) storeFails(what string, err error) {
	if !s.failingOps[what] && !s.stopping {
		s.failingOps[what] = true
		s.log.Error("the store fails; what depends on it waits, and is tried again", "what", what, "error", err)
	}
}

// well notes that it no longer does.
func (s *scheduler) storeWorks(what string) {
	if s.failingOps[what] {
		delete(s.failingOps, what)
		s.log.Info("the store works again", "what", what)
	}
}

// end drops an attempt that was open.
func (s *scheduler) finish(a *attempt) {
	s.dropJob(a)
	s.unsettled--
	if a.failed {
		a.lane.unsettledFailures--
	}
	if a.probe {
		s.charge(a.lane, probePlaces, -1)
	}
	if a.blocksSending {
		s.blockingResults--
	}
}
