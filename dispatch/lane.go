package dispatch

import (
	"time"

	"github.com/keyhook/keyhook/dispatch/fair"
	"github.com/keyhook/keyhook/dispatch/sender"
	"github.com/keyhook/keyhook/storage/webhook"
)

// stage says how far an attempt has come. After the semicolon are the next stages that the package comment does not show.
type stage uint8

const (
	gone      stage = iota // not in memory, the store knows the delivery; begun, releasing: the delivery is new
	queued                 // due, in the head of its lane; gone: the head shrinks
	beginning              // being recorded; queued: the store fails; gone: it refuses; releasing
	begun                  // on record, waits for a slot; releasing
	releasing              // must not be sent, its record is being deleted; gone
	sending                // its request is in progress; begun, releasing: a change came first; gone: interrupted
	ended                  // its request has ended, result being recorded; gone: interrupted
	settled                // its result is on record, it has left memory
	stageCount
)

type stageCounts [stageCount]int

// unsettled returns how many attempts were taken from a head and have not left memory.
func (c *stageCounts) unsettled() int {
	return c[beginning] + c[begun] + c[releasing] + c[sending] + c[ended]
}

// attempt is a job in a lane. The scheduler's goroutine owns it: other goroutines get copies of what they need.
type attempt struct {
	webhook.Job
	lane  *lane
	next  *attempt // in the same queue
	stage stage

	weight int   // in memory; 0 after its request has ended, or without a body that may be sent
	epoch  int64 // of the subscription when it was taken from the head
	probe  bool  // taken from the head of a failing lane
	row    int64 // of its record
	failed bool  // its request failed

	recordFailedAt time.Time // when saving its result first failed
	savedBefore    uint64    // results that the store had saved by then
	blocksSending  bool      // no lane sends until its result is saved
	setAside       bool      // its result alone cannot be saved, and blocks only its lane
}

type attemptKey struct{ subscription, delivery int64 }

type queue struct{ first, last *attempt }

func (q *queue) push(a *attempt) {
	a.next = nil
	if q.first == nil {
		q.first = a
	} else {
		q.last.next = a
	}
	q.last = a
}

// pushFront undoes a pop.
func (q *queue) pushFront(a *attempt) {
	a.next = q.first
	q.first = a
	if a.next == nil {
		q.last = a
	}
}

func (q *queue) pop() *attempt {
	a := q.first
	if a != nil {
		q.first, a.next = a.next, nil
	}
	return a
}

// lane is the queue of one subscription while it has pending deliveries. The scheduler's goroutine owns it.
type lane struct {
	subscription int64
	org          *orgLanes // of its organization
	knownSubscription

	attempts map[int64]*attempt // every delivery in memory, in any stage, so that none is queued twice
	stages   stageCounts        // of attempts
	head     queue              // of the queued attempts
	begun    queue              // of the begun attempts
	tests    laneTests
	memory   laneMemory

	table  laneTable
	recent recentResults

	parked bool // its subscription is closed: its jobs are dropped, and the table is not read
	late   bool // its first delivery has waited for long, and no owner's setting explains that

	turns     [resourceKinds]fair.Turn[*lane]
	wakeAt    int64 // 0: none
	wakeIndex int   // in the timetable, from 1; 0: not in it
	room      room  // for new deliveries, as openings knows it
}

// knownSubscription is the cached state of a lane's subscription. It is current if version equals wantVersion.
type knownSubscription struct {
	target               *sender.Target // nil: never read
	gate                 webhook.Gate   // of target, with the latest health
	sends                bool           // attempts could begin when the health was read
	bucket               *fair.Bucket   // of its rate limit; nil: no limit
	version, wantVersion uint64
	refusedEpoch         int64 // the epoch in which the store refused a Begin; 0: none
}

// laneTable is what a lane knows about its deliveries in the table, and how it reads them.
type laneTable struct {
	hasMore bool  // the table may hold due deliveries that are not in memory
	nextDue int64 // earliest due time of the deliveries in the table; 0: unknown
	blocked int64 // until when the first delivery of an ordered lane waits for its next attempt, and the others behind it; 0: it does not

	read        *laneRead // that runs now; nil: none
	readAfter   int64     // no read before this time, after a read that failed or found no room
	readSize    int       // jobs per read; it grows while the jobs that were read are due
	failedReads int       // in a row
}

// laneTests are the tests of a subscription. They use slots like attempts.
type laneTests struct {
	waiting []*testSlot
	running int
}

type laneMemory struct {
	used       int // weight of all attempts whose request has not ended
	averageJob int // moving average of the weight of a job
}

// recentResults tell how the last requests of a lane ended. The store learns this later, and updates the health later still.
type recentResults struct {
	failureStreak     int // failures since the last success
	unsettledFailures int // failures whose attempts are not settled
	setAside          int // attempts whose results are set aside
	ends              endCounter
}

func newLane(subscription int64) *lane {
	return &lane{
		subscription: subscription, knownSubscription: knownSubscription{wantVersion: 1}, attempts: map[int64]*attempt{},
		memory: laneMemory{averageJob: 4 << 10}, table: laneTable{readSize: minReadSize},
	}
}

func (k *knownSubscription) isCurrent() bool { return k.target != nil && k.version == k.wantVersion }

// requests returns how many requests are in progress, including tests.
func (l *lane) requests() int { return l.stages[sending] + l.tests.running }

func (t *laneTests) any() bool { return len(t.waiting)+t.running > 0 }

// isFailing reports whether the lane gets one probe at a time: its subscription is failing, or it is disabled and its probe is due.
func (l *lane) isFailing() bool { return l.gate.Status == webhook.Failing || l.probesDisabled() }

func (l *lane) probesDisabled() bool { return l.gate.Status == webhook.Disabled && l.sends }

func (s *scheduler) setHealth(l *lane, h webhook.Health) {
	l.gate = l.target.Gate
	l.gate.Health = h
	l.sends = l.gate.Sends(s.now)
	if l.isFailing() { // its probe is the delivery that is due first, which is read when the probe is due
		s.lanes.trimHead(l, 0)
		if l.table.read != nil {
			l.table.read.stale = true
		}
	}
}

func (s *scheduler) probeIsDue(l *lane) bool { return l.probesDisabled() || s.isDue(l.gate.ProbeAt) }

// noteDue records the due time of a delivery in the table; 0 is none.
func (t *laneTable) noteDue(at int64) {
	if at != 0 && (t.nextDue == 0 || at < t.nextDue) {
		t.nextDue = at
	}
}
