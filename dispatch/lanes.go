package dispatch

import (
	"github.com/keyhook/keyhook/dispatch/fair"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The resources that organizations share. The comment says when a lane waits for one, and what is counted.
const (
	beginPlaces = iota // a healthy lane has jobs to begin; counts attempts begun and not sent, without probes
	probePlaces        // a failing lane has a probe to begin; counts open probes
	sendSlots          // a lane has begun attempts or tests to send; counts requests in progress
	readSlots          // a lane must read from the store; counts running reads
	memoryBytes        // a lane has jobs to read but no room; counts bytes
	resourceKinds
)

// unknownOrg stands for the organization of a lane until it is read. Such a lane can only wait for that read.
const unknownOrg = -1

// lanes is the table of the lanes in memory, with everything that is counted about them. Only its methods change the stage of an
// attempt, and the counters that depend on stages. In tests, each counter is derived again from the stages after each round. It
// decides nothing: the scheduler does.
type lanes struct {
	of        map[int64]*lane                     // by subscription
	orgs      map[int64]*orgLanes                 // by organization row
	resources [resourceKinds]fair.Resource[*lane] // shared by the organizations, with the lanes that wait for them
	openings  *openings                           // know the begin places that are in use
	taken     fair.Account[*lane]                 // of begin places, as of the last call of chargeTaken
	stages    stageCounts                         // of the attempts of all lanes
	bodies    bodies

	toRelease    []*attempt // at the end of the round
	blocking     int        // results that the store fails to save; while there are any, nothing is sent
	failingReads int        // lanes whose last read failed
	late         int        // late lanes

	onMove func(a *attempt, to stage) // see checks
}

// orgLanes is an organization with lanes: what its lanes use of the shared resources, and which lanes wait for them.
type orgLanes struct {
	id       int64
	lanes    int // number of lanes
	accounts [resourceKinds]fair.Account[*lane]
}

func (o *orgLanes) used(kind int) int { return o.accounts[kind].Used() }

func newLanes(o Options, opened *openings, onMove func(*attempt, stage)) lanes {
	t := lanes{of: map[int64]*lane{}, orgs: map[int64]*orgLanes{}, openings: opened, bodies: bodies{}, onMove: onMove}
	for kind, all := range [resourceKinds]int{
		beginPlaces: maxBegunPerSlot * o.Concurrency, probePlaces: max(o.Concurrency/2, 1), sendSlots: o.Concurrency, readSlots: maxReads, memoryBytes: maxMemory,
	} {
		t.resources[kind].Capacity = all
	}
	return t
}

// find returns an attempt that is in memory. Its lane stays in memory at least as long.
func (t *lanes) find(k attemptKey) *attempt { return t.of[k.subscription].attempts[k.delivery] }

// laneOf returns the lane of a subscription and makes it if there is none. The organization may be unknownOrg.
func (t *lanes) laneOf(subscription, organization int64) *lane {
	l := t.of[subscription]
	if l == nil {
		l = newLane(subscription)
		t.of[subscription] = l
		t.joinOrg(l, organization)
	} else {
		t.setOrg(l, organization)
	}
	return l
}

func (t *lanes) joinOrg(l *lane, organization int64) {
	org := t.orgs[organization]
	if org == nil {
		org = &orgLanes{id: organization}
		t.orgs[organization] = org
	}
	l.org = org
	org.lanes++
}

// setOrg moves a lane from unknownOrg to its organization. Until then the lane uses at most a read. It may still wait
// in the queue of unknownOrg, and keeps its turn there.
func (t *lanes) setOrg(l *lane, organization int64) {
	if l.org.id != unknownOrg || organization == unknownOrg {
		return
	}
	reads := one(l.table.read != nil)
	t.charge(l, readSlots, -reads)
	t.leaveOrg(l)
	t.joinOrg(l, organization)
	t.charge(l, readSlots, reads)
}

// leaveOrg removes a lane from its organization, and drops an organization without lanes.
func (t *lanes) leaveOrg(l *lane) {
	if l.org.lanes--; l.org.lanes == 0 {
		delete(t.orgs, l.org.id)
	}
}

// charge adds n to what the lane's organization uses of a resource. It is the only place that changes this.
func (t *lanes) charge(l *lane, kind, n int) {
	t.resources[kind].Charge(&l.org.accounts[kind], n)
	if kind == beginPlaces {
		t.openings.count(l.org.id, n)
	}
}

// chargeTaken charges the begin places that transactions in progress have taken, and returns their number. Otherwise an
// organization could get these places twice, and leave none to others.
func (t *lanes) chargeTaken() int {
	places, before := &t.resources[beginPlaces], t.taken.Used()
	now := t.openings.taken(places.Used - before)
	places.Charge(&t.taken, now-before)
	return now
}

// wait makes a lane wait for its turn at a resource. When its turn comes, it may not need it any more.
func (t *lanes) wait(l *lane, kind int) {
	t.resources[kind].Wait(&l.org.accounts[kind], &l.turns[kind], l)
}

func (t *lanes) allowed(l *lane, kind int) int { return t.resources[kind].Share(l.org.used(kind)) }

func (t *lanes) orgHasRoom(l *lane, bytes int) bool {
	return t.resources[memoryBytes].Allows(l.org.used(memoryBytes), bytes)
}

// laneRoom returns how many more bytes the lane may use. It shrinks as the room of its organization shrinks.
func (t *lanes) laneRoom(l *lane) int {
	return (t.allowed(l, memoryBytes)-l.org.used(memoryBytes))/4 - l.memory.used
}

func (t *lanes) hasRoom(l *lane, weight int) bool {
	return t.orgHasRoom(l, weight) && (l.memory.used == 0 || weight <= t.laneRoom(l))
}

func (t *lanes) move(a *attempt, to stage) {
	if t.onMove != nil {
		t.onMove(a, to)
	}
	t.count(a, -1)
	a.stage = to
	t.count(a, 1)
	if to == ended || to == settled || to == gone {
		t.dropBody(a)
	}
	if to == settled || to == gone {
		delete(a.lane.attempts, a.Delivery)
	}
}

// one is 1 for true, for counters.
func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// count adds n to every counter that counts an attempt in its stage.
func (t *lanes) count(a *attempt, n int) {
	if a.stage == gone || a.stage == settled {
		return
	}
	l := a.lane
	l.stages[a.stage] += n
	t.stages[a.stage] += n
	switch a.stage {
	case beginning, begun:
		t.charge(l, beginPlaces, n*one(!a.probe))
	case sending:
		t.charge(l, sendSlots, n)
	case ended:
		l.recent.unsettledFailures += n * one(a.failed)
		l.recent.setAside += n * one(a.setAside)
		t.blocking += n * one(a.blocksSending)
	}
	if a.probe && a.stage != queued {
		t.charge(l, probePlaces, n)
	}
}

func (t *lanes) enqueue(l *lane, j webhook.Job) {
	a := &attempt{Job: j, lane: l}
	l.attempts[j.Delivery] = a
	l.head.push(a)
	t.keepBody(a)
	t.move(a, queued)
}

func (t *lanes) keepBody(a *attempt) {
	a.weight = weight(a.Job)
	a.lane.memory.used += a.weight
	t.charge(a.lane, memoryBytes, jobWeight+t.bodies.add(&a.Job))
}

func (t *lanes) dropBody(a *attempt) {
	if a.weight == 0 {
		return
	}
	a.lane.memory.used -= a.weight
	t.charge(a.lane, memoryBytes, -jobWeight-t.bodies.remove(a.Event))
	a.weight, a.Body = 0, nil
}

func (t *lanes) takeFromHead(l *lane) *attempt {
	a := l.head.pop()
	a.epoch, a.probe = l.gate.Epoch, l.isFailing()
	t.move(a, beginning)
	return a
}

// returnToHead returns an attempt that was not begun to the head of its lane. Without a body, the attempt is read again.
func (t *lanes) returnToHead(a *attempt) {
	if a.weight == 0 {
		t.move(a, gone)
		t.restartOrder(a.lane)
		a.lane.table.hasMore = !a.lane.parked
		return
	}
	a.lane.head.pushFront(a)
	t.move(a, queued)
}

func (t *lanes) queueForSending(a *attempt) {
	a.lane.begun.push(a)
	t.move(a, begun)
}

// release deletes the record of an attempt at the end of the round.
func (t *lanes) release(a *attempt) {
	t.toRelease = append(t.toRelease, a)
	t.move(a, releasing)
}

func (t *lanes) takeBegun(l *lane) *attempt {
	a := l.begun.pop()
	t.move(a, sending)
	return a
}

// setBlocksSending says whether the result of an ended attempt stops all sending, or is set aside.
func (t *lanes) setBlocksSending(a *attempt, blocks bool) {
	t.count(a, -1)
	a.blocksSending, a.setAside = blocks, !blocks
	t.count(a, 1)
}

func (t *lanes) startTest(l *lane) {
	test := l.tests.waiting[0]
	l.tests.waiting = l.tests.waiting[1:]
	test.granted = true
	t.countTest(l, 1)
	test.reply <- true
}

func (t *lanes) countTest(l *lane, n int) {
	l.tests.running += n
	t.charge(l, sendSlots, n)
}

// setRead sets the read of the lane that runs; nil: it has ended.
func (t *lanes) setRead(l *lane, r *laneRead) {
	t.charge(l, readSlots, one(r != nil)-one(l.table.read != nil))
	l.table.read = r
}

func (t *lanes) setFailedReads(l *lane, n int) {
	t.failingReads += one(n > 0) - one(l.table.failedReads > 0)
	l.table.failedReads = n
}

func (t *lanes) setLate(l *lane, late bool) {
	t.late += one(late) - one(l.late)
	l.late = late
}

// trimHead keeps the first n jobs of the head and leaves the rest to the table.
func (t *lanes) trimHead(l *lane, n int) {
	if l.stages[queued] <= n {
		return
	}
	rest := l.head
	l.head = queue{}
	for range n {
		l.head.push(rest.pop())
	}
	for a := rest.pop(); a != nil; a = rest.pop() {
		t.move(a, gone)
	}
	l.table.hasMore = !l.parked
}

// restartOrder drops the head of an ordered lane, so that it is read again from the first pending delivery.
func (t *lanes) restartOrder(l *lane) {
	if l.isOrdered() {
		t.trimHead(l, 0)
	}
}

// blockOrder makes an ordered lane wait until the failed delivery is due again.
func (t *lanes) blockOrder(a *attempt, due int64) {
	if a.lane.isOrdered() && a.Sequence > 0 {
		t.trimHead(a.lane, 0)
		a.lane.table.blocked = due
	}
}
