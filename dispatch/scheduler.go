package dispatch

import (
	"context"
	"time"
)

// The bounds on what is held in memory. They do not grow with the backlog.
const (
	maxMemory           = 14 << 20               // weight of all jobs in memory
	maxNewBytes         = 8 << 20                // weight of the jobs that were published since the last round
	maxHead             = 256                    // due jobs that a lane reads ahead
	maxNewJobs          = 8 * maxHead            // jobs that it takes over as they are published
	lowHead             = maxHead / 4            // reads more when it holds no more than this
	minReadSize         = 16                     // jobs that are read at first: most of them may turn out not to be due
	maxLanes            = 4096                   // lanes beyond which those with nothing to do are dropped, with what is known of their subscriptions
	minLanesPerOrg      = 64                     // lanes that an organization keeps beyond that, up to twice as many in all
	maxBatch            = 256                    // attempts in one Begin
	retryWhenFull       = 100 * time.Millisecond // before a read is tried again for which there was no room
	maxRecordWait       = time.Minute            // for an end that the store refuses to record
	maxBegunPerLaneSlot = 16                     // how many times its slots a lane may have begun ahead of them
	maxBegunPerSlot     = 4                      // how many times all slots may be begun ahead of them
)

// scheduler decides what is read, begun and sent, and when. One goroutine runs it and owns all of its fields; the others
// do what it decided and answer through the inbox. So nothing here is locked.
//
// A round costs what has happened since the last one, not the number of lanes: a lane is looked at when something has
// happened to it, or when its turn or its time has come.
type scheduler struct {
	*Dispatcher
	worker *worker

	lanes     map[int64]*lane
	orgs      map[int64]*orgLanes     // by organization
	parked    map[int64]struct{}      // subscriptions with pending deliveries that are known to be closed
	resources [resourceKinds]resource // the resources that organizations share, and who waits for them
	timetable timetable
	steps     stepClock // that Keyhook itself causes

	clock         time.Time // of this round
	now           int64     // the same, in milliseconds
	maxPutOff     int64     // no due time is further away than this, in milliseconds, unless the clock was set back
	changesRead   uint64    // read so far
	globalVersion uint64    // changes to any subscription so far

	unsettled int // attempts chosen and not settled
	bodies    bodies

	beginRound      uint64 // of Begin
	spareBatch      []*attempt
	beginning       bool // a Begin is under way
	beginStarted    time.Time
	beginLead       time.Duration // by which attempts of lanes with a rate limit are begun before their time
	beginFailed     bool          // the last one failed
	beginAfter      time.Time
	blockingResults int    // attempts whose end the store refuses to record; nothing is sent while there are any
	recordedResults uint64 // attempts whose end it has recorded
	toRelease       []*attempt

	lanesFailingRead int  // lanes whose last read failed
	droppedUnread    bool // a lane was dropped because its reads failed, and neither a read nor a sweep succeeded since

	listNow   bool // the subscriptions with pending deliveries are to be looked up without delay
	listing   bool
	listAfter time.Time

	failingOps map[string]bool // what the store refuses to do at present
	stopping   bool
}

func newScheduler(d *Dispatcher, w *worker) *scheduler {
	s := &scheduler{
		Dispatcher: d, worker: w,
		lanes: map[int64]*lane{}, orgs: map[int64]*orgLanes{}, parked: map[int64]struct{}{}, bodies: bodies{}, failingOps: map[string]bool{},
		maxPutOff: (d.options.RetryMax + time.Minute).Milliseconds(),
		listNow:   true,
	}
	for kind, all := range [resourceKinds]int{
		beginPlaces: s.maxBegun(), probePlaces: max(s.options.Concurrency/2, 1), sendSlots: s.options.Concurrency, readSlots: maxReads, memoryBytes: maxMemory,
	} {
		s.resources[kind].kind, s.resources[kind].capacity = kind, all
	}
	s.tick()
	return s
}

// run works until ctx has ended and nothing is open any more. Grace later it has what is left cut off.
func (s *scheduler) run(ctx context.Context, cut context.CancelCauseFunc) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	stop, grace := ctx.Done(), (<-chan time.Time)(nil)
	var spare []message
	for {
		messages, spilled, changes := s.inbox.takeAll(spare[:0])
		s.changesRead = changes
		s.tick()
		for _, m := range messages {
			m.apply(s)
		}
		for subscription, organization := range spilled {
			s.markSpilled(subscription, organization)
		}
		clear(messages)
		if spare = messages; cap(spare) > 4096 {
			spare = nil
		}
		if s.stopping && s.unsettled == 0 && !s.beginning && s.resources[readSlots].used == 0 && !s.listing {
			return
		}
		s.wakeLanes()
		s.beginNext()
		s.sendNext()
		s.readNext()
		s.releaseUnsent()
		s.publishLag()

		timer.Reset(s.untilNextWake())
		select {
		case <-s.inbox.wake:
		case <-timer.C:
		case <-stop:
			s.stop()
			stop, grace = nil, time.After(s.options.Grace)
		case <-grace:
			s.log.Warn("attempts that are still under way are cut off; they are sent again after the next start", "attempts", s.unsettled)
			cut(errCut)
		}
	}
}

// tick reads the clock. Where it was set back, every lane is looked at: their times may be far away now.
func (s *scheduler) tick() {
	before := s.now
	s.clock = time.Now()
	s.now = s.clock.UnixMilli()
	s.lastTick.Store(s.now)
	if s.now < before-time.Second.Milliseconds() {
		s.log.Warn("the clock was set back", "by", time.Duration(before-s.now)*time.Millisecond)
		for _, l := range s.lanes {
			s.update(l)
		}
	}
}

// due is the one predicate for times kept in the store: it has come, or it cannot be right. Nothing is put off by more
// than RetryMax, so what seems to be was put off before the clock was set back.
func (s *scheduler) isDue(at int64) bool { return at <= s.now || at > s.now+s.maxPutOff }

// knows reports whether what is known of the lane's subscription holds.
func (s *scheduler) isCurrent(l *lane) bool {
	return l.target != nil && l.haveVersion == l.wantVersion && l.haveGlobalVersion == s.globalVersion
}

// touch looks at a lane after something has happened to it, and puts it where it belongs. All that a lane can do next is
// decided here, from its state alone, so touching it once too often does no harm.
func (s *scheduler) update(l *lane) {
	if s.stopping {
		return
	}
	if l.nextDue != 0 && s.isDue(l.nextDue) {
		l.nextDue, l.tableHasMore = 0, true
	}
	switch {
	case !s.isCurrent(l):
		if l.parked {
			l.parked, l.tableHasMore = false, true
		}
	case l.isClosed():
		s.park(l)
	case l.isFailing():
		s.trimHead(l, 1)
	}
	if s.mayBegin(l) {
		s.resources[s.beginKind(l)].wait(l)
	}
	if s.maySend(l) {
		s.resources[sendSlots].wait(l)
	}
	s.queueRead(l)
	s.updateLate(l)
	s.timetable.wakeAt(l, s.nextWake(l))
	if s.isDroppable(l) && l.bucket.isFull(s.clock) {
		s.dropLane(l)
	}
}

// superfluous reports whether the lane has nothing to do, and is not kept for what is known of its subscription. It goes
// when its bucket is full, and not before: once made again it has a full one. Where there are too many lanes, those of
// organizations with many go first.
func (s *scheduler) isDroppable(l *lane) bool {
	switch {
	case !l.isIdle():
		return false
	case l.parked:
		return true
	case l.org.lanes > minLanesPerOrg:
		return len(s.lanes) > maxLanes
	}
	return len(s.lanes) > 2*maxLanes
}

// leave drops a lane. It may still be in a ring; when its turn comes it has nothing to do.
func (s *scheduler) dropLane(l *lane) {
	if s.lanes[l.subscription] != l {
		return
	}
	if l.parked {
		s.parked[l.subscription] = struct{}{}
	}
	s.updateLate(l)
	delete(s.lanes, l.subscription)
	s.leaveOrg(l)
}

// shut leaves a closed lane to the table: it costs nothing until it changes.
func (s *scheduler) park(l *lane) {
	l.parked, l.tableHasMore, l.nextDue = true, false, 0
	s.trimHead(l, 0)
}

// shed leaves all but the first n jobs of the head to the table.
func (s *scheduler) trimHead(l *lane, n int) {
	if l.head.n <= n {
		return
	}
	rest := l.head
	l.head = queue{}
	for range n {
		l.head.push(rest.pop())
	}
	for a := rest.pop(); a != nil; a = rest.pop() {
		s.dropJob(a)
	}
	l.tableHasMore = !l.parked
}

// stop has nothing more begun, and gives back what has not been sent.
func (s *scheduler) stop() {
	s.stopping = true
	s.timetable = nil
	for _, l := range s.lanes {
		s.recheckBegun(l)
		for _, t := range l.tests {
			t.reply <- false
		}
		l.tests = nil
	}
}
