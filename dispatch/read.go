package dispatch

import (
	"maps"
	"slices"
	"time"

	"github.com/keyhook/keyhook/dispatch/sender"
	"github.com/keyhook/keyhook/storage/webhook"
)

// maxReads is how many lanes are read at once.
const maxReads = 3

// laneRead is what the scheduler needs to know about a lane.
type laneRead struct {
	lane         *lane
	subscription int64
	now, latest  int64 // see isDue
	withTarget   bool  // also read the target
	limit        int   // number of jobs to read
	ordered      bool  // the lane is ordered; unknown until the target is read
	inMemory     []int64
	wantVersion  uint64 // changes that the result includes

	target    *sender.Target
	jobs      []webhook.Job
	usedLimit int // limit of the read of jobs; 0: jobs were not read

	// The scheduler notes here what happens during the read.
	settled map[int64]struct{} // deliveries that were settled
	arrived bool               // new deliveries of an ordered lane came
	stale   bool               // the jobs must be read again: they may have old bodies, or not be first
}

func (w *worker) read(r *laneRead) {
	w.running.Go(func() {
		err := w.runRead(r)
		w.post(func(s *scheduler) { s.finishRead(r, err) })
	})
}

func (w *worker) runRead(r *laneRead) (err error) {
	if r.withTarget {
		t, err := w.store.Target(w.readCtx, r.subscription)
		if err != nil {
			return err
		}
		r.target = w.sender.Prepare(t)
		if r.ordered = t.Ordered; t.Shut() || t.Status != webhook.Healthy { // a probe is read when it is due
			return nil
		}
	}
	if r.usedLimit = r.limit; r.limit == 0 {
		return nil
	}
	if r.ordered {
		r.jobs, err = w.store.OrderedJobs(w.readCtx, r.subscription, r.limit)
	} else {
		r.jobs, err = w.store.PendingJobs(w.readCtx, r.subscription, 0, r.limit, r.inMemory)
	}
	later := slices.IndexFunc(r.jobs, func(j webhook.Job) bool { return j.DueAt > r.now })
	if n := len(r.jobs); err == nil && !r.ordered && later >= 0 && n == r.limit { // those may hide impossible ones for ever; see isDue
		var late []webhook.Job
		late, err = w.store.PendingJobs(w.readCtx, r.subscription, max(r.latest, r.jobs[n-1].DueAt), n-later, r.inMemory)
		r.jobs = slices.Insert(r.jobs[:n-len(late)], later, late...)
	}
	return err
}

func (w *worker) list() {
	w.running.Go(func() {
		begin := time.Now()
		lanes, err := w.store.Lanes(w.readCtx)
		duration := time.Since(begin)
		w.post(func(s *scheduler) { s.finishList(lanes, err, duration) })
	})
}

func (s *scheduler) finishRead(m *laneRead, err error) {
	l := m.lane
	s.lanes.setRead(l, nil)
	if m.stale {
		m.jobs, m.usedLimit = nil, 0
	}
	if m.limit > 0 && (m.usedLimit == 0 || err != nil) {
		l.table.hasMore = true // jobs were not read
	}
	if err != nil {
		l.table.hasMore = l.table.hasMore || m.arrived
		s.retryRead(l, err)
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
		full = s.addInOrder(l, m)
	} else {
		s.addToHead(l, m.jobs, m.settled)
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

func (s *scheduler) useTarget(m *laneRead) {
	l := m.lane
	s.lanes.setOrg(l, m.target.Organization)
	l.target, l.version = m.target, m.wantVersion
	s.setHealth(l, m.target.Health)
	s.lanes.restartOrder(l)
	if l.bucket = l.bucket.WithLimit(m.target.RateLimitPerSecond, s.clock); l.bucket != nil {
		s.lanes.trimHead(l, l.maxQueued())
	}
	// The store refused a Begin in the same epoch, so the refusal concerns the delivery itself. Wait before the next try.
	if l.refusedEpoch == l.gate.Epoch && l.sends {
		l.table.readAfter = s.now + s.options.PollInterval.Milliseconds()
	}
	l.refusedEpoch, l.recent.failureStreak = 0, l.gate.ConsecutiveFailures
	s.recheckBegun(l)
}

// addToHead adds the jobs of a read to the head. It skips those that are not due, already in memory, or settled during the read.
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
func (s *scheduler) retryRead(l *lane, err error) {
	if s.stopping { // the read ended with the scheduler's context
		return
	}
	s.storeFails(stepRead, err)
	s.lanes.setFailedReads(l, l.table.failedReads+1)
	if l.table.failedReads > 5 && l.stages.unsettled() == 0 && !l.tests.any() && l.bucket.IsFull(s.clock) {
		s.lanes.trimHead(l, 0)
		l.table.hasMore, l.table.nextDue = false, 0
		s.timetable.set(l, 0)
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
	switch {
	case l.table.read != nil:
		return false
	case !l.isCurrent():
		return l.table.hasMore || l.stages[queued] > 0 || l.stages[begun] > 0
	case !l.table.hasMore, (l.isOrdered() || l.isFailing()) && len(l.attempts) > 0, l.isFailing() && !s.probeIsDue(l):
		return false
	}
	// Each read repeats the jobs that are already in memory. So do not read only a few more.
	return l.stages[queued] == 0 || l.stages[queued] <= lowHead && s.jobsToRead(l) >= lowHead/4
}

// queueRead makes a lane that needs a read wait for its turn, or for memory. A lane with jobs in memory is updated when they end.
func (s *scheduler) queueRead(l *lane) {
	switch {
	case !s.needsRead(l) || !s.isDue(l.table.readAfter):
	case !l.isCurrent() || s.jobsToRead(l) > 0:
		s.lanes.wait(l, readSlots)
	case l.memory.used == 0:
		s.lanes.wait(l, memoryBytes)
	}
}

// readNext starts the reads of the lanes in turn. From time to time it lists all pending deliveries, to find those that nobody reported.
func (s *scheduler) readNext() {
	if s.stopping {
		return
	}
	if !s.reads.listing && (s.reads.listNow || !s.clock.Before(s.reads.listAfter)) {
		s.reads.listNow, s.reads.listing = false, true
		s.worker.list()
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
	request := &laneRead{
		lane: l, subscription: l.subscription, ordered: l.isOrdered(), withTarget: !l.isCurrent(), wantVersion: l.wantVersion,
		now: s.now, latest: s.latestDue(), settled: map[int64]struct{}{},
	}
	if l.table.hasMore && l.stages[queued] <= lowHead && !(l.isOrdered() && l.stages.unsettled() > 0) {
		if request.limit = min(s.jobsToRead(l), l.table.readSize); l.isFailing() {
			request.limit = min(request.limit, 1) // the probe
		}
	}
	if !request.withTarget && request.limit == 0 { // there was room when it began to wait
		s.queueRead(l)
		return
	}
	if request.limit > 0 {
		request.inMemory = slices.Collect(maps.Keys(l.attempts))
		l.table.hasMore, l.table.nextDue = false, 0
	}
	s.lanes.setRead(l, request)
	s.worker.read(request)
}

// addNewJobs adds jobs to the heads of their lanes. If older ones wait in the table, or there is no room, they are read from it later.
func (s *scheduler) addNewJobs(jobs []webhook.Job) {
	for _, j := range jobs {
		if _, parked := s.parked[j.Subscription]; parked && !j.Begun {
			continue
		}
		l := s.lanes.laneOf(j.Subscription, j.Organization)
		if j.Begun {
			s.enterBegun(l, j)
			s.ReturnPlace(j.Organization, j.Subscription) // after the attempt counts, so that nobody gets its place meanwhile
			s.update(l)
		} else if l.attempts[j.Delivery] == nil {
			if !s.leaveInTable(l, j) && !s.admit(l, j, maxNewJobs) {
				l.table.hasMore = true
			}
			s.update(l)
		}
	}
}

// noteChanges makes the lanes of the subscriptions read them again before they send anything more. No subscription means all.
func (s *scheduler) noteChanges(subscriptions []int64) {
	if len(subscriptions) == 0 {
		for _, l := range s.lanes.of {
			l.wantVersion++
		}
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
	changed := make(map[int64]struct{}, len(events))
	for _, event := range events {
		changed[event] = struct{}{}
	}
	for _, l := range s.lanes.of {
		if l.table.read != nil {
			l.table.read.stale = true
		}
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

// wakesAt reports whether a parked lane with this time of its probe may get the probe now; 0 is never. Its subscription is
// read to find out. A time that is too far away was set before the clock was set back.
func (s *scheduler) wakesAt(probeAt int64) bool {
	return probeAt != 0 && (probeAt <= s.now || probeAt > s.now+s.options.Policy.ProbeDisabled.Milliseconds())
}

// finishList notes which lanes have more deliveries in the table than in memory.
func (s *scheduler) finishList(lanes []webhook.Lane, err error, duration time.Duration) {
	s.reads.listing = false
	if err != nil {
		s.storeFails(stepList, err)
		s.reads.listAfter = s.clock.Add(s.options.PollInterval)
		return
	}
	s.storeWorks(stepList)
	s.reads.droppedUnread = false
	s.reads.listAfter = s.clock.Add(max(30*time.Second, 100*duration)) // a list costs more with more pending deliveries
	for _, pending := range lanes {
		if probeAt, parked := s.parked[pending.Subscription]; parked && !s.wakesAt(probeAt) {
			continue
		}
		delete(s.parked, pending.Subscription)
		l := s.lanes.laneOf(pending.Subscription, pending.Organization)
		// The lane may know a new delivery but not the older ones, for example after its subscription was closed.
		// Read the table to find them.
		if (len(l.attempts) > 0 || l.table.read != nil) && s.isDue(pending.DueAt) {
			l.table.hasMore = true
		}
		l.table.noteDue(pending.DueAt)
		s.update(l)
	}
}
