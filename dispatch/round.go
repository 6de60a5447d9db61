package dispatch

import "github.com/keyhook/keyhook/storage/webhook"

// beginKind returns the resource for which the lane waits before it begins an attempt.
func (s *scheduler) beginKind(l *lane) int {
	if l.isFailing() {
		return probePlaces
	}
	return beginPlaces
}

// mayBegin reports whether the lane may begin another attempt. A healthy lane begins one for each free slot. It begins
// as many more as requests ended lately, so that the next attempts are ready when slots become free. A Begin takes as
// long as two commits, and in that time a quick receiver answers a hundred requests. A failing lane begins one probe,
// at its probe time, when all earlier attempts are settled. A lane with a rate limit begins only attempts for which
// there are tokens. Others wait without a record.
//
// The fewer places its organization has left, the fewer a lane gets. So lanes that hang together cannot take all
// places.
func (s *scheduler) mayBegin(l *lane) bool {
	if l.head.n == 0 || !s.isCurrent(l) || l.isClosed() {
		return false
	}
	if l.isFailing() {
		return s.mayProbe(l) && s.rateAllowsBegin(l)
	}
	begun := l.beginning + l.begun.n
	if begun >= max(s.options.PerSubscription-l.sending, 0)+min(l.ends.recent(s.begin.round), maxBegunPerLaneSlot*s.options.PerSubscription) {
		return false
	}
	return (begun == 0 || 2*begun < s.allowed(l, beginPlaces)-l.org.used[beginPlaces]) && s.rateAllowsBegin(l)
}

// mayProbe reports whether a failing lane may send its probe now.
func (s *scheduler) mayProbe(l *lane) bool {
	return l.unsettled() == 0 && l.sending == 0 && s.isDue(l.health.ProbeAt)
}

// maxBegun returns how many attempts may be begun and not sent, in all lanes.
func (s *scheduler) maxBegun() int { return maxBegunPerSlot * s.options.Concurrency }

// beginNext takes one attempt from each lane in turn and begins them together.
func (s *scheduler) beginNext() {
	if s.stopping || s.begin.running || s.blockingResults > 0 || s.clock.Before(s.begin.after) {
		return
	}
	// Probes come first, and use at most half of the slots. So a failing endpoint waits for other failing endpoints,
	// not for healthy ones.
	batch := s.collect(s.begin.spareBatch[:0], probePlaces)
	batch = s.collect(batch, beginPlaces)
	s.begin.spareBatch = nil
	if len(batch) == 0 {
		s.begin.spareBatch, s.begin.failed = batch, false
		return
	}
	s.begin.running, s.begin.started = true, s.clock
	s.begin.round++
	s.worker.batches <- batch
}

// collect appends attempts of the lanes that wait for the resource.
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

// takeFromHead removes the lane's next job from its head so that it can begin.
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

// maySend reports whether the lane may send another request. A lane that is failing, or not known to be healthy, sends
// one at a time. Any other lane sends up to its limit, and fewer when its organization has few slots left. A lane alone
// reaches its limit. A rate limit needs a token. Tests are sent at once, without one.
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
	used, allowed := l.org.used[sendSlots], s.allowed(l, sendSlots)
	limit := min(s.options.PerSubscription, allowed)
	if used < s.resources[sendSlots].used { // other organizations need slots: leave some to the other lanes of this one
		limit = min(limit, allowed-allowed/4)
	}
	return l.sending < limit && l.sending*(allowed-limit) < 2*limit*(allowed-used)
}

// sendNext sends begun attempts, one from each lane in turn, while there are slots. While the store fails nothing is
// sent, because its result could not be recorded.
func (s *scheduler) sendNext() {
	if s.stopping || s.blockingResults > 0 || s.begin.failed {
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

// releaseUnsent releases attempts that were begun and must not be sent.
func (s *scheduler) releaseUnsent() {
	if len(s.toRelease) > 0 {
		s.worker.release(s.toRelease)
		s.toRelease = nil
	}
}
