package dispatch

import (
	"context"
	"time"
)

// The bounds on what is held in memory. They do not grow with the backlog.
const (
	heldBytes  = 14 << 20               // weight of all jobs in memory
	freshBytes = 8 << 20                // weight of the jobs that were published since the last round
	headSize   = 256                    // due jobs that a lane reads ahead
	freshSize  = 8 * headSize           // jobs that it takes over as they are published
	lowHead    = headSize / 4           // reads more when it holds no more than this
	minReach   = 16                     // jobs that are read at first: most of them may turn out not to be due
	maxLanes   = 4096                   // lanes beyond which those with nothing to do are dropped, with what is known of their subscriptions
	keptLanes  = 64                     // lanes that an organization keeps beyond that, up to twice as many in all
	batchSize  = 256                    // attempts in one Begin
	forNothing = 100 * time.Millisecond // before a read is tried again for which there was no room
	patience   = time.Minute            // for an end that the store refuses to record
	laneAhead  = 16                     // how many times its slots a lane may have begun ahead of them
	allAhead   = 4                      // how many times all slots may be begun ahead of them
)

// scheduler decides what is read, begun and sent, and when. One goroutine runs it and owns all of its fields; the others
// do what it decided and answer through the inbox. So nothing here is locked.
//
// A round costs what has happened since the last one, not the number of lanes: a lane is looked at when something has
// happened to it, or when its turn or its time has come.
type scheduler struct {
	*Dispatcher
	work *work

	lanes   map[int64]*lane
	tenants map[int64]*tenant  // by organization
	closed  map[int64]struct{} // subscriptions with pending deliveries that are known to be closed
	turns   [rings]turns       // the resources that organizations share, and who waits for them
	times   timetable
	delays  delays // that Keyhook itself causes

	clock   time.Time // of this round
	now     int64     // the same, in milliseconds
	horizon int64     // no due time is further away than this, in milliseconds, unless the clock was set back
	changes uint64    // read so far
	all     uint64    // changes to any subscription so far

	open   int // attempts chosen and not settled
	bodies bodies

	round       uint64 // of Begin
	batch       []*attempt
	beginning   bool // a Begin is under way
	beganAt     time.Time
	lead        time.Duration // by which attempts of lanes with a rate limit are begun before their time
	beginFailed bool          // the last one failed
	beginAfter  time.Time
	unrecorded  int    // attempts whose end the store refuses to record; nothing is sent while there are any
	recorded    uint64 // attempts whose end it has recorded
	giveBack    []*attempt

	unread  int  // lanes whose last read failed
	dropped bool // a lane was dropped because its reads failed, and neither a read nor a sweep succeeded since

	sweep      bool // the subscriptions with pending deliveries are to be looked up without delay
	sweeping   bool
	sweepAfter time.Time

	ailing   map[string]bool // what the store refuses to do at present
	stopping bool
}

func newScheduler(d *Dispatcher, w *work) *scheduler {
	s := &scheduler{
		Dispatcher: d, work: w,
		lanes: map[int64]*lane{}, tenants: map[int64]*tenant{}, closed: map[int64]struct{}{}, bodies: bodies{}, ailing: map[string]bool{},
		horizon: (d.o.RetryMax + time.Minute).Milliseconds(),
		sweep:   true,
	}
	for kind, all := range [rings]int{
		toBegin: s.maxAhead(), toProbe: max(s.o.Concurrency/2, 1), toLaunch: s.o.Concurrency, toRead: readers, toMemory: heldBytes,
	} {
		s.turns[kind].kind, s.turns[kind].all = kind, all
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
		messages, spilled, changes := s.inbox.take(spare[:0])
		s.changes = changes
		s.tick()
		for _, m := range messages {
			m.apply(s)
		}
		for subscription, organization := range spilled {
			s.spill(subscription, organization)
		}
		clear(messages)
		if spare = messages; cap(spare) > 4096 {
			spare = nil
		}
		if s.stopping && s.open == 0 && !s.beginning && s.turns[toRead].used == 0 && !s.sweeping {
			return
		}
		s.fire()
		s.choose()
		s.launch()
		s.read()
		s.release()
		s.publish()

		timer.Reset(s.pause())
		select {
		case <-s.inbox.wake:
		case <-timer.C:
		case <-stop:
			s.stop()
			stop, grace = nil, time.After(s.o.Grace)
		case <-grace:
			s.log.Warn("attempts that are still under way are cut off; they are sent again after the next start", "attempts", s.open)
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
			s.touch(l)
		}
	}
}

// due is the one predicate for times kept in the store: it has come, or it cannot be right. Nothing is put off by more
// than RetryMax, so what seems to be was put off before the clock was set back.
func (s *scheduler) due(at int64) bool { return at <= s.now || at > s.now+s.horizon }

// pause is how long nothing happens by itself.
func (s *scheduler) pause() time.Duration {
	d := s.o.PollInterval
	if len(s.times) > 0 {
		d = min(d, time.UnixMilli(s.times[0].wakeAt).Sub(s.clock))
	}
	if s.beginFailed && s.unrecorded == 0 && !s.beginning { // else something else is waited for
		d = min(d, s.beginAfter.Sub(s.clock))
	}
	return max(d, time.Millisecond)
}

// fire looks at the lanes whose time has come.
func (s *scheduler) fire() {
	for len(s.times) > 0 && s.times[0].wakeAt <= s.now {
		l := s.times[0]
		s.times.set(l, 0)
		s.touch(l)
	}
}

// knows reports whether what is known of the lane's subscription holds.
func (s *scheduler) knows(l *lane) bool {
	return l.target != nil && l.have == l.want && l.haveAll == s.all
}

// touch looks at a lane after something has happened to it, and puts it where it belongs. All that a lane can do next is
// decided here, from its state alone, so touching it once too often does no harm.
func (s *scheduler) touch(l *lane) {
	if s.stopping {
		return
	}
	if l.nextDue != 0 && s.due(l.nextDue) {
		l.nextDue, l.more = 0, true
	}
	switch {
	case !s.knows(l):
		if l.shut {
			l.shut, l.more = false, true
		}
	case l.closed():
		s.shut(l)
	case l.failing():
		s.shed(l, 1)
	}
	if s.mayBegin(l) {
		s.turns[s.turnOf(l)].push(l)
	}
	if s.mayLaunch(l) {
		s.turns[toLaunch].push(l)
	}
	s.queueRead(l)
	s.judge(l)
	s.times.set(l, s.alarm(l))
	if s.superfluous(l) && l.bucket.full(s.clock) {
		s.leave(l)
	}
}

// superfluous reports whether the lane has nothing to do, and is not kept for what is known of its subscription. It goes
// when its bucket is full, and not before: once made again it has a full one. Where there are too many lanes, those of
// organizations with many go first.
func (s *scheduler) superfluous(l *lane) bool {
	switch {
	case !l.idle():
		return false
	case l.shut:
		return true
	case l.tenant.lanes > keptLanes:
		return len(s.lanes) > maxLanes
	}
	return len(s.lanes) > 2*maxLanes
}

// alarm is when the lane is to be looked at again though nothing has happened; 0: never.
func (s *scheduler) alarm(l *lane) int64 {
	at := l.nextDue
	sooner := func(t int64) {
		if !s.due(t) && (at == 0 || t < at) {
			at = t
		}
	}
	if s.wants(l) {
		sooner(l.readAt)
	}
	if l.failing() && (l.more || l.head.n > 0) {
		sooner(l.health.ProbeAt)
	}
	if l.bucket != nil {
		s.tokens(l, sooner)
	}
	s.lateness(l, sooner)
	return at
}

// leave drops a lane. It may still be in a ring; when its turn comes it has nothing to do.
func (s *scheduler) leave(l *lane) {
	if s.lanes[l.subscription] != l {
		return
	}
	if l.shut {
		s.closed[l.subscription] = struct{}{}
	}
	s.judge(l)
	delete(s.lanes, l.subscription)
	s.part(l)
}

// shut leaves a closed lane to the table: it costs nothing until it changes.
func (s *scheduler) shut(l *lane) {
	l.shut, l.more, l.nextDue = true, false, 0
	s.shed(l, 0)
}

// shed leaves all but the first n jobs of the head to the table.
func (s *scheduler) shed(l *lane, n int) {
	if l.head.n <= n {
		return
	}
	rest := l.head
	l.head = queue{}
	for range n {
		l.head.push(rest.pop())
	}
	for a := rest.pop(); a != nil; a = rest.pop() {
		s.forget(a)
	}
	l.more = !l.shut
}

// stop has nothing more begun, and gives back what has not been sent.
func (s *scheduler) stop() {
	s.stopping = true
	s.times = nil
	for _, l := range s.lanes {
		s.conform(l)
		for _, t := range l.tests {
			t.answer <- false
		}
		l.tests = nil
	}
}
