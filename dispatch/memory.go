package dispatch

import "github.com/keyhook/keyhook/storage/webhook"

// weight is what a job without shared body counts against the memory limit. The largest weight is maxWeight.
func weight(j webhook.Job) int { return len(j.Body) + jobWeight }

const (
	jobWeight = 512 // without the body
	maxWeight = webhook.MaxEvent + 4<<10
)

// jobsToRead returns how many more jobs the lane may read.
func (s *scheduler) jobsToRead(l *lane) int {
	n := min(s.laneRoom(l)/l.averageWeight, l.maxQueued()-l.head.n)
	if l.bytes == 0 && s.orgHasRoom(l, maxWeight) {
		n = max(n, 1)
	}
	return max(n, 0)
}

// orgHasRoom reports whether the lane's organization may use so many more bytes.
func (s *scheduler) orgHasRoom(l *lane, bytes int) bool {
	return s.resources[memoryBytes].allows(l.org.used[memoryBytes], bytes)
}

// laneRoom returns how many more bytes the lane may use. It shrinks as the room of its organization shrinks.
func (s *scheduler) laneRoom(l *lane) int {
	return (s.allowed(l, memoryBytes)-l.org.used[memoryBytes])/4 - l.bytes
}

// admit adds a due job to the head if there is room.
func (s *scheduler) admit(l *lane, j webhook.Job, limit int) bool {
	w := weight(j)
	switch {
	case !s.isCurrent(l):
	case l.isFailing():
		limit = 1
	case l.bucket != nil:
		limit = l.maxQueued()
	}
	if l.head.n >= limit || !s.orgHasRoom(l, w) || l.bytes > 0 && w > s.laneRoom(l) {
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

// dropBody drops the attempt's body from memory.
func (s *scheduler) dropBody(a *attempt) {
	if a.weight == 0 {
		return
	}
	a.lane.bytes -= a.weight
	s.charge(a.lane, memoryBytes, -jobWeight-s.bodies.remove(a.Event))
	a.weight, a.Body = 0, nil
}

// bodies holds bodies by event. All deliveries of an event share one body, which counts once. For the limits of a lane,
// each job counts in full.
type bodies map[int64]*sharedBody

type sharedBody struct {
	bytes []byte
	jobs  int
}

// add makes the job share the body of its event. It returns the bytes that this adds to memory.
func (b bodies) add(j *webhook.Job) int {
	shared := b[j.Event]
	if shared == nil {
		b[j.Event] = &sharedBody{j.Body, 1}
		return len(j.Body)
	}
	shared.jobs++
	j.Body = shared.bytes
	return 0
}

// remove undoes add. It returns the bytes that this frees.
func (b bodies) remove(event int64) int {
	shared := b[event]
	if shared.jobs--; shared.jobs > 0 {
		return 0
	}
	delete(b, event)
	return len(shared.bytes)
}

// dropJob drops a job that is in the head or has just left it.
func (s *scheduler) dropJob(a *attempt) {
	s.dropBody(a)
	delete(a.lane.attempts, a.Delivery)
}
