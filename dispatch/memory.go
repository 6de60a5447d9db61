package dispatch

import "github.com/keyhook/keyhook/storage/webhook"

// weight is what a job alone is counted as against the bound on memory; maxWeight is that of the largest.
func weight(j webhook.Job) int { return len(j.Body) + jobWeight }

const (
	jobWeight = 512 // without its body
	maxWeight = webhook.MaxEvent + 4<<10
)

// room is how many jobs more the lane may read ahead.
func (s *scheduler) room(l *lane) int {
	n := min(s.share(l)/l.average, l.readsAhead()-l.head.n)
	if l.bytes == 0 && s.fits(l, maxWeight) {
		n = max(n, 1)
	}
	return max(n, 0)
}

// fits reports whether the lane's organization may have so many bytes more in memory.
func (s *scheduler) fits(l *lane, bytes int) bool {
	return s.turns[toMemory].allows(l.tenant.used[toMemory], bytes)
}

// share is how much more the lane may hold in memory: less, the less its organization has left.
func (s *scheduler) share(l *lane) int {
	return (s.allowed(l, toMemory)-l.tenant.used[toMemory])/4 - l.bytes
}

// admit takes a due job into the head, if there is room.
func (s *scheduler) admit(l *lane, j webhook.Job, most int) bool {
	w := weight(j)
	switch {
	case !s.knows(l):
	case l.failing():
		most = 1
	case l.bucket != nil:
		most = l.readsAhead()
	}
	if l.head.n >= most || !s.fits(l, w) || l.bytes > 0 && w > s.share(l) {
		return false
	}
	a := &attempt{Job: j, lane: l, weight: w}
	l.held[j.Delivery] = a
	l.head.push(a)
	l.average = (3*l.average + w) / 4
	l.bytes += w
	s.charge(l, toMemory, jobWeight+s.bodies.hold(&a.Job))
	return true
}

// lighten counts the attempt's body as gone.
func (s *scheduler) lighten(a *attempt) {
	if a.weight == 0 {
		return
	}
	a.lane.bytes -= a.weight
	s.charge(a.lane, toMemory, -jobWeight-s.bodies.drop(a.Event))
	a.weight, a.Body = 0, nil
}

// bodies are the bodies that are held, by event: the deliveries of one event share one, which weighs once. To a lane,
// each of its jobs weighs in full.
type bodies map[int64]*heldBody

type heldBody struct {
	bytes   []byte
	holders int
}

// hold has the job share the body of its event, and returns by how much that makes all of them heavier.
func (b bodies) hold(j *webhook.Job) int {
	held := b[j.Event]
	if held == nil {
		b[j.Event] = &heldBody{j.Body, 1}
		return len(j.Body)
	}
	held.holders++
	j.Body = held.bytes
	return 0
}

// drop undoes a hold, and returns by how much that makes all of them lighter.
func (b bodies) drop(event int64) int {
	held := b[event]
	if held.holders--; held.holders > 0 {
		return 0
	}
	delete(b, event)
	return len(held.bytes)
}

// forget drops a job that waits in the head, or that has just left it.
func (s *scheduler) forget(a *attempt) {
	s.lighten(a)
	delete(a.lane.held, a.Delivery)
}
