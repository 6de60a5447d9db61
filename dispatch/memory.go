package dispatch

import "github.com/keyhook/keyhook/storage/webhook"

// weight is what a job alone is counted as against the bound on memory; maxWeight is that of the largest.
func weight(j webhook.Job) int { return len(j.Body) + jobWeight }

const (
	jobWeight = 512 // without its body
	maxWeight = webhook.MaxEvent + 4<<10
)

// room is how many jobs more the lane may read ahead.
func (s *scheduler) jobsToRead(l *lane) int {
	n := min(s.laneRoom(l)/l.averageWeight, l.maxQueued()-l.head.n)
	if l.bytes == 0 && s.orgHasRoom(l, maxWeight) {
		n = max(n, 1)
	}
	return max(n, 0)
}

// fits reports whether the lane's organization may have so many bytes more in memory.
func (s *scheduler) orgHasRoom(l *lane, bytes int) bool {
	return s.resources[memoryBytes].allows(l.org.used[memoryBytes], bytes)
}

// share is how much more the lane may hold in memory: less, the less its organization has left.
func (s *scheduler) laneRoom(l *lane) int {
	return (s.allowed(l, memoryBytes)-l.org.used[memoryBytes])/4 - l.bytes
}

// admit takes a due job into the head, if there is room.
func (s *scheduler) admit(l *lane, j webhook.Job, most int) bool {
	w := weight(j)
	switch {
	case !s.isCurrent(l):
	case l.isFailing():
		most = 1
	case l.bucket != nil:
		most = l.maxQueued()
	}
	if l.head.n >= most || !s.orgHasRoom(l, w) || l.bytes > 0 && w > s.laneRoom(l) {
		return false
	}
	a := &attempt{Job: j, lane: l, weight: w}
	l.attempts[j.Delivery] = a
	l.head.push(a)
	l.averageWeight = (3*l.averageWeight + w) / 4
	l.bytes += w
	s.charge(l, memoryBytes, jobWeight+s.bodies.add(&a.Job))
	return true
}

// lighten counts the attempt's body as gone.
func (s *scheduler) dropBody(a *attempt) {
	if a.weight == 0 {
		return
	}
	a.lane.bytes -= a.weight
	s.charge(a.lane, memoryBytes, -jobWeight-s.bodies.remove(a.Event))
	a.weight, a.Body = 0, nil
}

// bodies are the bodies that are held, by event: the deliveries of one event share one, which weighs once. To a lane,
// each of its jobs weighs in full.
type bodies map[int64]*sharedBody

type sharedBody struct {
	bytes []byte
	jobs  int
}

// hold has the job share the body of its event, and returns by how much that makes all of them heavier.
func (b bodies) add(j *webhook.Job) int {
	held := b[j.Event]
	if held == nil {
		b[j.Event] = &sharedBody{j.Body, 1}
		return len(j.Body)
	}
	held.jobs++
	j.Body = held.bytes
	return 0
}

// drop undoes a hold, and returns by how much that makes all of them lighter.
func (b bodies) remove(event int64) int {
	held := b[event]
	if held.jobs--; held.jobs > 0 {
		return 0
	}
	delete(b, event)
	return len(held.bytes)
}

// forget drops a job that waits in the head, or that has just left it.
func (s *scheduler) dropJob(a *attempt) {
	s.dropBody(a)
	delete(a.lane.attempts, a.Delivery)
}
