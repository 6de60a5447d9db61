package storage

import (
	"container/list"
	"sync"
	"time"
)

// What a transaction may hold. It closes when either bound is reached, so that nobody waits long for somebody else's.
const (
	// maxBatch is how many jobs share a commit: enough to share the fsync widely.
	maxBatch = 256
	// maxCost is how many rows share a commit, which is some 25 ms. A job that costs more has a transaction to itself.
	maxCost = 4096
	// maxTime is for how long a transaction takes further jobs, should they cost more than expected.
	maxTime = 50 * time.Millisecond
	// rowTime is how long a job that reads much may take in the place of writing a row.
	rowTime = 10 * time.Microsecond
	// quantum is how many rows an organization may write in its turn.
	quantum = 256
)

// writeQueue holds the jobs that wait for the writer. A job is in it only as long as its caller waits, so it is bounded by
// the number of callers, and no organization's jobs stop another's from getting in.
//
// Jobs of one organization and one class run in the order in which they came. No other order is promised, and none is
// needed: who depends on an earlier change has waited for its answer, and the watcher is told in the order of commits.
type writeQueue struct {
	ready chan struct{} // holds a token after a job has come

	mu       sync.Mutex
	urgent   fairQueue
	ordinary fairQueue

	// The writer's own.
	carried []*job // taken, but left out of the last transaction: they come before others
	yielded bool   // the first of them has let urgent jobs pass
}

func newWriteQueue() *writeQueue {
	return &writeQueue{
		ready:    make(chan struct{}, 1),
		urgent:   fairQueue{queues: map[int64]*list.Element{}},
		ordinary: fairQueue{queues: map[int64]*list.Element{}},
	}
}

// class returns the queue that a job belongs in.
func (q *writeQueue) class(w work) *fairQueue {
	if w.urgent {
		return &q.urgent
	}
	return &q.ordinary
}

// push has a job wait.
func (q *writeQueue) push(j *job) {
	q.mu.Lock()
	q.class(j.work).push(j)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// withdraw takes a job out whose caller has gone. A job that the writer has taken already is done all the same.
func (q *writeQueue) withdraw(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j.place != nil {
		q.class(j.work).remove(j)
	}
}

// empty reports whether no job waits.
func (q *writeQueue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.carried)+q.urgent.waiting+q.ordinary.waiting == 0
}

// next takes the job of a class whose turn it is; nil where none waits.
func (q *writeQueue) next(class *fairQueue) *job {
	q.mu.Lock()
	defer q.mu.Unlock()
	return class.pop()
}

// charge corrects what an organization has paid for a job by what that has cost beyond it.
func (q *writeQueue) charge(j *job, more int) {
	if more <= 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.class(j.work).queue(j.organization).credit -= more
}

// gather takes the jobs of the next transaction and appends them to batch. First come the urgent ones, up to half of what
// fits, so that a flood of those does not stop the others. A job that does not fit is carried over, and begins the next
// transaction; urgent ones may pass it once. price sets the cost of a job.
func (q *writeQueue) gather(batch []*job, price func(*job)) []*job {
	spent := 0
	add := func(j *job) {
		batch = append(batch, j)
		spent += j.cost
	}
	fits := func(j *job) bool { return spent == 0 || spent+j.cost <= maxCost }
	for len(batch) < maxBatch/2 && spent < maxCost/2 {
		j := q.next(&q.urgent)
		if j == nil {
			break
		}
		add(j)
	}
	for first := true; len(q.carried) > 0 && len(batch) < maxBatch; first = false {
		j := q.carried[0]
		if !fits(j) && !(first && q.yielded) {
			q.yielded = first
			return batch
		}
		add(j)
		q.carried, q.yielded = q.carried[1:], false
	}
	for len(batch) < maxBatch && spent < maxCost {
		j := q.next(&q.ordinary)
		if j == nil {
			break
		}
		price(j)
		if !fits(j) {
			q.carried = append(q.carried, j)
			break
		}
		add(j)
	}
	return batch
}

// carry has jobs that were taken wait for the next transaction.
func (q *writeQueue) carry(jobs []*job) { q.carried = append(append([]*job{}, jobs...), q.carried...) }

// fairQueue takes jobs from organizations in turn. In each turn an organization may write quantum rows. What it writes
// beyond that it owes, and it waits until enough turns have paid for it (surplus round robin). So the share of an
// organization does not grow with the number or the size of its jobs.
type fairQueue struct {
	queues  map[int64]*list.Element // of turns, by organization
	turns   list.List               // of *organizationQueue; the first has its turn
	waiting int                     // jobs
}

// organizationQueue holds the jobs of one organization. It is kept while jobs wait in it or it owes something.
type organizationQueue struct {
	organization int64
	jobs         list.List // of *job
	credit       int       // rows that it may still write in this turn
}

func (f *fairQueue) queue(organization int64) *organizationQueue {
	e, ok := f.queues[organization]
	if !ok {
		q := &organizationQueue{organization: organization}
		e = f.turns.PushBack(q)
		f.queues[organization], q.credit = e, f.share(q)
	}
	return e.Value.(*organizationQueue)
}

func (f *fairQueue) push(j *job) {
	j.place = f.queue(j.organization).jobs.PushBack(j)
	f.waiting++
}

func (f *fairQueue) remove(j *job) {
	f.queue(j.organization).jobs.Remove(j.place)
	j.place = nil
	f.waiting--
}

// pop takes the next job. Where none waits, nobody owes anybody anything.
func (f *fairQueue) pop() *job {
	if f.waiting == 0 {
		clear(f.queues)
		f.turns.Init()
		return nil
	}
	for {
		turn := f.turns.Front()
		q := turn.Value.(*organizationQueue)
		switch {
		case q.credit <= 0:
			q.credit += f.share(q)
			f.turns.MoveToBack(turn)
		case q.jobs.Len() == 0:
			f.turns.Remove(turn)
			delete(f.queues, q.organization)
		default:
			j := q.jobs.Front().Value.(*job)
			q.credit -= j.cost
			f.remove(j)
			return j
		}
	}
}

// share is how many rows an organization may write in a turn. Keyhook itself serves all of them, so it gets as much as all
// of them together.
func (f *fairQueue) share(q *organizationQueue) int {
	if q.organization == 0 {
		return quantum * max(1, f.turns.Len()-1)
	}
	return quantum
}
