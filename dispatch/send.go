package dispatch

import (
	"github.com/keyhook/keyhook/dispatch/sender"
	"github.com/keyhook/keyhook/storage/webhook"
)

// maySend reports whether the lane may send another request. A lane that is ordered, failing, or not known to be healthy, sends
// one at a time. Any other lane sends up to its limit, and fewer when its organization has few slots left. A lane alone
// reaches its limit. A rate limit needs a token. Tests are sent at once, without one.
//
// A lane with as many results set aside as it has slots sends nothing. Otherwise one lane whose results cannot be saved would
// soon fill maxUnsaved, and no other lane could send.
func (s *scheduler) maySend(l *lane) bool {
	known := l.isCurrent()
	// The lane will be failing once its last failures are settled. A request sent before that would be wasted.
	willFail := l.recent.unsettledFailures > 0 && l.recent.failureStreak >= s.options.Policy.FailingAfter
	if len(l.tests.waiting) == 0 && (l.stages[begun] == 0 || !known || willFail || l.bucket.TimeUntil(1, s.clock) > 0) {
		return false
	}
	if l.recent.setAside >= s.options.PerSubscription {
		return false
	}
	requests := l.requests()
	if requests == 0 {
		return true
	}
	if !known || l.gate.Status != webhook.Healthy || l.isOrdered() {
		return false
	}
	used, allowed := l.org.used(sendSlots), s.lanes.allowed(l, sendSlots)
	limit := min(s.options.PerSubscription, allowed)
	if used < s.lanes.resources[sendSlots].Used { // other organizations need slots: leave some to the other lanes of this one
		limit = min(limit, allowed-allowed/4)
	}
	return requests < limit && requests*(allowed-limit) < 2*limit*(allowed-used)
}

// savesTooSlowly reports whether so many results wait to be saved that nothing is sent. The slot of a request is free when its
// response has ended, so slots alone do not bound these results.
func (s *scheduler) savesTooSlowly() bool { return s.lanes.stages[ended] >= maxUnsaved }

// sendNext sends begun attempts, one from each lane in turn, while there are slots. While the store fails or does not keep up,
// nothing is sent, because its result could not be recorded.
func (s *scheduler) sendNext() {
	if s.stopping || s.lanes.blocking > 0 || s.begin.failed || s.savesTooSlowly() {
		return
	}
	for l := s.lanes.resources[sendSlots].Next(1); l != nil; l = s.lanes.resources[sendSlots].Next(1) {
		if s.maySend(l) {
			s.steps.done[stepSend] = true
			l.bucket.Take(s.clock)
			if len(l.tests.waiting) > 0 {
				s.lanes.startTest(l)
			} else {
				a := s.lanes.takeBegun(l)
				s.worker.send(&sendOrder{
					Attempt:  sender.Attempt{Target: l.target, Job: a.Job, Row: a.row, Epoch: a.epoch},
					failures: l.gate.ConsecutiveFailures, changesRead: s.changesRead,
				})
			}
		}
		s.update(l)
	}
}

// takeBack makes an attempt wait again that was not sent, because something had changed since the decision.
func (s *scheduler) takeBack(a *attempt) {
	l := a.lane
	l.bucket.Return(s.clock)
	s.queueOrRelease(a)
	s.update(l)
}

func (s *scheduler) finishRequest(a *attempt, failed bool) {
	l := a.lane
	l.recent.ends.count(s.clock, s.begin.took)
	l.recent.failureStreak++
	if !failed {
		l.recent.failureStreak = 0
	}
	a.failed = failed
	s.lanes.move(a, ended)
	s.update(l)
}

// noteFailedRecord stops all sending, because an attempt whose result cannot be saved must not be sent. One result may
// keep failing while others succeed, or for over a minute. Then the fault is in that result. The worker retries it in
// the background, and it stops blocking the other lanes.
func (s *scheduler) noteFailedRecord(a *attempt, err error) {
	switch {
	case a.recordFailedAt.IsZero():
		a.recordFailedAt, a.savedBefore = s.clock, s.saved
		s.lanes.setBlocksSending(a, true)
		s.storeFails(stepRecord, err)
	case a.blocksSending && (s.saved > a.savedBefore || s.clock.Sub(a.recordFailedAt) > maxRecordWait):
		s.lanes.setBlocksSending(a, false)
		s.log.Error("cannot save the result of an attempt; the server tries again and continues with other deliveries", "subscription", a.lane.target.ID, "event", a.EventID, "error", err)
	}
}

// settle ends an attempt whose result is recorded, and updates the lane with the new state of the delivery and of the health.
func (s *scheduler) settle(a *attempt, now webhook.Settled) {
	l := a.lane
	s.lanes.move(a, settled)
	s.saved++
	s.storeWorks(stepRecord)
	if r := l.table.read; r != nil {
		r.settled[a.Delivery] = struct{}{}
	}
	if now.State == webhook.Pending && !l.parked {
		l.table.noteDue(now.DueAt)
		s.lanes.blockOrder(a, now.DueAt)
	}
	s.updateHealth(l, now)
	s.update(l)
}

// updateHealth takes the health that the store recorded, if this attempt alone explains the step from the known one.
// Otherwise something else has changed too, and the target is read again.
func (s *scheduler) updateHealth(l *lane, now webhook.Settled) {
	switch epoch := now.Health.Epoch; {
	case !l.isCurrent():
		if l.table.read != nil { // the read may be older than this
			l.wantVersion++
		}
	case epoch < l.gate.Epoch: // older than what is known
	case epoch == l.gate.Epoch:
		s.setHealth(l, now.Health)
	case now.Changed && epoch == l.gate.Epoch+1:
		s.setHealth(l, now.Health)
		s.recheckBegun(l)
	default:
		l.wantVersion++
	}
}
