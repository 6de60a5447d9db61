package dispatch

import (
	"maps"
	"slices"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// turnOf is the ring in which the lane waits to begin an attempt.
func (s *scheduler) turnOf(l *lane) int {
	if l.failing() {
		return toProbe
	}
	return toBegin
}

// mayBegin reports whether the lane may have another attempt begun. A healthy lane has as many begun as it has free
// slots, and as many more as ended lately, so that the next are ready when slots become free: a Begin takes as long as
// two commits, in which a quick receiver answers a hundred requests. A failing lane has one probe, when its time has come
// and all that came before has been settled. A lane with a rate limit has no more begun than there are tokens for: what
// waits for its pace waits without a record.
//
// The fewer places its organization has left, the fewer one lane gets: lanes that hang together cannot take all of them.
func (s *scheduler) mayBegin(l *lane) bool {
	if l.head.n == 0 || !s.knows(l) || l.closed() {
		return false
	}
	if l.failing() {
		return s.mayProbe(l) && s.inStep(l)
	}
	ahead := l.chosen + l.begun.n
	if ahead >= max(s.o.PerSubscription-l.wire, 0)+min(l.pace(s.round), laneAhead*s.o.PerSubscription) {
		return false
	}
	return (ahead == 0 || 2*ahead < s.allowed(l, toBegin)-l.tenant.used[toBegin]) && s.inStep(l)
}

// mayProbe reports whether the time of a failing lane's probe has come.
func (s *scheduler) mayProbe(l *lane) bool {
	return l.open() == 0 && l.wire == 0 && s.due(l.health.ProbeAt)
}

// maxAhead is how many may be begun ahead of a slot in all.
func (s *scheduler) maxAhead() int { return allAhead * s.o.Concurrency }

// choose takes attempts from the lanes in turn, one from each, and has them begun together.
func (s *scheduler) choose() {
	if s.stopping || s.beginning || s.unrecorded > 0 || s.clock.Before(s.beginAfter) {
		return
	}
	// Probes come first, and take up to half of the slots: a failing endpoint waits for other failing endpoints, and not
	// for healthy ones.
	batch := s.gather(s.batch[:0], toProbe)
	batch = s.gather(batch, toBegin)
	s.batch = nil
	if len(batch) == 0 {
		s.batch, s.beginFailed = batch, false
		return
	}
	s.beginning, s.beganAt = true, s.clock
	s.round++
	s.work.batches <- batch
}

// gather appends attempts of the lanes that wait to begin or to probe.
func (s *scheduler) gather(batch []*attempt, kind int) []*attempt {
	for len(batch) < batchSize && s.turns[toBegin].used < s.turns[toBegin].all {
		l := s.turns[kind].next(1)
		if l == nil {
			break
		}
		if s.turnOf(l) == kind && s.mayBegin(l) {
			batch = append(batch, s.begin(l))
		}
		s.touch(l)
	}
	return batch
}

// begin takes the lane's next job out of its head, to be begun.
func (s *scheduler) begin(l *lane) *attempt {
	a := l.head.pop()
	a.epoch, a.probe = l.health.Epoch, l.failing()
	l.chosen++
	s.open++
	s.charge(l, toBegin, 1)
	if a.probe {
		s.charge(l, toProbe, 1)
	}
	return a
}

// mayLaunch reports whether the lane may have another request on the wire: one where it is failing, or not known to be
// healthy; otherwise up to its limit, and fewer the fewer slots its organization has left. A lane alone reaches its limit.
// Where it has a rate limit, there must be a token; tests, which are made at once, do without.
func (s *scheduler) mayLaunch(l *lane) bool {
	known := s.knows(l)
	if len(l.tests) == 0 && (l.begun.n == 0 || !known || l.dying(s.o.Policy.FailingAfter) || l.bucket.wait(1, s.clock) > 0) {
		return false
	}
	if l.wire == 0 {
		return true
	}
	if !known || l.health.Status != webhook.Healthy {
		return false
	}
	used, all := l.tenant.used[toLaunch], s.allowed(l, toLaunch)
	limit := min(s.o.PerSubscription, all)
	if used < s.turns[toLaunch].used { // where others need slots, a lane leaves some to those of its own organization
		limit = min(limit, all-all/4)
	}
	return l.wire < limit && l.wire*(all-limit) < 2*limit*(all-used)
}

// launch puts begun attempts on the wire, one of each lane in turn, while there are slots. While the store fails
// nothing goes: what cannot be recorded is not sent.
func (s *scheduler) launch() {
	if s.stopping || s.unrecorded > 0 || s.beginFailed {
		return
	}
	for l := s.turns[toLaunch].next(1); l != nil; l = s.turns[toLaunch].next(1) {
		if s.mayLaunch(l) {
			l.wire++
			s.charge(l, toLaunch, 1)
			s.delays.moved(launching)
			l.bucket.take(s.clock)
			if len(l.tests) > 0 {
				s.grant(l)
			} else {
				s.send(l.begun.pop())
			}
		}
		s.touch(l)
	}
}

func (s *scheduler) send(a *attempt) {
	s.charge(a.lane, toBegin, -1)
	a.target, a.failures, a.changes = a.lane.target, a.lane.health.ConsecutiveFailures, s.changes
	s.work.deliver(a)
}

// wants reports whether the lane needs something that only the store knows.
func (s *scheduler) wants(l *lane) bool {
	if l.reading {
		return false
	}
	if !s.knows(l) {
		return l.more || l.head.n > 0 || l.begun.n > 0
	}
	if !l.more || l.failing() && (l.open() > 0 || l.head.n > 0 || !s.due(l.health.ProbeAt)) {
		return false
	}
	// A few more at a time would mean to read again, for each, all that are in memory already.
	return l.head.n == 0 || l.head.n <= lowHead && s.room(l) >= lowHead/4
}

// queueRead puts a lane that wants to read in line: for its turn, or for room in memory where it has none. A lane that
// holds something itself is looked at again when that ends.
func (s *scheduler) queueRead(l *lane) {
	switch {
	case !s.wants(l) || !s.due(l.readAt):
	case !s.knows(l) || s.room(l) > 0:
		s.turns[toRead].push(l)
	case l.bytes == 0:
		s.turns[toMemory].push(l)
	}
}

// end drops an attempt that was open.
func (s *scheduler) end(a *attempt) {
	s.forget(a)
	s.open--
	if a.failed {
		a.lane.doubts--
	}
	if a.probe {
		s.charge(a.lane, toProbe, -1)
	}
	if a.troubled {
		s.unrecorded--
	}
}

// read has the lanes read what they need, in turn, and now and then looks for pending deliveries of which nobody told.
func (s *scheduler) read() {
	if s.stopping {
		return
	}
	if !s.sweeping && (s.sweep || !s.clock.Before(s.sweepAfter)) {
		s.sweep, s.sweeping = false, true
		s.work.asks <- ask{}
	}
	for s.turns[toRead].used < readers {
		if l := s.turns[toMemory].next(maxWeight); l != nil {
			s.queueRead(l)
		}
		l := s.turns[toRead].next(1)
		if l == nil {
			return
		}
		if s.wants(l) && s.due(l.readAt) {
			s.ask(l)
		} else {
			s.touch(l)
		}
	}
}

// ask has a lane read what it needs.
func (s *scheduler) ask(l *lane) {
	q := ask{lane: l, subscription: l.subscription, target: !s.knows(l), want: l.want, all: s.all}
	if l.more && l.head.n <= lowHead {
		q.room = min(s.room(l), l.reach)
	}
	if !q.target && q.room == 0 { // there was room when it got in line
		s.queueRead(l)
		return
	}
	if q.room > 0 {
		q.held = slices.Collect(maps.Keys(l.held))
		l.more, l.nextDue = false, 0
	}
	l.reading, l.settledMeanwhile = true, map[int64]struct{}{}
	s.charge(l, toRead, 1)
	s.work.asks <- q
}

// release gives back to the store what was begun and must not be sent.
func (s *scheduler) release() {
	if len(s.giveBack) > 0 {
		s.work.release(s.giveBack)
		s.giveBack = nil
	}
}

// sweepInterval is how long to leave the store alone after a look at all pending deliveries, which costs more the more
// of them there are.
func sweepInterval(took time.Duration) time.Duration { return max(30*time.Second, 100*took) }
