package dispatch

import (
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// attempt is a job on its way through a lane: held, then begun (recorded in the store), then on the wire, then recorded
// again with its end.
type attempt struct {
	webhook.Job
	lane *lane
	next *attempt // in the queue that it is in

	weight int  // in memory; 0 once its request has ended
	probe  bool // of a failing lane
	failed bool // on the wire

	recordFailedAt time.Time // when the store first refused to record its end
	recordedBefore uint64    // how many others it had recorded by then
	blocksSending  bool      // all wait until its end is recorded

	row         int64
	epoch       int64           // in which it began
	failures    int             // in a row, of the subscription, when it went on the wire
	changesRead uint64          // that the scheduler had read by then
	target      *preparedTarget // as it was then
	settled     webhook.Settled
}

// queue is a list of attempts, first in, first out.
type queue struct {
	first, last *attempt
	n           int
}

func (q *queue) push(a *attempt) {
	a.next = nil
	if q.n == 0 {
		q.first = a
	} else {
		q.last.next = a
	}
	q.last = a
	q.n++
}

// unpop undoes a pop.
func (q *queue) pushFront(a *attempt) {
	a.next = q.first
	q.first = a
	if q.n == 0 {
		q.last = a
	}
	q.n++
}

func (q *queue) pop() *attempt {
	a := q.first
	if a != nil {
		q.first, a.next = a.next, nil
		q.n--
	}
	return a
}

// lane is the way to one subscription, while it has pending deliveries. The scheduler's goroutine owns it.
type lane struct {
	subscription int64
	org          *orgLanes // its organization

	// What is known of the subscription. It holds while have is want and haveAll the scheduler's count of changes to all.
	target                   *preparedTarget
	health                   webhook.Health
	bucket                   *bucket // of its rate limit; nil where it has none
	wantVersion, haveVersion uint64
	haveGlobalVersion        uint64
	parked                   bool  // known to be closed: its jobs are dropped and the table is left alone
	refusedEpoch             int64 // the epoch in which a Begin was refused; 0: none
	readAfter                int64 // no read before; after one that failed or was for nothing
	failedReads              int   // in a row
	reading                  bool
	settledDuringRead        map[int64]struct{} // deliveries settled while reading: what is read of them may be old

	// What waits. Every delivery in memory is in held, whatever its stage, so that none is taken up twice.
	attempts      map[int64]*attempt
	head          queue // due, and not begun
	beginning     int   // their Begin is under way
	begun         queue // waiting for a slot
	sending       int   // requests on the wire, tests included
	tests         []*testSlot
	bytes         int   // weight of all but those whose request has ended
	averageWeight int   // weight of a job, lately
	readSize      int   // how many jobs to read at a time: more, the more of those last read were due
	tableHasMore  bool  // the table may hold due deliveries that are not in held
	late          bool  // its first delivery has waited for long, and nobody asked for that
	nextDue       int64 // when the earliest of the others in the table is due; 0: none is known

	// How the last requests ended. The store hears of that a little later, and says what it makes of it later still.
	failureStreak     int // failures since the last success
	unsettledFailures int // failures that are not settled

	// How many requests ended in the present round of Begin and in the one before.
	endRound                       uint64
	endedThisRound, endedLastRound int

	waitsFor       [resourceKinds]bool
	nextWaiting    [resourceKinds]*lane
	wakeAt         int64
	timetableIndex int // in the timetable, from 1; 0: not in it
}

func newLane(subscription int64) *lane {
	return &lane{subscription: subscription, wantVersion: 1, attempts: map[int64]*attempt{}, averageWeight: 4 << 10, readSize: minReadSize}
}

// open counts the attempts that have been chosen and are not settled.
func (l *lane) unsettled() int { return len(l.attempts) - l.head.n }

// idle reports whether there is nothing to do or to wait for.
func (l *lane) isIdle() bool {
	return len(l.attempts) == 0 && l.sending == 0 && len(l.tests) == 0 && !l.reading && !l.tableHasMore && l.nextDue == 0
}

func (l *lane) isFailing() bool { return l.health.Status == webhook.Failing }

// closed reports whether nothing may be sent, as far as is known.
func (l *lane) isClosed() bool { return !l.target.Open || l.health.Status == webhook.Disabled }

// dying reports whether the lane will be failing once its last failures are settled: what goes on the wire before that
// would be wasted.
func (l *lane) willFail(failingAfter int) bool {
	return l.unsettledFailures > 0 && l.failureStreak >= failingAfter
}

// pace is how many requests have ended during the last two rounds of Begin: how many more it pays to have begun when
// their slots become free. A lane that hangs has none.
func (l *lane) recentEnds(round uint64) int {
	switch l.endRound {
	case round:
		return l.endedThisRound + l.endedLastRound
	case round - 1:
		return l.endedThisRound
	}
	return 0
}

func (l *lane) countEnd(round uint64) {
	if l.endRound != round {
		l.endedLastRound = 0
		if l.endRound == round-1 {
			l.endedLastRound = l.endedThisRound
		}
		l.endRound, l.endedThisRound = round, 0
	}
	l.endedThisRound++
}

// later notes that a delivery is due at the given time.
func (l *lane) noteDue(at int64) {
	if l.nextDue == 0 || at < l.nextDue {
		l.nextDue = at
	}
}
