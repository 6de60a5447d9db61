package dispatch

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// readers is how many reads of the store are under way at once.
const readers = 3

// ask is what the scheduler wants to know of one lane; without a lane, of all.
type ask struct {
	lane         *lane
	subscription int64
	target       bool // how and where to send
	room         int  // how many jobs to read
	held         []int64
	want, all    uint64 // changes that the answer takes into account
}

// answer is what the store said.
type answer struct {
	ask
	target *target
	jobs   []webhook.Job
	limit  int // of jobs; 0: they were not read
	err    error
}

// find reads what was asked for. It runs outside the scheduler's goroutine.
func (d *Dispatcher) find(ctx context.Context, q ask) message {
	if q.lane == nil {
		begin := time.Now()
		lanes, err := d.store.Lanes(ctx)
		return swept{lanes, err, time.Since(begin)}
	}
	a := answer{ask: q}
	if q.target {
		t, err := d.store.Target(ctx, q.subscription)
		if err != nil {
			a.err = err
			return a
		}
		a.target = d.sender.target(t)
		if !t.Open {
			return a
		}
		if t.Status == webhook.Failing {
			q.room = min(q.room, 1)
		}
	}
	if q.room > 0 {
		a.limit = q.room
		a.jobs, a.err = d.store.PendingJobs(ctx, q.subscription, a.limit, q.held)
	}
	return a
}

// apply takes in what was read.
func (m answer) apply(s *scheduler) {
	l := m.lane
	meanwhile := l.settledMeanwhile
	l.reading, l.settledMeanwhile = false, nil
	s.charge(l, toRead, -1)
	if m.room > 0 && (m.limit == 0 || m.err != nil) {
		l.more = true // not read after all
	}
	if m.err != nil {
		s.failRead(m)
		return
	}
	s.well("read deliveries")
	s.delays.moved(reading)
	s.readAgain(l)
	s.dropped = false
	l.readAt = 0
	if m.target != nil {
		s.adopt(l, m.target.Organization)
		l.target, l.health, l.have, l.haveAll = m.target, m.target.Health, m.want, m.all
		if l.bucket = l.bucket.under(m.target.RateLimitPerSecond, s.clock); l.bucket != nil {
			s.shed(l, l.readsAhead())
		}
		// A refusal under the very conditions that hold now was the delivery's own: leave it alone for a while.
		if l.refused == l.health.Epoch && !l.closed() {
			l.readAt = s.now + s.o.PollInterval.Milliseconds()
		}
		l.refused, l.streak = 0, l.health.ConsecutiveFailures
		s.conform(l)
	}
	s.take(l, m.jobs, meanwhile)
	if n := len(m.jobs); n > 0 && n == m.limit && s.due(m.jobs[n-1].DueAt) {
		l.more, l.reach = true, min(2*l.reach, headSize)
	} else if m.limit > 0 {
		l.reach = minReach
	}
	s.touch(l)
}

// take takes what was read into the head: what is due, is not in memory already, and was not settled meanwhile.
func (s *scheduler) take(l *lane, jobs []webhook.Job, meanwhile map[int64]struct{}) {
	before := l.head.n
	for _, j := range jobs {
		if _, old := meanwhile[j.Delivery]; old || l.held[j.Delivery] != nil {
			continue
		}
		if !s.due(j.DueAt) {
			l.later(j.DueAt)
			continue
		}
		if !s.admit(l, j, headSize) {
			l.more = true
			l.average = max(l.average, weight(j)) // or what is too large for now would be read again and again
			if l.head.n == before {
				l.readAt = s.now + forNothing.Milliseconds()
			}
			return
		}
	}
}

// failRead has the lane read again later. A lane that cannot be read, and has nothing under way, is left to the next
// look at all pending deliveries: its subscription may be gone.
func (s *scheduler) failRead(m answer) {
	if s.stopping { // the read ended with the scheduler's context
		return
	}
	l := m.lane
	s.ail("read deliveries", m.err)
	if l.readsFailed == 0 {
		s.unread++
	}
	if l.readsFailed++; l.readsFailed > 5 && l.open() == 0 && l.wire == 0 && len(l.tests) == 0 && l.bucket.full(s.clock) {
		s.shed(l, 0)
		l.more, l.nextDue = false, 0
		s.times.set(l, 0)
		s.readAgain(l)
		s.dropped = true
		s.leave(l)
		return
	}
	l.readAt = s.now + s.o.PollInterval.Milliseconds()
	s.touch(l)
}

// readAgain notes that no failed read of the lane is to be tried again.
func (s *scheduler) readAgain(l *lane) {
	if l.readsFailed > 0 {
		s.unread--
	}
	l.readsFailed = 0
}
