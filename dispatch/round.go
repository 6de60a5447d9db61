package dispatch

import (
	"github.com/keyhook/keyhook/storage/webhook"
)

// turnOf is the ring in which the lane waits to begin an attempt.
func (s *scheduler) beginKind(l *lane) int {
	if l.isFailing() {
		return probePlaces
	}
	return beginPlaces
}

// mayBegin reports whether the lane may have another attempt begun. A healthy lane has as many begun as it has free
// slots, and as many more as ended lately, so that the next are ready when slots become free: a Begin takes as long as
// two commits, in which a quick receiver answers a hundred requests. A failing lane has one probe, when its time has come
// and all that came before has been settled. A lane with a rate limit has no more begun than there are tokens for: what
// waits for its pace waits without a record.
//
// The fewer places its organization has left, the fewer one lane gets: lanes that hang together cannot take all of them.
func (s *scheduler) mayBegin(l *lane) bool {
	if l.head.n == 0 || !s.isCurrent(l) || l.isClosed() {
		return false
	}
	if l.isFailing() {
		return s.mayProbe(l) && s.rateAllowsBegin(l)
	}
	ahead := l.beginning + l.begun.n
	if ahead >= max(s.options.PerSubscription-l.sending, 0)+min(l.recentEnds(s.beginRound), maxBegunPerLaneSlot*s.options.PerSubscription) {
		return false
	}
	return (ahead == 0 || 2*ahead < s.allowed(l, beginPlaces)-l.org.used[beginPlaces]) && s.rateAllowsBegin(l)
}

// mayProbe reports whether the time of a failing lane's probe has come.
func (s *scheduler) mayProbe(l *lane) bool {
	return l.unsettled() == 0 && l.sending == 0 && s.isDue(l.health.ProbeAt)
}

// maxAhead is how many may be begun ahead of a slot in all.
func (s *scheduler) maxBegun() int { return maxBegunPerSlot * s.options.Concurrency }

// choose takes attempts from the lanes in turn, one from each, and has them begun together.
func (s *scheduler) beginNext() {
	if s.stopping || s.beginning || s.blockingResults > 0 || s.clock.Before(s.beginAfter) {
		return
	}
	// Probes come first, and take up to half of the slots: a failing endpoint waits for other failing endpoints, and not
	// for healthy ones.
	batch := s.collect(s.spareBatch[:0], probePlaces)
	batch = s.collect(batch, beginPlaces)
	s.spareBatch = nil
	if len(batch) == 0 {
		s.spareBatch, s.beginFailed = batch, false
		return
	}
	s.beginning, s.beginStarted = true, s.clock
	s.beginRound++
	s.worker.batches <- batch
}

// gather appends attempts of the lanes that wait to begin or to probe.
func (s *scheduler) collect(batch []*attempt, kind int) []*attempt {
	for len(batch) < maxBatch && s.resources[beginPlaces].used < s.resources[beginPlaces].capacity {
		l := s.resources[kind].next(1)
		if l == nil {
			break
		}
		if s.beginKind(l) == kind && s.mayBegin(l) {
			batch = append(batch, s.takeFromHead(l))
		}
		s.update(l)
	}
	return batch
}

// begin takes the lane's next job out of its head, to be begun.
func (s *scheduler) takeFromHead(l *lane) *attempt {
	a := l.head.pop()
	a.epoch, a.probe = l.health.Epoch, l.isFailing()
	l.beginning++
	s.unsettled++
	s.charge(l, beginPlaces, 1)
	if a.probe {
		s.charge(l, probePlaces, 1)
	}
	return a
}

// mayLaunch reports whether the lane may have another request on the wire: one where it is failing, or not known to be
// healthy; otherwise up to its limit, and fewer the fewer slots its organization has left. A lane alone reaches its limit.
// Where it has a rate limit, there must be a token; tests, which are made at once, do without.
func (s *scheduler) maySend(l *lane) bool {
	known := s.isCurrent(l)
	if len(l.tests) == 0 && (l.begun.n == 0 || !known || l.willFail(s.options.Policy.FailingAfter) || l.bucket.timeUntil(1, s.clock) > 0) {
		return false
	}
	if l.sending == 0 {
		return true
	}
	if !known || l.health.Status != webhook.Healthy {
		return false
	}
	used, all := l.org.used[sendSlots], s.allowed(l, sendSlots)
	limit := min(s.options.PerSubscription, all)
	if used < s.resources[sendSlots].used { // where others need slots, a lane leaves some to those of its own organization
		limit = min(limit, all-all/4)
	}
	return l.sending < limit && l.sending*(all-limit) < 2*limit*(all-used)
}

// launch puts begun attempts on the wire, one of each lane in turn, while there are slots. While the store fails
// nothing goes: what cannot be recorded is not sent.
func (s *scheduler) sendNext() {
	if s.stopping || s.blockingResults > 0 || s.beginFailed {
		return
	}
	for l := s.resources[sendSlots].next(1); l != nil; l = s.resources[sendSlots].next(1) {
		if s.maySend(l) {
			l.sending++
			s.charge(l, sendSlots, 1)
			s.steps.markDone(stepSend)
			l.bucket.takeToken(s.clock)
			if len(l.tests) > 0 {
				s.grantTest(l)
			} else {
				s.send(l.begun.pop())
			}
		}
		s.update(l)
	}
}

func (s *scheduler) send(a *attempt) {
	s.charge(a.lane, beginPlaces, -1)
	a.target, a.failures, a.changesRead = a.lane.target, a.lane.health.ConsecutiveFailures, s.changesRead
	s.worker.deliver(a)
}

// release gives back to the store what was begun and must not be sent.
func (s *scheduler) releaseUnsent() {
	if len(s.toRelease) > 0 {
		s.worker.release(s.toRelease)
		s.toRelease = nil
	}
}
