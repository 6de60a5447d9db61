package dispatch

import (
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// attempt is a job in a lane. It is queued in the head, then begun (recorded in the store), then sent, then settled
// (its result is recorded).
type attempt struct {
	webhook.Job
	lane *lane
	next *attempt // in the same queue

	weight int  // in memory; 0 after its request has ended
	probe  bool // of a failing lane
	failed bool // its request failed

	recordFailedAt time.Time // when saving its result first failed
	recordedBefore uint64    // results that the store had saved by then
	blocksSending  bool      // no lane sends until its result is saved

	row         int64
	epoch       int64           // of the subscription when it was begun
	failures    int             // consecutive failures of the subscription when it was sent
	changesRead uint64          // calls of SubscriptionsChanged that the scheduler had read when it was sent
	target      *preparedTarget // when it was sent
	settled     webhook.Settled
}

// queue is a first-in, first-out list of attempts.
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

// pushFront undoes a pop.
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

// lane is the queue of one subscription while it has pending deliveries. The scheduler's goroutine owns it.
type lane struct {
	subscription int64
	org          *orgLanes // of its organization

	// Cached state of the subscription. It is current if haveVersion equals wantVersion and haveGlobalVersion equals
	// the scheduler's globalVersion.
	target                   *preparedTarget
	health                   webhook.Health
	bucket                   *bucket // of its rate limit; nil: no limit
	wantVersion, haveVersion uint64
	haveGlobalVersion        uint64
	parked                   bool  // its subscription is closed: its jobs are dropped, and the table is not read
	refusedEpoch             int64 // the epoch in which the store refused a Begin; 0: none
	readAfter                int64 // no read before this time, after a read that failed or found no room
	failedReads              int   // in a row
	reading                  bool
	settledDuringRead        map[int64]struct{} // deliveries settled during a read, whose result may be old

	// Work. attempts holds every delivery in memory, in any stage, so that no delivery is queued twice.
	attempts      map[int64]*attempt
	head          queue // due and not begun
	beginning     int   // in a running Begin
	begun         queue // waiting for a slot
	sending       int   // requests in progress, including tests
	tests         []*testSlot
	bytes         int   // weight of all attempts whose request has not ended
	averageWeight int   // moving average of the weight of a job
	readSize      int   // jobs per read; it grows while the jobs that were read are due
	tableHasMore  bool  // the table may hold due deliveries that are not in attempts
	late          bool  // its first delivery has waited for long, and no owner's setting explains that
	nextDue       int64 // earliest due time of the deliveries in the table; 0: unknown

	// How the last requests ended. The store learns this later, and updates the health later still.
	failureStreak     int // failures since the last success
	unsettledFailures int // failures whose attempts are not settled

	ends endCounter

	waitsFor       [resourceKinds]bool
	nextWaiting    [resourceKinds]*lane
	wakeAt         int64
	timetableIndex int // from 1; 0: not in the timetable
}

func newLane(subscription int64) *lane {
	return &lane{subscription: subscription, wantVersion: 1, attempts: map[int64]*attempt{}, averageWeight: 4 << 10, readSize: minReadSize}
}

// unsettled returns how many attempts were taken from the head and are not settled.
func (l *lane) unsettled() int { return len(l.attempts) - l.head.n }

// isIdle reports whether the lane has no work and waits for nothing.
func (l *lane) isIdle() bool {
	return len(l.attempts) == 0 && l.sending == 0 && len(l.tests) == 0 && !l.reading && !l.tableHasMore && l.nextDue == 0
}

func (l *lane) isFailing() bool { return l.health.Status == webhook.Failing }

// isClosed reports whether the cached state forbids sending.
func (l *lane) isClosed() bool { return !l.target.Open || l.health.Status == webhook.Disabled }

// willFail reports whether the lane will be failing once its last failures are settled. A request sent before that
// would be wasted.
func (l *lane) willFail(failingAfter int) bool {
	return l.unsettledFailures > 0 && l.failureStreak >= failingAfter
}

// noteDue records the due time of a delivery in the table.
func (l *lane) noteDue(at int64) {
	if l.nextDue == 0 || at < l.nextDue {
		l.nextDue = at
	}
}

// endCounter counts the requests of a lane that ended in a round of Begin and in the round before.
type endCounter struct {
	round         uint64
	current, last int
}

// recent returns how many requests ended in the last two rounds of Begin. About as many slots become free in the next
// one. A lane that hangs has none.
func (c *endCounter) recent(round uint64) int {
	switch c.round {
	case round:
		return c.current + c.last
	case round - 1:
		return c.current
	}
	return 0
}

// count counts a request that ended in the given round.
func (c *endCounter) count(round uint64) {
	if c.round != round {
		c.last = 0
		if c.round == round-1 {
			c.last = c.current
		}
		c.round, c.current = round, 0
	}
	c.current++
}
