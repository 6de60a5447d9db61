package dispatch

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// readers is how many reads of the store are under way at once.
const maxReads = 3

// ask is what the scheduler wants to know of one lane; without a lane, of all.
type readRequest struct {
	lane                       *lane
	subscription               int64
	target                     bool // how and where to send
	limit                      int  // how many jobs to read
	inMemory                   []int64
	wantVersion, globalVersion uint64 // changes that the answer takes into account
}

// answer is what the store said.
type readResult struct {
	readRequest
	target    *preparedTarget
	jobs      []webhook.Job
	usedLimit int // of jobs; 0: they were not read
	err       error
}

// find reads what was asked for. It runs outside the scheduler's goroutine.
func (d *Dispatcher) runRead(ctx context.Context, q readRequest) message {
	if q.lane == nil {
		begin := time.Now()
		lanes, err := d.store.Lanes(ctx)
		return lanesListed{lanes, err, time.Since(begin)}
	}
	a := readResult{readRequest: q}
	if q.target {
		t, err := d.store.Target(ctx, q.subscription)
		if err != nil {
			a.err = err
			return a
		}
		a.target = d.sender.prepare(t)
		if !t.Open {
			return a
		}
		if t.Status == webhook.Failing {
			q.limit = min(q.limit, 1)
		}
	}
	if q.limit > 0 {
		a.usedLimit = q.limit
		a.jobs, a.err = d.store.PendingJobs(ctx, q.subscription, a.usedLimit, q.inMemory)
	}
	return a
}

// apply takes in what was read.
func (m readResult) apply(s *scheduler) {
	l := m.lane
	meanwhile := l.settledDuringRead
	l.reading, l.settledDuringRead = false, nil
	s.charge(l, readSlots, -1)
	if m.limit > 0 && (m.usedLimit == 0 || m.err != nil) {
		l.tableHasMore = true // not read after all
	}
	if m.err != nil {
		s.retryRead(m)
		return
	}
	s.storeWorks("read deliveries")
	s.steps.markDone(stepRead)
	s.clearFailedReads(l)
	s.droppedUnread = false
	l.readAfter = 0
	if m.target != nil {
		s.setOrg(l, m.target.Organization)
		l.target, l.health, l.haveVersion, l.haveGlobalVersion = m.target, m.target.Health, m.wantVersion, m.globalVersion
		if l.bucket = l.bucket.withLimit(m.target.RateLimitPerSecond, s.clock); l.bucket != nil {
			s.trimHead(l, l.maxQueued())
		}
		// A refusal under the very conditions that hold now was the delivery's own: leave it alone for a while.
		if l.refusedEpoch == l.health.Epoch && !l.isClosed() {
			l.readAfter = s.now + s.options.PollInterval.Milliseconds()
		}
		l.refusedEpoch, l.failureStreak = 0, l.health.ConsecutiveFailures
		s.recheckBegun(l)
	}
	s.addToHead(l, m.jobs, meanwhile)
	if n := len(m.jobs); n > 0 && n == m.usedLimit && s.isDue(m.jobs[n-1].DueAt) {
		l.tableHasMore, l.readSize = true, min(2*l.readSize, maxHead)
	} else if m.usedLimit > 0 {
		l.readSize = minReadSize
	}
	s.update(l)
}

// take takes what was read into the head: what is due, is not in memory already, and was not settled meanwhile.
func (s *scheduler) addToHead(l *lane, jobs []webhook.Job, meanwhile map[int64]struct{}) {
	before := l.head.n
	for _, j := range jobs {
		if _, old := meanwhile[j.Delivery]; old || l.attempts[j.Delivery] != nil {
			continue
		}
		if !s.isDue(j.DueAt) {
			l.noteDue(j.DueAt)
			continue
		}
		if !s.admit(l, j, maxHead) {
			l.tableHasMore = true
			l.averageWeight = max(l.averageWeight, weight(j)) // or what is too large for now would be read again and again
			if l.head.n == before {
				l.readAfter = s.now + retryWhenFull.Milliseconds()
			}
			return
		}
	}
}

// failRead has the lane read again later. A lane that cannot be read, and has nothing under way, is left to the next
// look at all pending deliveries: its subscription may be gone.
func (s *scheduler) retryRead(m readResult) {
	if s.stopping { // the read ended with the scheduler's context
		return
	}
	l := m.lane
	s.storeFails("read deliveries", m.err)
	if l.failedReads == 0 {
		s.lanesFailingRead++
	}
	if l.failedReads++; l.failedReads > 5 && l.unsettled() == 0 && l.sending == 0 && len(l.tests) == 0 && l.bucket.isFull(s.clock) {
		s.trimHead(l, 0)
		l.tableHasMore, l.nextDue = false, 0
		s.timetable.wakeAt(l, 0)
		s.clearFailedReads(l)
		s.droppedUnread = true
		s.dropLane(l)
		return
	}
	l.readAfter = s.now + s.options.PollInterval.Milliseconds()
	s.update(l)
}

// readAgain notes that no failed read of the lane is to be tried again.
func (s *scheduler) clearFailedReads(l *lane) {
	if l.failedReads > 0 {
		s.lanesFailingRead--
	}
	l.failedReads = 0
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

// sweepInterval is how long to leave the store alone after a look at all pending deliveries, which costs more the more
// of them there are.
func listInterval(took time.Duration) time.Duration { return max(30*time.Second, 100*took) }
