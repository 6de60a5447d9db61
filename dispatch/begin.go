package dispatch

import (
	"slices"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// beginKind returns the resource for which the lane waits before it begins an attempt.
func (s *scheduler) beginKind(l *lane) int {
	if l.isFailing() {
		return probePlaces
	}
	return beginPlaces
}

// mayBegin reports whether the lane may begin another attempt. A healthy lane begins as many as beginLimit says. A
// failing lane begins one probe, at its probe time, when all earlier attempts are settled. A lane with a rate limit begins
// only attempts for which there are tokens. Others wait without a record.
//
// The fewer places its organization has left, the fewer a lane gets. So lanes that hang together cannot take all places.
func (s *scheduler) mayBegin(l *lane) bool {
	switch begun := l.stages[beginning] + l.stages[begun]; {
	case l.stages[queued] == 0 || !l.isCurrent() || !l.sends || !s.rateAllowsBegin(l):
		return false
	case l.isFailing():
		return s.mayProbe(l)
	case l.isOrdered():
		return l.isQuiet()
	default:
		return begun < s.beginLimit(l) && (begun == 0 || 2*begun < s.lanes.allowed(l, beginPlaces)-l.org.used(beginPlaces))
	}
}

// beginLimit returns how many attempts of a healthy lane may be begun and not sent: one for each free slot, and twice as many as
// requests ended lately. So the next attempts are ready when slots become free. A Begin takes as long as two commits, and in that
// time a quick receiver answers a hundred requests.
//
// Twice, because a lane whose head is not empty must begin more than arrives. Otherwise its head never becomes empty again, and
// each new delivery waits for a Begin of its own instead of beginning in the transaction that creates it. On a disk with an fsync
// of 5 ms and 64 publishers, that is the difference between 20 ms and 60 to 130 ms from publishing to receipt.
func (s *scheduler) beginLimit(l *lane) int {
	free := max(s.options.PerSubscription-l.requests(), 0)
	return free + min(2*l.recent.ends.recent(s.clock, s.begin.took), maxBegunPerLaneSlot*s.options.PerSubscription)
}

func (s *scheduler) mayProbe(l *lane) bool { return l.isQuiet() && s.probeIsDue(l) }

// maxBeginLead is the longest time between the Begin of an attempt and its token.
const maxBeginLead = 500 * time.Millisecond

// rateAllowsBegin reports whether the rate limit allows the lane to begin another attempt. There must be a token for it
// by the time when it can be sent. Attempts that have begun need tokens too.
func (s *scheduler) rateAllowsBegin(l *lane) bool {
	return l.bucket.TimeUntil(l.stages[beginning]+l.stages[begun]+1, s.clock) <= s.begin.lead()
}

func (s *scheduler) beginNext() {
	if s.stopping || s.begin.running || s.lanes.blocking > 0 || s.clock.Before(s.begin.after) {
		return
	}
	// Probes come first, and use at most half of the slots. So a failing endpoint waits for other failing endpoints, not for healthy ones.
	batch := s.collect(s.begin.spareBatch[:0], probePlaces)
	batch = s.collect(batch, beginPlaces)
	s.begin.spareBatch = nil
	if len(batch) == 0 {
		s.begin.spareBatch, s.begin.failed = batch, false
		return
	}
	s.begin.running, s.begin.started = true, s.clock
	s.worker.begin(batch)
}

func (s *scheduler) collect(batch []webhook.Start, kind int) []webhook.Start {
	for len(batch) < maxBatch {
		s.lanes.chargeTaken()
		l := s.lanes.resources[kind].Next(1)
		if l == nil {
			break
		}
		if s.beginKind(l) == kind && s.mayBegin(l) {
			a := s.lanes.takeFromHead(l)
			batch = append(batch, webhook.Start{
				Delivery: a.Delivery, Subscription: a.Subscription, Epoch: a.epoch, Number: a.Number(), Trigger: a.Trigger(),
			})
		}
		s.update(l)
	}
	return batch
}

// lead returns how early attempts of lanes with a rate limit are begun: by two Begins, because another one may run when their turn comes.
func (b *beginState) lead() time.Duration { return min(2*b.took, maxBeginLead) }

// finishBegin takes the rows of the attempts. A row of 0 means that the store refused the attempt.
func (s *scheduler) finishBegin(starts []webhook.Start, rows []int64, err error) {
	s.begin.running, s.begin.spareBatch = false, starts
	s.begin.took = s.clock.Sub(s.begin.started)
	if s.begin.failed = err != nil; s.begin.failed {
		s.storeFails(stepBegin, err)
		s.begin.after = s.clock.Add(s.options.PollInterval)
		for _, start := range slices.Backward(starts) {
			a := s.lanes.find(attemptKey{start.Subscription, start.Delivery})
			s.lanes.returnToHead(a)
			s.update(a.lane)
		}
		return
	}
	s.storeWorks(stepBegin)
	for i, start := range starts {
		a := s.lanes.find(attemptKey{start.Subscription, start.Delivery})
		if a.row = rows[i]; a.row == 0 {
			// The subscription has changed, or the delivery has ended, perhaps with all that waits in the head. All of it is read again.
			s.lanes.move(a, gone)
			s.lanes.trimHead(a.lane, 0)
			a.lane.wantVersion++
			a.lane.table.hasMore, a.lane.refusedEpoch = true, a.epoch
		} else {
			s.queueOrRelease(a)
		}
		s.update(a.lane)
	}
}

// queueOrRelease queues an attempt with a record for sending, or releases it if it must not be sent any more.
func (s *scheduler) queueOrRelease(a *attempt) {
	if s.mustRelease(a, a.lane.stages[begun]) {
		s.lanes.release(a)
	} else {
		s.lanes.queueForSending(a)
	}
}

// mustRelease reports whether an attempt must not wait for a slot behind so many others of its lane.
func (s *scheduler) mustRelease(a *attempt, others int) bool {
	l := a.lane
	return s.stopping || a.weight == 0 || l.isCurrent() && (!l.sends || a.epoch != l.gate.Epoch || others >= l.bucket.Capacity())
}

// enterBegun adds a job whose first attempt has begun in the transaction that created it. If there is no room for it, it is released.
func (s *scheduler) enterBegun(l *lane, j webhook.Job) {
	a := &attempt{Job: j, lane: l, epoch: j.Epoch, row: webhook.AttemptRow(j.Delivery, 1)}
	l.attempts[j.Delivery] = a
	if j.Body == nil || !s.lanes.hasRoom(l, weight(j)) {
		a.Body = nil
		s.lanes.release(a)
		return
	}
	s.lanes.keepBody(a)
	s.queueOrRelease(a)
}

// recheckBegun releases begun attempts that the current state of the subscription forbids.
func (s *scheduler) recheckBegun(l *lane) {
	rest, kept := l.begun, 0
	l.begun = queue{}
	for a := rest.pop(); a != nil; a = rest.pop() {
		if s.mustRelease(a, kept) {
			s.lanes.release(a)
		} else {
			l.begun.push(a)
			kept++
		}
	}
}

func (s *scheduler) releaseUnsent() {
	if len(s.lanes.toRelease) == 0 {
		return
	}
	attempts, rows := make([]attemptKey, len(s.lanes.toRelease)), make([]int64, len(s.lanes.toRelease))
	for i, a := range s.lanes.toRelease {
		attempts[i], rows[i] = attemptKey{a.Subscription, a.Delivery}, a.row
	}
	s.lanes.toRelease = nil
	s.worker.release(attempts, rows)
}

func (s *scheduler) finishRelease(attempts []attemptKey) {
	s.storeWorks(stepRelease)
	for _, key := range attempts {
		a := s.lanes.find(key)
		l := a.lane
		s.lanes.move(a, gone)
		s.lanes.restartOrder(l)
		l.table.hasMore = !l.parked
		s.update(l)
	}
}

// minEndPeriod is the length of the shortest period of endCounter.
const minEndPeriod = 16 * time.Millisecond

// endCounter counts the requests of a lane that ended in this period and in the one before. A period is at least as long as the last
// Begin took. So two periods tell how many slots become free during a Begin, on a slow disk too.
type endCounter struct {
	began         time.Time // of this period
	current, last int
}

// recent returns how many requests ended in this period and the last one. About as many slots become free soon. A lane that hangs has none.
func (c *endCounter) recent(now time.Time, begin time.Duration) int {
	c.advance(now, begin)
	return c.current + c.last
}

func (c *endCounter) count(now time.Time, begin time.Duration) {
	c.advance(now, begin)
	c.current++
}

func (c *endCounter) advance(now time.Time, begin time.Duration) {
	length := max(begin, minEndPeriod)
	switch past := now.Sub(c.began); {
	case past >= 2*length: // nothing was counted for a whole period
		c.last = 0
	case past >= length:
		c.last = c.current
	default:
		return
	}
	c.began, c.current = now, 0
}
