package dispatch

import (
	"maps"
	"slices"
	"time"

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

// wants reports whether the lane needs something that only the store knows.
func (s *scheduler) needsRead(l *lane) bool {
	if l.reading {
		return false
	}
	if !s.isCurrent(l) {
		return l.tableHasMore || l.head.n > 0 || l.begun.n > 0
	}
	if !l.tableHasMore || l.isFailing() && (l.unsettled() > 0 || l.head.n > 0 || !s.isDue(l.health.ProbeAt)) {
		return false
	}
	// A few more at a time would mean to read again, for each, all that are in memory already.
	return l.head.n == 0 || l.head.n <= lowHead && s.jobsToRead(l) >= lowHead/4
}

// queueRead puts a lane that wants to read in line: for its turn, or for room in memory where it has none. A lane that
// holds something itself is looked at again when that ends.
func (s *scheduler) queueRead(l *lane) {
	switch {
	case !s.needsRead(l) || !s.isDue(l.readAfter):
	case !s.isCurrent(l) || s.jobsToRead(l) > 0:
		s.resources[readSlots].wait(l)
	case l.bytes == 0:
		s.resources[memoryBytes].wait(l)
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

// read has the lanes read what they need, in turn, and now and then looks for pending deliveries of which nobody told.
func (s *scheduler) readNext() {
	if s.stopping {
		return
	}
	if !s.listing && (s.listNow || !s.clock.Before(s.listAfter)) {
		s.listNow, s.listing = false, true
		s.worker.reads <- readRequest{}
	}
	for s.resources[readSlots].used < maxReads {
		if l := s.resources[memoryBytes].next(maxWeight); l != nil {
			s.queueRead(l)
		}
		l := s.resources[readSlots].next(1)
		if l == nil {
			return
		}
		if s.needsRead(l) && s.isDue(l.readAfter) {
			s.startRead(l)
		} else {
			s.update(l)
		}
	}
}

// ask has a lane read what it needs.
func (s *scheduler) startRead(l *lane) {
	q := readRequest{lane: l, subscription: l.subscription, target: !s.isCurrent(l), wantVersion: l.wantVersion, globalVersion: s.globalVersion}
	if l.tableHasMore && l.head.n <= lowHead {
		q.limit = min(s.jobsToRead(l), l.readSize)
	}
	if !q.target && q.limit == 0 { // there was room when it got in line
		s.queueRead(l)
		return
	}
	if q.limit > 0 {
		q.inMemory = slices.Collect(maps.Keys(l.attempts))
		l.tableHasMore, l.nextDue = false, 0
	}
	l.reading, l.settledDuringRead = true, map[int64]struct{}{}
	s.charge(l, readSlots, 1)
	s.worker.reads <- q
}

// release gives back to the store what was begun and must not be sent.
func (s *scheduler) releaseUnsent() {
	if len(s.toRelease) > 0 {
		s.worker.release(s.toRelease)
		s.toRelease = nil
	}
}

// sweepInterval is how long to leave the store alone after a look at all pending deliveries, which costs more the more
// of them there are.
func listInterval(took time.Duration) time.Duration { return max(30*time.Second, 100*took) }
