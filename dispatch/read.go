package dispatch

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/keyhook/keyhook/dispatch/sender"
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
	ordered                    bool // the lane is ordered; unknown if target is set
	inMemory                   []int64
	wantVersion, globalVersion uint64 // changes that the result includes
	bodies                     uint64 // changes of bodies that the jobs include
}

type readReturned struct {
	readRequest
	target    *sender.Target
	jobs      []webhook.Job
	usedLimit int // limit of the read of jobs; 0: jobs were not read
	err       error
}

func (d *Dispatcher) runRead(ctx context.Context, request readRequest) message {
	if request.lane == nil {
		begin := time.Now()
		lanes, err := d.store.Lanes(ctx)
		return lanesListed{lanes, err, time.Since(begin)}
	}
	result := readReturned{readRequest: request}
	if request.target {
		t, err := d.store.Target(ctx, request.subscription)
		if err != nil {
			result.err = err
			return result
		}
		result.target = d.sender.Prepare(t)
		if t.Shut() {
			return result
		}
		if request.ordered = t.Ordered; t.Status != webhook.Healthy {
			request.limit = min(request.limit, 1)
		}
	}
	if request.limit > 0 {
		result.usedLimit = request.limit
		if request.ordered {
			result.jobs, result.err = d.store.OrderedJobs(ctx, request.subscription, request.limit)
		} else {
			result.jobs, result.err = d.store.PendingJobs(ctx, request.subscription, request.limit, request.inMemory)
		}
	}
	return result
}

func (s *scheduler) finishRead(m readReturned) {
	l := m.lane
	before, arrived := l.table.settledDuringRead, l.table.arrived
	s.lanes.setReading(l, false)
	if m.bodies != s.changes.bodies { // the jobs may have old bodies
		m.jobs, m.usedLimit = nil, 0
	}
	if m.limit > 0 && (m.usedLimit == 0 || m.err != nil) {
		l.table.hasMore = true // jobs were not read
	}
	if m.err != nil {
		l.table.hasMore = l.table.hasMore || arrived
		s.retryRead(m)
		return
	}
	s.storeWorks(stepRead)
	s.lanes.setFailedReads(l, 0)
	s.reads.droppedUnread = false
	l.table.readAfter = 0
	if m.target != nil {
		s.useTarget(m)
	}
	full := s.isFull(m.jobs, m.usedLimit)
	if l.isOrdered() {
		full = s.addInOrder(l, m, before != nil, arrived)
	} else {
		s.addToHead(l, m.jobs, before)
	}
	if full {
		l.table.hasMore, l.table.readSize = true, min(2*l.table.readSize, maxHead)
	} else if m.usedLimit > 0 {
		l.table.readSize = minReadSize
	}
	s.update(l)
}

// isFull reports whether more due jobs may follow those of a read.
func (s *scheduler) isFull(jobs []webhook.Job, limit int) bool {
	n := len(jobs)
	return n > 0 && n == limit && s.isDue(jobs[n-1].DueAt)
}

func (s *scheduler) useTarget(m readReturned) {
	l := m.lane
	s.lanes.setOrg(l, m.target.Organization)
	l.target, l.version, l.globalVersion = m.target, m.wantVersion, m.globalVersion
	s.setHealth(l, m.target.Health)
	s.lanes.restartOrder(l)
	if l.bucket = l.bucket.WithLimit(m.target.RateLimitPerSecond, s.clock); l.bucket != nil {
		s.lanes.trimHead(l, l.maxQueued())
	}
	// The store refused a Begin in the same epoch, so the refusal concerns the delivery itself. Wait before the next
	// try.
	if l.refusedEpoch == l.gate.Epoch && l.sends {
		l.table.readAfter = s.now + s.options.PollInterval.Milliseconds()
	}
	l.refusedEpoch, l.recent.failureStreak = 0, l.gate.ConsecutiveFailures
	s.recheckBegun(l)
}

// addToHead adds the jobs of a read to the head. It skips those that are not due, already in memory, or settled during
// the read.
func (s *scheduler) addToHead(l *lane, jobs []webhook.Job, settled map[int64]struct{}) {
	before := l.stages[queued]
	for _, j := range jobs {
		if _, old := settled[j.Delivery]; old || l.attempts[j.Delivery] != nil {
			continue
		}
		if !s.isDue(j.DueAt) {
			l.table.noteDue(j.DueAt)
			continue
		}
		if !s.admit(l, j, maxHead) {
			l.table.hasMore = true
			l.memory.averageJob = max(l.memory.averageJob, weight(j)) // otherwise a job that is too large for now would be read again and again
			if l.stages[queued] == before {
				l.table.readAfter = s.now + retryWhenFull.Milliseconds()
			}
			return
		}
	}
}

// retryRead reads the lane again later. A lane without work that keeps failing is dropped: its subscription may be
// deleted. The next list of all pending deliveries finds it again if not.
func (s *scheduler) retryRead(m readReturned) {
	if s.stopping { // the read ended with the scheduler's context
		return
	}
	l := m.lane
	s.storeFails(stepRead, m.err)
	s.lanes.setFailedReads(l, l.table.failedReads+1)
	if l.table.failedReads > 5 && l.stages.unsettled() == 0 && !l.tests.any() && l.bucket.IsFull(s.clock) {
		s.lanes.trimHead(l, 0)
		l.table.hasMore, l.table.nextDue = false, 0
		s.timetable.wakeAt(l, 0)
		s.lanes.setFailedReads(l, 0)
		s.reads.droppedUnread = true
		s.dropLane(l)
		return
	}
	l.table.readAfter = s.now + s.options.PollInterval.Milliseconds()
	s.update(l)
}

// needsRead reports whether the lane needs something from the store.
func (s *scheduler) needsRead(l *lane) bool {
	if l.table.reading {
		return false
	}
	if !s.isCurrent(l) {
		return l.table.hasMore || l.stages[queued] > 0 || l.stages[begun] > 0
	}
	if l.isOrdered() && (l.stages.unsettled() > 0 || l.stages[queued] > 0) {
		return false
	}
	if !l.table.hasMore || l.isFailing() && (l.stages.unsettled() > 0 || l.stages[queued] > 0 || !s.probeIsDue(l)) {
		return false
	}
	// Each read repeats the jobs that are already in memory. So do not read only a few more.
	return l.stages[queued] == 0 || l.stages[queued] <= lowHead && s.jobsToRead(l) >= lowHead/4
}

// queueRead makes a lane that needs a read wait for its turn, or for memory if it has no room. A lane with jobs in
// memory is updated again when they end.
func (s *scheduler) queueRead(l *lane) {
	switch {
	case !s.needsRead(l) || !s.isDue(l.table.readAfter):
	case !s.isCurrent(l) || s.jobsToRead(l) > 0:
		s.lanes.wait(l, readSlots)
	case l.memory.used == 0:
		s.lanes.wait(l, memoryBytes)
	}
}

// readNext starts the reads of the lanes in turn. From time to time it lists all pending deliveries, to find those that
// nobody reported.
func (s *scheduler) readNext() {
	if s.stopping {
		return
	}
	if !s.reads.listing && (s.reads.listNow || !s.clock.Before(s.reads.listAfter)) {
		s.reads.listNow, s.reads.listing = false, true
		s.worker.reads <- readRequest{}
	}
	for s.lanes.resources[readSlots].Used < maxReads {
		if l := s.lanes.resources[memoryBytes].Next(maxWeight); l != nil {
			s.queueRead(l)
		}
		l := s.lanes.resources[readSlots].Next(1)
		if l == nil {
			return
		}
		if s.needsRead(l) && s.isDue(l.table.readAfter) {
			s.startRead(l)
		} else {
			s.update(l)
		}
	}
}

func (s *scheduler) startRead(l *lane) {
	request := readRequest{lane: l, subscription: l.subscription, ordered: l.isOrdered(), target: !s.isCurrent(l), wantVersion: l.wantVersion, globalVersion: s.changes.globalVersion, bodies: s.changes.bodies}
	if l.table.hasMore && l.stages[queued] <= lowHead && !(l.isOrdered() && l.stages.unsettled() > 0) {
		request.limit = min(s.jobsToRead(l), l.table.readSize)
	}
	if !request.target && request.limit == 0 { // there was room when it began to wait
		s.queueRead(l)
		return
	}
	if request.limit > 0 {
		request.inMemory = slices.Collect(maps.Keys(l.attempts))
		l.table.hasMore, l.table.nextDue = false, 0
	}
	s.lanes.setReading(l, true)
	s.worker.reads <- request
}

// addNewJobs adds jobs to the heads of their lanes. If older jobs wait in the table, or there is no room, they are read
// from the table later.
func (s *scheduler) addNewJobs(jobs []webhook.Job) {
	for _, j := range jobs {
		if _, parked := s.parked[j.Subscription]; parked && !j.Begun {
			continue
		}
		l := s.lanes.laneOf(j.Subscription, j.Organization)
		if j.Begun {
			s.openings.giveBack(j.Organization, j.Subscription)
			s.enterBegun(l, j)
			s.update(l)
		} else if l.attempts[j.Delivery] == nil && !l.leaveInTable(j) {
			l.table.hasMore = l.table.hasMore || !s.admit(l, j, maxNewJobs)
			s.update(l)
		}
	}
}

// noteChanges makes the lanes of the subscriptions read them again before they send anything more. No subscription means
// all.
func (s *scheduler) noteChanges(subscriptions []int64) {
	if len(subscriptions) == 0 {
		s.changes.globalVersion++
		clear(s.parked)
		s.reads.listNow = true
		return
	}
	for _, subscription := range subscriptions {
		delete(s.parked, subscription)
		l := s.lanes.laneOf(subscription, unknownOrg)
		l.wantVersion++
		l.table.hasMore, l.parked, l.table.readAfter = true, false, 0
		s.update(l)
	}
}

// dropBodies drops the old bodies of events. Attempts that have not begun leave memory. Those that have begun are released before
// they are sent. All of them are read again.
func (s *scheduler) dropBodies(events []int64) {
	s.changes.bodies++
	changed := make(map[int64]struct{}, len(events))
	for _, event := range events {
		changed[event] = struct{}{}
	}
	for _, l := range s.lanes.of {
		found := false
		for _, a := range l.attempts {
			if _, ok := changed[a.Event]; !ok {
				continue
			}
			if found = true; a.stage != queued {
				s.lanes.dropBody(a)
			}
		}
		if found {
			s.lanes.trimHead(l, 0)
			s.recheckBegun(l)
			s.update(l)
		}
	}
}

// lanesListed is the list of all subscriptions with pending deliveries.
type lanesListed struct {
	lanes    []webhook.Lane
	err      error
	duration time.Duration
}

// wakesAt reports whether a parked lane with this time of its probe may get the probe now; 0 is never. Its subscription is
// read to find out. A time that is too far away was set before the clock was set back.
func (s *scheduler) wakesAt(probeAt int64) bool {
	return probeAt != 0 && (probeAt <= s.now || probeAt > s.now+s.options.Policy.ProbeDisabled.Milliseconds())
}

// finishList notes which lanes have more deliveries in the table than in memory.
func (s *scheduler) finishList(m lanesListed) {
	s.reads.listing = false
	if m.err != nil {
		s.storeFails(stepList, m.err)
		s.reads.listAfter = s.clock.Add(s.options.PollInterval)
		return
	}
	s.storeWorks(stepList)
	s.reads.droppedUnread = false
	s.reads.listAfter = s.clock.Add(max(30*time.Second, 100*m.duration)) // a list costs more with more pending deliveries
	for _, pending := range m.lanes {
		if probeAt, parked := s.parked[pending.Subscription]; parked && !s.wakesAt(probeAt) {
			continue
		}
		delete(s.parked, pending.Subscription)
		l := s.lanes.laneOf(pending.Subscription, pending.Organization)
		// The lane may know a new delivery but not the older ones, for example after its subscription was closed.
		// Read the table to find them.
		if (len(l.attempts) > 0 || l.table.reading) && s.isDue(pending.DueAt) {
			l.table.hasMore = true
		}
		l.table.noteDue(pending.DueAt)
		s.update(l)
	}
}
