package dispatch

import "container/heap"

// The resources that organizations share. The comment says when a lane waits for one, and what is counted.
const (
	beginPlaces = iota // a healthy lane has jobs to begin; counts attempts begun and not sent, probes included
	probePlaces        // a failing lane has a probe to begin; counts open probes
	sendSlots          // a lane has begun attempts or tests to send; counts requests in progress
	readSlots          // a lane must read from the store; counts running reads
	memoryBytes        // a lane has jobs to read but no room; counts bytes
	resourceKinds
)

// unknownOrg stands for the organization of a lane until it is read. Such a lane can only wait for that read.
const unknownOrg = -1

// orgLanes is an organization with lanes: what its lanes use of the shared resources, and which lanes wait for them.
// The scheduler's goroutine owns it.
type orgLanes struct {
	id     int64
	lanes  int                // number of lanes
	used   [resourceKinds]int // of each resource
	queues [resourceKinds]orgQueue
}

// orgQueue holds the lanes of an organization that wait for one resource, and the organization's place among the
// others.
type orgQueue struct {
	laneQueue
	heapIndex int    // from 1; 0: no lane waits
	lastTurn  uint64 // value of resource.turns at the organization's last turn
}

// laneOf returns the lane of a subscription and makes it if there is none. The organization may be unknownOrg.
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

// joinOrg adds the lane to an organization.
func (s *scheduler) joinOrg(l *lane, organization int64) {
	org := s.orgs[organization]
	if org == nil {
		org = &orgLanes{id: organization}
		for kind := range org.queues {
			org.queues[kind].kind = kind
		}
		s.orgs[organization] = org
	}
	l.org = org
	org.lanes++
}

// setOrg moves a lane from unknownOrg to its organization. Until then the lane uses at most a read. It may still wait
// in the queue of unknownOrg, and keeps its turn there.
func (s *scheduler) setOrg(l *lane, organization int64) {
	if l.org.id != unknownOrg || organization == unknownOrg {
		return
	}
	if l.table.reading {
		s.charge(l, readSlots, -1)
	}
	s.leaveOrg(l)
	s.joinOrg(l, organization)
	if l.table.reading {
		s.charge(l, readSlots, 1)
	}
}

// leaveOrg removes a lane from its organization, and drops an organization without lanes.
func (s *scheduler) leaveOrg(l *lane) {
	if l.org.lanes--; l.org.lanes == 0 {
		delete(s.orgs, l.org.id)
	}
}

// charge adds n to what the lane's organization uses of a resource. It is the only place that changes this.
func (s *scheduler) charge(l *lane, kind, n int) {
	s.resources[kind].used += n
	l.org.used[kind] += n
	s.resources[kind].fix(l.org)
	if kind == beginPlaces {
		s.openings.count(l.org.id, n)
	}
}

// allowed returns how much of a resource the lane's organization may use in all.
func (s *scheduler) allowed(l *lane, kind int) int {
	return s.resources[kind].share(l.org.used[kind])
}

// An organization alone may use all of a resource except 1/reserveDivisor. Of the rest, each newcomer gets up to
// 1/newcomerDivisor.
const (
	reserveDivisor  = 8
	newcomerDivisor = 3
)

// pool is an amount that organizations share.
type pool struct{ capacity, used int }

// share returns how much an organization that uses mine may use in all. It may take what is free beyond the reserve.
// When less is free, it may take half of what it leaves to others. So a newcomer always finds room, even if the others
// never return theirs. Of 256 slots, one organization leaves 32 free, and so do ten organizations. The first newcomer
// then gets 10 at once, the next 7, the next 5.
func (p pool) share(mine int) int {
	available := max(p.capacity-p.used+mine, 0) // not used by others
	return max(available-p.capacity/reserveDivisor, available/newcomerDivisor)
}

// allows reports whether an organization that uses mine may use n more. One that uses nothing may always take what is
// free.
func (p pool) allows(mine, n int) bool {
	return p.used+n <= p.capacity && (mine == 0 || mine+n <= p.share(mine))
}

// resource is a shared resource, with the organizations whose lanes wait for it. The organization that uses the least
// goes first. Among equals, the one with the oldest last turn goes first. Lanes of one organization take turns. If the
// first organization may not take more, no other may. So the cost of a round depends on what it gives out, not on how
// many wait.
type resource struct {
	pool
	kind    int
	waiting []*orgLanes // a heap
	turns   uint64      // given so far
}

// wait adds a lane to the lanes that wait.
func (q *resource) wait(l *lane) {
	if l.turns[q.kind].waits {
		return
	}
	queue := &l.org.queues[q.kind]
	queue.push(l)
	if queue.heapIndex == 0 {
		queue.lastTurn = q.turns
		heap.Push(q, l.org)
	}
}

// hasNext reports whether a lane waits whose organization may use n more.
func (q *resource) hasNext(n int) bool {
	return len(q.waiting) > 0 && q.allows(q.waiting[0].used[q.kind], n)
}

// next removes and returns the lane whose turn it is. It returns nil if no waiting organization may use n more.
func (q *resource) next(n int) *lane {
	if !q.hasNext(n) {
		return nil
	}
	org := q.waiting[0]
	queue := &org.queues[q.kind]
	l := queue.pop()
	q.turns++
	if queue.lastTurn = q.turns; queue.first == nil {
		heap.Remove(q, 0)
	} else {
		heap.Fix(q, 0)
	}
	return l
}

// fix moves an organization to its new place after its use has changed.
func (q *resource) fix(org *orgLanes) {
	if index := org.queues[q.kind].heapIndex; index > 0 && len(q.waiting) > 1 {
		heap.Fix(q, index-1)
	}
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
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

// turn is the place of a lane in a laneQueue.
type turn struct {
	waits bool
	next  *lane // in the queue
}

// laneQueue holds the lanes of one organization that take turns at one resource. A lane is in it at most once. When its
// turn comes, the lane may not need it any more.
type laneQueue struct {
	kind        int
	first, last *lane
}

func (r *laneQueue) push(l *lane) {
	if l.turns[r.kind].waits {
		return
	}
	l.turns[r.kind] = turn{waits: true}
	if r.first == nil {
		r.first = l
	} else {
		r.last.turns[r.kind].next = l
	}
	r.last = l
}

func (r *laneQueue) pop() *lane {
	l := r.first
	if l != nil {
		r.first, l.turns[r.kind].next = l.turns[r.kind].next, nil
		l.turns[r.kind].waits = false
	}
	return l
}
