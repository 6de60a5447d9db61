package dispatch

import "github.com/keyhook/keyhook/storage/webhook"

// weight is what a job without shared body counts against the memory limit. The largest weight is maxWeight.
func weight(j webhook.Job) int { return len(j.Body) + jobWeight }

const (
	jobWeight = 512 // without the body
	maxWeight = webhook.MaxEvent + 4<<10
)

func (s *scheduler) jobsToRead(l *lane) int {
	least := one(l.memory.used == 0 && s.lanes.orgHasRoom(l, maxWeight))
	return max(min(s.lanes.laneRoom(l)/l.memory.averageJob, l.maxQueued()-l.stages[queued]), least)
}

// limitedHeadBytes is the weight of the jobs that a lane with a rate limit may always read ahead, even at a low rate.
const limitedHeadBytes = 64 << 10

// maxQueued returns how many jobs that have not begun the lane may hold. With a rate limit, that is a quarter of a
// second's jobs, or a few small ones. Such a lane holds its jobs for long, and others could use the memory.
func (l *lane) maxQueued() int {
	return int(min(max(l.bucket.Limit()/4, float64(limitedHeadBytes/l.memory.averageJob), 1), maxHead))
}

func (s *scheduler) admit(l *lane, j webhook.Job, limit int) bool {
	w := weight(j)
	if l.isCurrent() && l.bucket != nil {
		limit = l.maxQueued()
	}
	if l.stages[queued] >= limit || !s.lanes.hasRoom(l, w) {
		return false
	}
	s.lanes.enqueue(l, j)
	l.memory.averageJob = (3*l.memory.averageJob + w) / 4
	return true
}

// bodies holds bodies by event. All deliveries of an event share one, which counts once. For the limits of a lane, each job counts in full.
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
