package dispatch

import "container/heap"

// unknown is the organization of lanes whose organization has not been read yet. They only wait for that read.
const unknown = -1

// tenant is an organization with lanes: what its lanes use of the resources that all organizations share, and its lanes
// that wait for each of them. The scheduler's goroutine owns it.
type tenant struct {
	organization int64
	lanes        int        // all of them
	used         [rings]int // of each resource
	lines        [rings]line
}

// line is a tenant's place in the order of one resource, and its lanes that wait for it.
type line struct {
	ring
	place int    // in the heap, from 1; 0: no lane waits
	since uint64 // when the tenant last got its turn, as a count of turns
}

// lane returns the lane of a subscription, and makes it where there is none. The organization may be unknown.
func (s *scheduler) lane(subscription, organization int64) *lane {
	l := s.lanes[subscription]
	if l == nil {
		l = newLane(subscription)
		s.lanes[subscription] = l
		s.join(l, organization)
	} else {
		s.adopt(l, organization)
	}
	return l
}

// join makes the lane one of the organization's.
func (s *scheduler) join(l *lane, organization int64) {
	t := s.tenants[organization]
	if t == nil {
		t = &tenant{organization: organization}
		for kind := range t.lines {
			t.lines[kind].kind = kind
		}
		s.tenants[organization] = t
	}
	l.tenant = t
	t.lanes++
}

// adopt moves a lane of unknown organization to the organization it belongs to. Such a lane uses nothing but a reader. It
// may still wait in the line of unknown lanes; there it keeps its turn.
func (s *scheduler) adopt(l *lane, organization int64) {
	if l.tenant.organization != unknown || organization == unknown {
		return
	}
	if l.reading {
		s.charge(l, toRead, -1)
	}
	s.part(l)
	s.join(l, organization)
	if l.reading {
		s.charge(l, toRead, 1)
	}
}

// part takes a lane from its organization, and drops an organization without lanes.
func (s *scheduler) part(l *lane) {
	if l.tenant.lanes--; l.tenant.lanes == 0 {
		delete(s.tenants, l.tenant.organization)
	}
}

// charge counts n more of a resource as used by the lane's organization. Every change of what is used goes through it.
func (s *scheduler) charge(l *lane, kind, n int) {
	s.turns[kind].used += n
	l.tenant.used[kind] += n
	s.turns[kind].fix(l.tenant)
}

// allowed is how much the lane's organization may have of a resource in all.
func (s *scheduler) allowed(l *lane, kind int) int {
	return s.turns[kind].share(l.tenant.used[kind])
}

// An organization alone may have all of a resource but 1/reservePart. Of the rest, each newcomer gets up to 1/newcomerPart.
const (
	reservePart  = 8
	newcomerPart = 3
)

// pool is a resource that organizations share.
type pool struct{ all, used int }

// share returns how much an organization that has mine of the pool may have in all. It may take what is free beyond the
// reserve. When less is free, it may have up to half of what it leaves. So there is room before a newcomer needs it,
// however long the others hold what they have: of 256 slots, one organization leaves 32, and so do ten. The first
// newcomer beside them gets 10 at once, the next 7, the next 5.
func (p pool) share(mine int) int {
	left := max(p.all-p.used+mine, 0) // by the others
	return max(left-p.all/reservePart, left/newcomerPart)
}

// allows reports whether an organization that has mine of the pool may have n more. One that has nothing may, whenever
// there is room at all.
func (p pool) allows(mine, n int) bool {
	return p.used+n <= p.all && (mine == 0 || mine+n <= p.share(mine))
}

// turns is a shared resource, and the organizations with lanes that wait for it. The organization that uses the least of
// it goes first, and among equals the one whose last turn is the longest ago; within an organization, its lanes take
// turns. What the first may not have, nobody may: so a round costs what it hands out, not what waits.
type turns struct {
	pool
	kind    int
	waiting []*tenant // a heap
	taken   uint64    // turns so far
}

// push puts a lane in line.
func (q *turns) push(l *lane) {
	if l.inRing[q.kind] {
		return
	}
	line := &l.tenant.lines[q.kind]
	line.push(l)
	if line.place == 0 {
		line.since = q.taken
		heap.Push(q, l.tenant)
	}
}

// ready reports whether there is a lane in line whose organization may have n more.
func (q *turns) ready(n int) bool {
	return len(q.waiting) > 0 && q.allows(q.waiting[0].used[q.kind], n)
}

// next takes the lane whose turn it is out of its line; nil where none waits whose organization may have n more.
func (q *turns) next(n int) *lane {
	if !q.ready(n) {
		return nil
	}
	t := q.waiting[0]
	line := &t.lines[q.kind]
	l := line.pop()
	q.taken++
	if line.since = q.taken; line.first == nil {
		heap.Remove(q, 0)
	} else {
		heap.Fix(q, 0)
	}
	return l
}

// fix puts a tenant in its place after its use has changed.
func (q *turns) fix(t *tenant) {
	if place := t.lines[q.kind].place; place > 0 && len(q.waiting) > 1 {
		heap.Fix(q, place-1)
	}
}

// Len, Less, Swap, Push and Pop make it a heap.
func (q *turns) Len() int { return len(q.waiting) }
func (q *turns) Less(i, j int) bool {
	a, b := q.waiting[i], q.waiting[j]
	if a.used[q.kind] != b.used[q.kind] {
		return a.used[q.kind] < b.used[q.kind]
	}
	return a.lines[q.kind].since < b.lines[q.kind].since
}
func (q *turns) Swap(i, j int) {
	q.waiting[i], q.waiting[j] = q.waiting[j], q.waiting[i]
	q.waiting[i].lines[q.kind].place, q.waiting[j].lines[q.kind].place = i+1, j+1
}
func (q *turns) Push(x any) {
	t := x.(*tenant)
	q.waiting = append(q.waiting, t)
	t.lines[q.kind].place = len(q.waiting)
}
func (q *turns) Pop() any {
	last := len(q.waiting) - 1
	t := q.waiting[last]
	q.waiting[last] = nil
	q.waiting = q.waiting[:last]
	t.lines[q.kind].place = 0
	return t
}
