package dispatch

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// maxReads is how many reads of the store run at once.
const maxReads = 3

// readRequest asks for what the scheduler needs to know about a lane. Without a lane, it asks for the list of all
// subscriptions with pending deliveries.
type readRequest struct {
	lane                       *lane
	subscription               int64
	target                     bool // also read the target
	limit                      int  // number of jobs to read
	inMemory                   []int64
	wantVersion, globalVersion uint64 // changes that the result includes
}

// readResult is the store's answer to a readRequest.
type readResult struct {
	readRequest
	target    *preparedTarget
	jobs      []webhook.Job
	usedLimit int // limit of the read of jobs; 0: jobs were not read
	err       error
}

// runRead runs a read. It runs outside the scheduler's goroutine.
func (d *Dispatcher) runRead(ctx context.Context, request readRequest) message {
	if request.lane == nil {
		begin := time.Now()
		lanes, err := d.store.Lanes(ctx)
		return lanesListed{lanes, err, time.Since(begin)}
	}
	result := readResult{readRequest: request}
	if request.target {
		t, err := d.store.Target(ctx, request.subscription)
		if err != nil {
			result.err = err
			return result
		}
		result.target = d.sender.prepare(t)
		if !t.Open {
			return result
		}
		if t.Status == webhook.Failing {
			request.limit = min(request.limit, 1)
		}
	}
	if request.limit > 0 {
		result.usedLimit = request.limit
		result.jobs, result.err = d.store.PendingJobs(ctx, request.subscription, result.usedLimit, request.inMemory)
	}
	return result
}

// apply updates the lane with what was read.
func (m readResult) apply(s *scheduler) {
	l := m.lane
	settled := l.settledDuringRead
	l.reading, l.settledDuringRead = false, nil
	s.charge(l, readSlots, -1)
	if m.limit > 0 && (m.usedLimit == 0 || m.err != nil) {
		l.tableHasMore = true // jobs were not read
	}
	if m.err != nil {
		s.retryRead(m)
		return
	}
	s.storeWorks(opRead)
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
		// The store refused a Begin in the same epoch, so the refusal concerns the delivery itself. Wait before the
		// next try.
		if l.refusedEpoch == l.health.Epoch && !l.isClosed() {
			l.readAfter = s.now + s.options.PollInterval.Milliseconds()
		}
		l.refusedEpoch, l.failureStreak = 0, l.health.ConsecutiveFailures
		s.recheckBegun(l)
	}
	s.addToHead(l, m.jobs, settled)
	if n := len(m.jobs); n > 0 && n == m.usedLimit && s.isDue(m.jobs[n-1].DueAt) {
		l.tableHasMore, l.readSize = true, min(2*l.readSize, maxHead)
	} else if m.usedLimit > 0 {
		l.readSize = minReadSize
	}
	s.update(l)
}

// addToHead adds the jobs of a read to the head. It skips those that are not due, already in memory, or settled during
// the read.
func (s *scheduler) addToHead(l *lane, jobs []webhook.Job, settled map[int64]struct{}) {
	before := l.head.n
	for _, j := range jobs {
		if _, old := settled[j.Delivery]; old || l.attempts[j.Delivery] != nil {
			continue
		}
		if !s.isDue(j.DueAt) {
			l.noteDue(j.DueAt)
			continue
		}
		if !s.admit(l, j, maxHead) {
			l.tableHasMore = true
			l.averageWeight = max(l.averageWeight, weight(j)) // otherwise a job that is too large for now would be read again and again
			if l.head.n == before {
				l.readAfter = s.now + retryWhenFull.Milliseconds()
			}
			return
		}
	}
}

// retryRead reads the lane again later. A lane without work that keeps failing is dropped: its subscription may be
// deleted. The next list of all pending deliveries finds it again if not.
func (s *scheduler) retryRead(m readResult) {
	if s.stopping { // the read ended with the scheduler's context
		return
	}
	l := m.lane
	s.storeFails(opRead, m.err)
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

// clearFailedReads notes that the lane has no failed read to repeat.
func (s *scheduler) clearFailedReads(l *lane) {
	if l.failedReads > 0 {
		s.lanesFailingRead--
	}
	l.failedReads = 0
}

// needsRead reports whether the lane needs something from the store.
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
	// Each read repeats the jobs that are already in memory. So do not read only a few more.
	return l.head.n == 0 || l.head.n <= lowHead && s.jobsToRead(l) >= lowHead/4
}

// queueRead makes a lane that needs a read wait for its turn, or for memory if it has no room. A lane with jobs in
// memory is updated again when they end.
func (s *scheduler) queueRead(l *lane) {
	switch {
	case !s.needsRead(l) || !s.isDue(l.readAfter):
	case !s.isCurrent(l) || s.jobsToRead(l) > 0:
		s.resources[readSlots].wait(l)
	case l.bytes == 0:
		s.resources[memoryBytes].wait(l)
	}
}

// readNext starts the reads of the lanes in turn. From time to time it lists all pending deliveries, to find those that
// nobody reported.
func (s *scheduler) readNext() {
	if s.stopping {
		return
	}
	if !s.list.running && (s.list.now || !s.clock.Before(s.list.after)) {
		s.list.now, s.list.running = false, true
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

// startRead starts the read that the lane needs.
func (s *scheduler) startRead(l *lane) {
	request := readRequest{lane: l, subscription: l.subscription, target: !s.isCurrent(l), wantVersion: l.wantVersion, globalVersion: s.globalVersion}
	if l.tableHasMore && l.head.n <= lowHead {
		request.limit = min(s.jobsToRead(l), l.readSize)
	}
	if !request.target && request.limit == 0 { // there was room when it began to wait
		s.queueRead(l)
		return
	}
	if request.limit > 0 {
		request.inMemory = slices.Collect(maps.Keys(l.attempts))
		l.tableHasMore, l.nextDue = false, 0
	}
	l.reading, l.settledDuringRead = true, map[int64]struct{}{}
	s.charge(l, readSlots, 1)
	s.worker.reads <- request
}

// listInterval returns the pause between two lists of all pending deliveries. A list costs more with more pending
// deliveries.
func listInterval(lastTook time.Duration) time.Duration { return max(30*time.Second, 100*lastTook) }
