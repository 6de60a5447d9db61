package dispatch

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/dispatch/sender"
	"github.com/keyhook/keyhook/storage/webhook"
)

// These limits bound memory. They do not grow with the backlog.
const (
	maxMemory           = 14 << 20               // weight of all jobs in memory
	maxNewBytes         = 8 << 20                // weight of new jobs that wait in the inbox
	maxHead             = 256                    // due jobs that a lane reads ahead
	maxNewJobs          = 8 * maxHead            // new jobs that a lane takes without a read
	lowHead             = maxHead / 4            // a lane reads more when its head has at most this many jobs
	minReadSize         = 16                     // jobs of the first read: most of them may not be due
	maxLanes            = 4096                   // with more lanes, idle lanes are dropped, with the cached state of their subscriptions
	minLanesPerOrg      = 64                     // lanes that an organization keeps beyond maxLanes, until there are twice as many in all
	maxBatch            = 1024                   // attempts in one Begin, and results in one Record
	retryWhenFull       = 100 * time.Millisecond // delay before reading again when memory had no room
	maxRecordWait       = time.Minute            // a result that fails to save for longer no longer blocks other lanes
	maxBegunPerLaneSlot = 16                     // attempts that a lane may begin ahead, per slot of the lane
	maxBegunPerSlot     = 4                      // attempts that all lanes may begin ahead, per slot
	maxUnsaved          = maxBatch               // results that wait to be saved while requests are sent
)

// scheduler decides which deliveries are read, begun and sent, and when. One goroutine runs it and owns all its fields,
// so they need no lock. Other goroutines carry out its decisions and report through the inbox.
//
// The cost of a round depends on what has happened, not on the number of lanes. A lane is updated after a message about
// it, in its turn, or when its wake time has come.
type scheduler struct {
	*Dispatcher
	worker *worker
	clock  time.Time
	now    int64 // the same in milliseconds

	lanes     lanes
	parked    map[int64]int64 // closed subscriptions with pending deliveries, which have no lane, with the times of their probes
	timetable timetable

	changesRead uint64 // calls of SubscriptionsChanged and BodiesChanged that the scheduler has read
	reads       readState
	begin       beginState
	saved       uint64 // results that the store has saved

	steps        stepClock // for finding delays that Keyhook itself causes
	stopping     bool
	waitsForJobs bool // a stopping scheduler waits for the jobs whose attempts have begun in transactions that still run
}

// readState is the state of the reads of all lanes, and of the lists of all subscriptions with pending deliveries.
type readState struct {
	droppedUnread bool // a lane was dropped after failed reads, and no read or list has succeeded since

	listNow   bool      // list at once
	listing   bool      // at most one list runs at a time
	listAfter time.Time // no list before this time, unless listNow is set
}

// beginState is the state of the calls of Begin and Release. At most one Begin runs at a time.
type beginState struct {
	running    bool
	started    time.Time       // of the last call
	took       time.Duration   // by the last call
	failed     bool            // the last call failed
	after      time.Time       // no call before this time
	spareBatch []webhook.Start // for the next call
}

func newScheduler(d *Dispatcher, w *worker) *scheduler {
	s := &scheduler{
		Dispatcher: d, worker: w, lanes: newLanes(d.options, &d.openings, d.checks.onMove), parked: map[int64]int64{},
		reads: readState{listNow: true}, waitsForJobs: true,
	}
	s.tick()
	return s
}

// run works until ctx has ended and every attempt is settled. It interrupts attempts that still run after the grace period.
func (s *scheduler) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	stopped := ctx.Done()
	var graceOver, recordsOver <-chan time.Time
	var buffer []message
	for {
		buffer = s.handleAll(buffer)
		if s.isDone() {
			return
		}
		s.round()
		timer.Reset(s.untilNextWake())
		select {
		case <-s.inbox.wake:
		case <-timer.C:
		case <-stopped:
			s.stop()
			stopped, graceOver = nil, time.After(s.options.Grace)
		case <-graceOver:
			s.log.Warn("interrupted attempts, because server.shutdown_grace is over; the next start sends them again", "attempts", s.lanes.stages.unsettled())
			s.worker.interrupt(sender.ErrInterrupted)
			recordsOver = time.After(lastRecords)
		case <-recordsOver:
			s.worker.stopRecording()
			s.waitsForJobs = false
		}
	}
}

// handleAll handles everything in the inbox. It uses the buffer for the next messages, and returns another one.
func (s *scheduler) handleAll(buffer []message) []message {
	messages, spilled, changes := s.inbox.takeAll(buffer[:0])
	s.changesRead = changes
	s.tick()
	for _, m := range messages {
		m(s)
	}
	for subscription, organization := range spilled { // its new deliveries are in the table only
		if _, parked := s.parked[subscription]; !parked {
			l := s.lanes.laneOf(subscription, organization)
			l.table.hasMore = true
			s.update(l)
		}
	}
	clear(messages)
	if cap(messages) > 4096 {
		return nil
	}
	return messages
}

func (s *scheduler) round() {
	s.wakeLanes()
	s.beginNext()
	s.sendNext()
	s.readNext()
	s.releaseUnsent()
	s.updateOpenings()
	s.publishLag()
	if s.checks.onRound != nil {
		s.checks.onRound(s)
	}
}

// isDone reports whether a stopping scheduler waits for nothing more.
func (s *scheduler) isDone() bool {
	if !s.stopping || s.begin.running || s.reads.listing || s.lanes.resources[readSlots].Used > 0 || s.lanes.stages.unsettled() > 0 {
		return false
	}
	return !s.waitsForJobs || s.lanes.chargeTaken() == 0
}

// tick reads the clock. If the clock was set back, it updates every lane, because their wake times may now be far away.
func (s *scheduler) tick() {
	before := s.now
	s.clock = time.Now()
	s.now = s.clock.UnixMilli()
	s.lastTick.Store(new(s.clock))
	if s.now < before-time.Second.Milliseconds() {
		s.log.Warn("the clock was set back, so the server checks all due times again", "by", time.Duration(before-s.now)*time.Millisecond)
		for _, l := range s.lanes.of {
			s.update(l)
		}
	}
}

// isDue is the only test of due times from the store. A time is due if it has come, or if it is impossible. No delivery
// is put off for longer than RetryMax. A later time was computed before the clock was set back.
func (s *scheduler) isDue(at int64) bool { return at <= s.now || at > s.latestDue() }

// latestDue is the latest due time that is possible.
func (s *scheduler) latestDue() int64 {
	return s.now + (s.options.RetryMax + time.Minute).Milliseconds()
}

// update moves a lane to where it belongs after something has happened. It looks at its state alone, so an extra call does no harm.
func (s *scheduler) update(l *lane) {
	if s.stopping || s.lanes.of[l.subscription] != l { // a dropped lane must not get work: its attempts would not be found
		return
	}
	if l.table.nextDue != 0 && s.isDue(l.table.nextDue) {
		l.table.nextDue, l.table.hasMore = 0, true
	}
	switch {
	case !l.isCurrent():
		if l.parked {
			l.parked, l.table.hasMore = false, true
		}
	case !l.sends:
		// The lane costs nothing until its subscription changes.
		l.parked, l.table.hasMore, l.table.nextDue, l.table.blocked = true, false, 0, 0
		s.lanes.trimHead(l, 0)
	}
	if s.mayBegin(l) {
		s.lanes.wait(l, s.beginKind(l))
	}
	if s.maySend(l) {
		s.lanes.wait(l, sendSlots)
	}
	s.queueRead(l)
	due := l.dueSince()
	s.lanes.setLate(l, due != 0 && s.now-due > lateAfter.Milliseconds())
	s.openLane(l)
	s.timetable.set(l, s.nextWake(l))
	if s.isDroppable(l) && l.bucket.IsFull(s.clock) {
		s.dropLane(l)
	}
}

// isDroppable reports whether the lane has no work and its cached state is not worth keeping. The caller drops it only when its
// bucket is full, because a new lane starts with a full bucket. With too many lanes, those of organizations with many lanes go first.
func (s *scheduler) isDroppable(l *lane) bool {
	switch {
	case len(l.attempts) > 0 || l.tests.any() || l.table.read != nil || l.table.hasMore || l.table.nextDue != 0:
		return false // it has work, or waits for something
	case l.parked:
		return true
	case l.org.lanes > minLanesPerOrg:
		return len(s.lanes.of) > maxLanes
	}
	return len(s.lanes.of) > 2*maxLanes
}

// dropLane forgets a lane. The lane may still wait for a resource; when its turn comes, it has nothing to do.
func (s *scheduler) dropLane(l *lane) {
	if l.parked && !l.gate.Deleted { // what is deleted gets no delivery any more, and there may be any number of them
		s.parked[l.subscription] = 0
		if l.gate.GetsProbe() {
			s.parked[l.subscription] = l.gate.ProbeAt
		}
	}
	s.lanes.setLate(l, false)
	s.openings.set(l.subscription, room{})
	delete(s.lanes.of, l.subscription)
	s.lanes.leaveOrg(l)
}

// stop ends the beginning of attempts and releases those that were not sent.
func (s *scheduler) stop() {
	s.stopping = true
	s.updateOpenings()
	s.timetable = nil
	for _, l := range s.lanes.of {
		s.recheckBegun(l)
		for _, test := range l.tests.waiting {
			test.reply <- false
		}
		l.tests.waiting = nil
	}
}
