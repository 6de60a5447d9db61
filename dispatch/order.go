package dispatch

import (
	"slices"

	"github.com/keyhook/keyhook/storage/webhook"
)

// The lane of an ordered subscription makes one request at a time, in the order of publication. Its head holds redeliveries, which
// are outside the order, and the next deliveries of the order without a gap. If a gap is possible, the head is dropped and read again
// from the first pending delivery. The store refuses an attempt that is not next, so a mistake here costs time, and not the order.

// isOrdered reports whether the subscription is ordered, as far as the lane knows.
func (l *lane) isOrdered() bool { return l.target != nil && l.target.Ordered }

func (l *lane) isQuiet() bool { return l.stages.unsettled() == 0 && l.requests() == 0 }

// leaveInTable reports whether a new job stays in the table for now: of an ordered lane, because it would make a gap in the head, of a
// failing lane, because the probe may be another delivery, and else behind older ones, if there is memory to read them.
func (s *scheduler) leaveInTable(l *lane, j webhook.Job) bool {
	switch {
	case l.isFailing():
		l.table.hasMore = true
	case !l.isOrdered():
		return l.table.hasMore && s.lanes.laneRoom(l) >= l.memory.averageJob
	case l.table.read != nil && j.Sequence > 0:
		l.table.read.arrived = true
	case l.table.read != nil:
		l.table.hasMore = true
	case l.table.blocked == 0 && !l.table.hasMore || j.Sequence == 0:
		return false
	}
	return true
}

// addInOrder adds the jobs of a read to the head of an ordered lane, up to the first of the order that is not due. The jobs may have a
// gap if attempts have ended or begun during the read, and lack those that came during it. It reports whether more due jobs may follow.
func (s *scheduler) addInOrder(l *lane, m *laneRead) (full bool) {
	if m.usedLimit == 0 || len(m.settled) > 0 || l.stages.unsettled() > 0 {
		l.table.hasMore = l.table.hasMore || m.usedLimit > 0 || m.arrived
		return false
	}
	first := slices.IndexFunc(m.jobs, func(j webhook.Job) bool { return j.Sequence > 0 })
	if first < 0 {
		first = len(m.jobs)
	}
	redeliveries, inOrder := m.jobs[:first], m.jobs[first:]
	dueInOrder, blocked := s.splitDue(inOrder)
	due, next := s.splitDue(redeliveries)
	l.table.blocked = blocked
	l.table.noteDue(blocked)
	l.table.noteDue(next)
	if l.isFailing() { // the probe is the first of the order
		s.addToHead(l, slices.Concat(dueInOrder, due), nil)
	} else {
		s.addToHead(l, slices.Concat(due, dueInOrder), nil)
	}
	l.table.hasMore = l.table.hasMore || m.arrived && l.table.blocked == 0
	return s.isFull(dueInOrder, m.usedLimit) || s.isFull(due, m.usedLimit)
}

// splitDue returns the jobs before the first that is not due, and the time of that one; 0 if all are due.
func (s *scheduler) splitDue(jobs []webhook.Job) (due []webhook.Job, next int64) {
	for i, j := range jobs {
		if !s.isDue(j.DueAt) {
			return jobs[:i], j.DueAt
		}
	}
	return jobs, 0
}
