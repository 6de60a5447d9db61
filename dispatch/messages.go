package dispatch

import (
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// Messages to the scheduler. The store sends jobsCreated and subscriptionsChanged. The scheduler's worker sends the
// others.
type (
	// jobsCreated: there are new deliveries.
	jobsCreated struct{ jobs []webhook.Job }
	// subscriptionsChanged: these subscriptions have changed, or any if none is named.
	subscriptionsChanged struct{ subscriptions []int64 }
	// beginReturned: the attempts are recorded under these rows. A row of 0 means that the store refused the attempt.
	beginReturned struct {
		attempts []*attempt
		rows     []int64
		err      error
	}
	// sendRefused: the attempt was not sent, because something had changed since the decision.
	sendRefused struct{ *attempt }
	// requestEnded: the request of the attempt has ended.
	requestEnded struct{ *attempt }
	// recordFailed: the store failed to save the result. The worker tries again.
	recordFailed struct {
		*attempt
		err error
	}
	// attemptSettled: the result is saved.
	attemptSettled struct{ *attempt }
	// attemptInterrupted: the process stops; the record of the attempt stays as it is.
	attemptInterrupted struct {
		*attempt
		wasSending bool
	}
	// releaseFailed: the store failed to release attempts. The worker tries again.
	releaseFailed struct{ err error }
	// attemptsReleased: the attempts have no record any more.
	attemptsReleased struct{ attempts []*attempt }
	// lanesListed: the list of all subscriptions with pending deliveries.
	lanesListed struct {
		lanes    []webhook.Lane
		err      error
		duration time.Duration
	}
)

// apply adds jobs to the heads of their lanes. If older jobs wait in the table, or there is no room, they are read from
// the table later.
func (m jobsCreated) apply(s *scheduler) {
	for i := range m.jobs {
		j := m.jobs[i]
		if _, parked := s.parked[j.Subscription]; parked {
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

// markSpilled notes that a subscription has new deliveries in the table only.
func (s *scheduler) markSpilled(subscription, organization int64) {
	if _, parked := s.parked[subscription]; parked {
		return
	}
	l := s.laneOf(subscription, organization)
	l.tableHasMore = true
	s.update(l)
}

// apply makes the lanes read their subscriptions again before they send anything more.
func (m subscriptionsChanged) apply(s *scheduler) {
	if len(m.subscriptions) == 0 {
		s.globalVersion++
		clear(s.parked)
		s.list.now = true
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

// apply queues the begun attempts for sending.
func (m beginReturned) apply(s *scheduler) {
	s.begin.running, s.begin.spareBatch = false, m.attempts
	s.begin.lead = min(2*s.clock.Sub(s.begin.started), maxBeginLead) // twice, because another Begin may run when its turn comes
	defer clear(m.attempts)
	if m.err != nil {
		s.storeFails(opBegin, m.err)
		s.begin.failed, s.begin.after = true, s.clock.Add(s.options.PollInterval)
		for i := len(m.attempts) - 1; i >= 0; i-- {
			s.returnToHead(m.attempts[i])
		}
		return
	}
	s.storeWorks(opBegin)
	s.steps.markDone(stepBegin)
	s.begin.failed = false
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

// returnToHead returns an attempt that was not begun to the head of its lane.
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

// dropRefused drops an attempt that the store refused to begin. Either the subscription has changed or the delivery has
// ended. Both are read again.
func (s *scheduler) dropRefused(a *attempt) {
	s.charge(a.lane, beginPlaces, -1)
	s.finish(a)
	a.lane.wantVersion++
	a.lane.tableHasMore, a.lane.refusedEpoch = true, a.epoch
}

// queueForSending queues a begun attempt for sending, or releases it if it must not be sent any more.
func (s *scheduler) queueForSending(a *attempt) {
	l := a.lane
	if s.stopping || s.isCurrent(l) && (l.isClosed() || a.epoch != l.health.Epoch || l.begun.n >= l.bucket.capacity()) {
		s.charge(l, beginPlaces, -1)
		s.toRelease = append(s.toRelease, a)
		return
	}
	l.begun.push(a)
}

// recheckBegun releases begun attempts that the current state of the subscription forbids.
func (s *scheduler) recheckBegun(l *lane) {
	begun := l.begun
	l.begun = queue{}
	for a := begun.pop(); a != nil; a = begun.pop() {
		s.queueForSending(a)
	}
}

func (m releaseFailed) apply(s *scheduler) { s.storeFails(opRelease, m.err) }

func (m attemptsReleased) apply(s *scheduler) {
	s.storeWorks(opRelease)
	for _, a := range m.attempts {
		s.finish(a)
		a.lane.tableHasMore = !a.lane.parked
		s.update(a.lane)
	}
}

// freeSlot returns the slot of a request.
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
	m.lane.ends.count(s.begin.round)
	m.lane.failureStreak++
	if m.failed {
		m.lane.unsettledFailures++
	} else {
		m.lane.failureStreak = 0
	}
	s.dropBody(m.attempt)
	s.update(m.lane)
}

// apply stops all sending, because an attempt whose result cannot be saved must not be sent. One result may keep
// failing while others succeed, or for over a minute. Then the fault is in that result. The worker retries it in the
// background, and it stops blocking the other lanes.
func (m recordFailed) apply(s *scheduler) {
	switch a := m.attempt; {
	case a.recordFailedAt.IsZero():
		a.recordFailedAt, a.recordedBefore, a.blocksSending = s.clock, s.recordedResults, true
		s.blockingResults++
		s.storeFails(opRecord, m.err)
	case a.blocksSending && (s.recordedResults > a.recordedBefore || s.clock.Sub(a.recordFailedAt) > maxRecordWait):
		a.blocksSending = false
		s.blockingResults--
		s.log.Error("cannot save the result of an attempt; the server tries again and continues with other deliveries", "subscription", a.target.ID, "event", a.EventID, "error", m.err)
	}
}

// apply updates the lane with the new state of the delivery and of the health.
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

// updateHealth takes the health that the store recorded, if this attempt alone explains the step from the known one.
// Otherwise something else has changed too, and the target is read again.
func (s *scheduler) updateHealth(l *lane, settled webhook.Settled) {
	switch epoch := settled.Health.Epoch; {
	case !s.isCurrent(l):
		if l.reading { // the read may be older than this
			l.wantVersion++
		}
	case epoch < l.health.Epoch: // older than what is known
	case epoch == l.health.Epoch:
		l.health = settled.Health
	case settled.Changed && epoch == l.health.Epoch+1:
		l.health = settled.Health
		s.recheckBegun(l)
	default:
		l.wantVersion++
	}
}

func (m attemptInterrupted) apply(s *scheduler) {
	if m.wasSending {
		s.freeSlot(m.lane)
	}
	s.finish(m.attempt)
}

// apply notes which lanes have more deliveries in the table than in memory.
func (m lanesListed) apply(s *scheduler) {
	s.list.running = false
	if m.err != nil {
		s.storeFails(opList, m.err)
		s.list.after = s.clock.Add(s.options.PollInterval)
		return
	}
	s.storeWorks(opList)
	s.steps.markDone(stepList)
	s.droppedUnread = false
	s.list.after = s.clock.Add(listInterval(m.duration))
	for _, pending := range m.lanes {
		if _, parked := s.parked[pending.Subscription]; parked {
			continue
		}
		l := s.laneOf(pending.Subscription, pending.Organization)
		// The lane may know a new delivery but not the older ones, for example after its subscription was closed.
		// Read the table to find them.
		if (len(l.attempts) > 0 || l.reading) && s.isDue(pending.DueAt) {
			l.tableHasMore = true
		}
		l.noteDue(pending.DueAt)
		s.update(l)
	}
}

// Names of database operations in log lines.
const (
	opRead    = "read deliveries"
	opBegin   = "begin attempts"
	opRelease = "release attempts"
	opRecord  = "record attempts"
	opList    = "list pending deliveries"
)

// storeFails logs the first failure of an operation of the store.
func (s *scheduler) storeFails(operation string, err error) {
	if !s.failingOps[operation] && !s.stopping {
		s.failingOps[operation] = true
		s.log.Error("a database operation fails, so some deliveries wait; the server tries again", "what", operation, "error", err)
	}
}

// storeWorks logs that a failing operation works again.
func (s *scheduler) storeWorks(operation string) {
	if s.failingOps[operation] {
		delete(s.failingOps, operation)
		s.log.Info("the database operation works again", "what", operation)
	}
}

// finish forgets an attempt that is settled, released or refused.
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
