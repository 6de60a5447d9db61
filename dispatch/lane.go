package dispatch

import (
	"container/heap"
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

	refusedAt time.Time // when the store first refused to record its end
	recorded  uint64    // how many others it had recorded by then
	troubled  bool      // all wait until its end is recorded

	row      int64
	epoch    int64   // in which it began
	failures int     // in a row, of the subscription, when it went on the wire
	changes  uint64  // that the scheduler had read by then
	target   *target // as it was then
	settled  webhook.Settled
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
func (q *queue) unpop(a *attempt) {
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
	tenant       *tenant // its organization

	// What is known of the subscription. It holds while have is want and haveAll the scheduler's count of changes to all.
	target           *target
	health           webhook.Health
	bucket           *bucket // of its rate limit; nil where it has none
	want, have       uint64
	haveAll          uint64
	shut             bool  // known to be closed: its jobs are dropped and the table is left alone
	refused          int64 // the epoch in which a Begin was refused; 0: none
	readAt           int64 // no read before; after one that failed or was for nothing
	readsFailed      int   // in a row
	reading          bool
	settledMeanwhile map[int64]struct{} // deliveries settled while reading: what is read of them may be old

	// What waits. Every delivery in memory is in held, whatever its stage, so that none is taken up twice.
	held    map[int64]*attempt
	head    queue // due, and not begun
	chosen  int   // their Begin is under way
	begun   queue // waiting for a slot
	wire    int   // requests on the wire, tests included
	tests   []*slot
	bytes   int   // weight of all but those whose request has ended
	average int   // weight of a job, lately
	reach   int   // how many jobs to read at a time: more, the more of those last read were due
	more    bool  // the table may hold due deliveries that are not in held
	late    bool  // its first delivery has waited for long, and nobody asked for that
	nextDue int64 // when the earliest of the others in the table is due; 0: none is known

	// How the last requests ended. The store hears of that a little later, and says what it makes of it later still.
	streak int // failures since the last success
	doubts int // failures that are not settled

	// How many requests ended in the present round of Begin and in the one before.
	round       uint64
	ended, past int

	inRing [rings]bool
	after  [rings]*lane
	wakeAt int64
	place  int // in the timetable, from 1; 0: not in it
}

func newLane(subscription int64) *lane {
	return &lane{subscription: subscription, want: 1, held: map[int64]*attempt{}, average: 4 << 10, reach: minReach}
}

// open counts the attempts that have been chosen and are not settled.
func (l *lane) open() int { return len(l.held) - l.head.n }

// idle reports whether there is nothing to do or to wait for.
func (l *lane) idle() bool {
	return len(l.held) == 0 && l.wire == 0 && len(l.tests) == 0 && !l.reading && !l.more && l.nextDue == 0
}

func (l *lane) failing() bool { return l.health.Status == webhook.Failing }

// closed reports whether nothing may be sent, as far as is known.
func (l *lane) closed() bool { return !l.target.Open || l.health.Status == webhook.Disabled }

// dying reports whether the lane will be failing once its last failures are settled: what goes on the wire before that
// would be wasted.
func (l *lane) dying(failingAfter int) bool { return l.doubts > 0 && l.streak >= failingAfter }

// pace is how many requests have ended during the last two rounds of Begin: how many more it pays to have begun when
// their slots become free. A lane that hangs has none.
func (l *lane) pace(round uint64) int {
	switch l.round {
	case round:
		return l.ended + l.past
	case round - 1:
		return l.ended
	}
	return 0
}

func (l *lane) countEnd(round uint64) {
	if l.round != round {
		l.past = 0
		if l.round == round-1 {
			l.past = l.ended
		}
		l.round, l.ended = round, 0
	}
	l.ended++
}

// later notes that a delivery is due at the given time.
func (l *lane) later(at int64) {
	if l.nextDue == 0 || at < l.nextDue {
		l.nextDue = at
	}
}

// The rings that a lane can be in: what it waits for a turn to do. Each turn takes a part of a resource that all
// organizations share, which stands behind the dash.
const (
	toBegin  = iota // healthy, with jobs that may begin - attempts begun ahead of a slot, of both sorts
	toProbe         // failing, with a probe that may begin - open probes
	toLaunch        // with begun attempts, or tests, that may go on the wire - slots
	toRead          // with something to read from the store - readers
	toMemory        // with jobs to read, once there is room for them - bytes in memory
	rings
)

// ring is a round of the lanes of one organization that take turns. A lane is in it at most once. The lane's reason to be
// in it may have passed when its turn comes.
type ring struct {
	kind        int
	first, last *lane
}

func (r *ring) push(l *lane) {
	if l.inRing[r.kind] {
		return
	}
	l.inRing[r.kind], l.after[r.kind] = true, nil
	if r.first == nil {
		r.first = l
	} else {
		r.last.after[r.kind] = l
	}
	r.last = l
}

func (r *ring) pop() *lane {
	l := r.first
	if l != nil {
		r.first, l.after[r.kind] = l.after[r.kind], nil
		l.inRing[r.kind] = false
	}
	return l
}

// timetable orders the lanes that wait for a time by that time.
type timetable []*lane

// set has the lane woken at the given time; 0: not at all.
func (t *timetable) set(l *lane, at int64) {
	before := l.wakeAt
	l.wakeAt = at
	switch {
	case at == before:
	case at == 0:
		heap.Remove(t, l.place-1)
	case before == 0:
		heap.Push(t, l)
	default:
		heap.Fix(t, l.place-1)
	}
}

// Len, Less, Swap, Push and Pop make it a heap.
func (t timetable) Len() int           { return len(t) }
func (t timetable) Less(i, j int) bool { return t[i].wakeAt < t[j].wakeAt }
func (t timetable) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].place, t[j].place = i+1, j+1
}
func (t *timetable) Push(x any) {
	l := x.(*lane)
	*t = append(*t, l)
	l.place = len(*t)
}
func (t *timetable) Pop() any {
	last := len(*t) - 1
	l := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	l.place = 0
	return l
}
