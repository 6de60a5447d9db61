package dispatch

import "container/heap"

// unknown is the organization of lanes whose organization has not been read yet. They only wait for that read.
const unknownOrg = -1

// tenant is an organization with lanes: what its lanes use of the resources that all organizations share, and its lanes
// that wait for each of them. The scheduler's goroutine owns it.
type orgLanes struct {
	id     int64
	lanes  int                // all of them
	used   [resourceKinds]int // of each resource
	queues [resourceKinds]orgQueue
}

// line is a tenant's place in the order of one resource, and its lanes that wait for it.
type orgQueue struct {
	laneQueue
	heapIndex int    // in the heap, from 1; 0: no lane waits
	lastTurn  uint64 // when the tenant last got its turn, as a count of turns
}

// lane returns the lane of a subscription, and makes it where there is none. The organization may be unknown.
func (s *scheduler) laneOf(subscription, organization int64) *lane {
	l := s.lanes[subscription]
	if l == nil {
		l = newLane(subscription)
		s.lanes[subscription] = l
		s.joinOrg(l, organization)
	} else {
		s.setOrg(l, organization)
	}
	return l
}

// join makes the lane one of the organization's.
func (s *scheduler) joinOrg(l *lane, organization int64) {
	t := s.orgs[organization]
	if t == nil {
		t = &orgLanes{id: organization}
		for kind := range t.queues {
			t.queues[kind].kind = kind
		}
		s.orgs[organization] = t
	}
	l.org = t
	t.lanes++
}

// adopt moves a lane of unknown organization to the organization it belongs to. Such a lane uses nothing but a reader. It
// may still wait in the line of unknown lanes; there it keeps its turn.
func (s *scheduler) setOrg(l *lane, organization int64) {
	if l.org.id != unknownOrg || organization == unknownOrg {
		return
	}
	if l.reading {
		s.charge(l, readSlots, -1)
	}
	s.leaveOrg(l)
	s.joinOrg(l, organization)
	if l.reading {
		s.charge(l, readSlots, 1)
	}
}

// part takes a lane from its organization, and drops an organization without lanes.
func (s *scheduler) leaveOrg(l *lane) {
	if l.org.lanes--; l.org.lanes == 0 {
		delete(s.orgs, l.org.id)
	}
}

// charge counts n more of a resource as used by the lane's organization. Every change of what is used goes through it.
func (s *scheduler) charge(l *lane, kind, n int) {
	s.resources[kind].used += n
	l.org.used[kind] += n
	s.resources[kind].fix(l.org)
}

// allowed is how much the lane's organization may have of a resource in all.
func (s *scheduler) allowed(l *lane, kind int) int {
	return s.resources[kind].share(l.org.used[kind])
}

// An organization alone may have all of a resource but 1/reservePart. Of the rest, each newcomer gets up to 1/newcomerPart.
const (
	reserveDivisor  = 8
	newcomerDivisor = 3
)

// pool is a resource that organizations share.
type pool struct{ capacity, used int }

// share returns how much an organization that has mine of the pool may have in all. It may take what is free beyond the
// reserve. When less is free, it may have up to half of what it leaves. So there is room before a newcomer needs it,
// however long the others hold what they have: of 256 slots, one organization leaves 32, and so do ten. The first
// newcomer beside them gets 10 at once, the next 7, the next 5.
func (p pool) share(mine int) int {
	left := max(p.capacity-p.used+mine, 0) // by the others
	return max(left-p.capacity/reserveDivisor, left/newcomerDivisor)
}

// allows reports whether an organization that has mine of the pool may have n more. One that has nothing may, whenever
// there is room at all.
func (p pool) allows(mine, n int) bool {
	return p.used+n <= p.capacity && (mine == 0 || mine+n <= p.share(mine))
}

// turns is a shared resource, and the organizations with lanes that wait for it. The organization that uses the least of
// it goes first, and among equals the one whose last turn is the longest ago; within an organization, its lanes take
// turns. What the first may not have, nobody may: so a round costs what it hands out, not what waits.
type resource struct {
	pool
	kind    int
	waiting []*orgLanes // a heap
	turns   uint64      // turns so far
}

// push puts a lane in line.
func (q *resource) wait(l *lane) {
	if l.waitsFor[q.kind] {
		return
	}
	line := &l.org.queues[q.kind]
	line.push(l)
	if line.heapIndex == 0 {
		line.lastTurn = q.turns
		heap.Push(q, l.org)
	}
}

// ready reports whether there is a lane in line whose organization may have n more.
func (q *resource) hasNext(n int) bool {
	return len(q.waiting) > 0 && q.allows(q.waiting[0].used[q.kind], n)
}

// next takes the lane whose turn it is out of its line; nil where none waits whose organization may have n more.
func (q *resource) next(n int) *lane {
	if !q.hasNext(n) {
		return nil
	}
	t := q.waiting[0]
	line := &t.queues[q.kind]
	l := line.pop()
	q.turns++
	if line.lastTurn = q.turns; line.first == nil {
		heap.Remove(q, 0)
	} else {
		heap.Fix(q, 0)
	}
	return l
}

// fix puts a tenant in its place after its use has changed.
func (q *resource) fix(t *orgLanes) {
	if place := t.queues[q.kind].heapIndex; place > 0 && len(q.waiting) > 1 {
		heap.Fix(q, place-1)
	}
}

// Len, Less, Swap, Push and Pop make it a heap.
func (q *resource) Len() int { return len(q.waiting) }
func (q *resource) Less(i, j int) bool {
	a, b := q.waiting[i], q.waiting[j]
	if a.used[q.kind] != b.used[q.kind] {
		return a.used[q.kind] < b.used[q.kind]
	}
	return a.queues[q.kind].lastTurn < b.queues[q.kind].lastTurn
}
func (q *resource) Swap(i, j int) {
	q.waiting[i], q.waiting[j] = q.waiting[j], q.waiting[i]
	q.waiting[i].queues[q.kind].heapIndex, q.waiting[j].queues[q.kind].heapIndex = i+1, j+1
}
func (q *resource) Push(x any) {
	t := x.(*orgLanes)
	q.waiting = append(q.waiting, t)
	t.queues[q.kind].heapIndex = len(q.waiting)
}
func (q *resource) Pop() any {
	last := len(q.waiting) - 1
	t := q.waiting[last]
	q.waiting[last] = nil
	q.waiting = q.waiting[:last]
	t.queues[q.kind].heapIndex = 0
	return t
}

// The rings that a lane can be in: what it waits for a turn to do. Each turn takes a part of a resource that all
// organizations share, which stands behind the dash.
const (
	beginPlaces = iota // healthy, with jobs that may begin - attempts begun ahead of a slot, of both sorts
	probePlaces        // failing, with a probe that may begin - open probes
	sendSlots          // with begun attempts, or tests, that may go on the wire - slots
	readSlots          // with something to read from the store - readers
	memoryBytes        // with jobs to read, once there is room for them - bytes in memory
	resourceKinds
)

// ring is a round of the lanes of one organization that take turns. A lane is in it at most once. The lane's reason to be
// in it may have passed when its turn comes.
type laneQueue struct {
	kind        int
	first, last *lane
}

func (r *laneQueue) push(l *lane) {
	if l.waitsFor[r.kind] {
		return
	}
	l.waitsFor[r.kind], l.nextWaiting[r.kind] = true, nil
	if r.first == nil {
		r.first = l
	} else {
		r.last.nextWaiting[r.kind] = l
	}
	r.last = l
}

func (r *laneQueue) pop() *lane {
	l := r.first
	if l != nil {
		r.first, l.nextWaiting[r.kind] = l.nextWaiting[r.kind], nil
		l.waitsFor[r.kind] = false
	}
	return l
}
