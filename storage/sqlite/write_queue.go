package sqlite

import (
	"container/list"
	"slices"
	"sync"
	"time"
)

// The bounds of a transaction. It closes when one of them is reached, so that no caller waits long for another.
const (
	// maxBatch is how many jobs share a commit: enough to share the fsync widely.
	maxBatch = 256
	// maxCost is how many rows share a commit, which is some 25 ms. A job that costs more has a transaction to itself.
	maxCost = 4096
	// maxTime is how long a transaction accepts jobs if they cost more than expected.
	maxTime = 50 * time.Millisecond
	// rowTime converts the running time of a job into rows, for jobs that mostly read.
	rowTime = 10 * time.Microsecond
	// maxSpent is the most that a job pays for its running time, in rows. It is what the largest request writes.
	maxSpent = 10_000
	// quantum is how many rows a payer may write in its turn.
	quantum = 256
)

// writeQueue holds the jobs that wait for the writer. A job is in it only as long as its caller waits, so it is bounded by
// the number of callers, and no payer's jobs stop another's from getting in.
//
// Jobs of one payer and one class run in the order in which they came. No other order is promised, and none is
// needed: a caller that depends on an earlier change has waited for its answer.
type writeQueue struct {
	ready chan struct{} // holds a token after a job has come

	mu       sync.Mutex
	urgent   fairQueue
	ordinary fairQueue

	// The writer's own.
	carried []*job // taken, but left out of the last transaction: they run before other ordinary jobs
	yielded bool   // the first of them has let urgent jobs pass, so the next transaction begins with it
}

func newWriteQueue() *writeQueue {
	return &writeQueue{
		ready:    make(chan struct{}, 1),
		urgent:   fairQueue{queues: map[int64]*list.Element{}},
		ordinary: fairQueue{queues: map[int64]*list.Element{}},
	}
}

// class returns the queue that a job belongs in.
func (q *writeQueue) class(j *job) *fairQueue {
	if j.Urgent {
		return &q.urgent
	}
	return &q.ordinary
}

// push has a job wait.
func (q *writeQueue) push(j *job) {
	q.mu.Lock()
	q.class(j).push(j)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// withdraw removes a job whose caller has gone. A job that the writer has already taken still runs.
func (q *writeQueue) withdraw(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j.place != nil {
		q.class(j).remove(j)
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

// charge makes a payer pay for what a job has cost beyond its price.
func (q *writeQueue) charge(j *job, more int) {
	if more <= 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.class(j).queue(j.Payer).credit -= more
}

// gather appends the jobs of the next transaction to batch. Urgent jobs come first, up to half of what fits, so that a flood of
// them does not stop the others. Jobs that urgent ones have delayed once come before those. price sets the cost of a job.
func (q *writeQueue) gather(batch []*job, price func(*job)) []*job {
	f := filling{jobs: batch}
	carriedFirst := q.yielded
	if carriedFirst && !q.addCarried(&f) {
		return f.jobs
	}
	q.addUrgent(&f)
	if !carriedFirst && !q.addCarried(&f) {
		return f.jobs
	}
	for len(f.jobs) < maxBatch && f.cost < maxCost {
		j := q.next(&q.ordinary)
		if j == nil {
			break
		}
		price(j)
		if !f.fits(j) {
			q.carried = append(q.carried, j)
			break
		}
		f.add(j)
	}
	return f.jobs
}

// addUrgent adds urgent jobs, up to half of what fits.
func (q *writeQueue) addUrgent(f *filling) {
	most, cost := (len(f.jobs)+maxBatch)/2, (f.cost+maxCost)/2
	for len(f.jobs) < most && f.cost < cost {
		j := q.next(&q.urgent)
		if j == nil {
			return
		}
		f.add(j)
	}
}

// addCarried adds the jobs that were carried over, and reports whether all of them fit.
func (q *writeQueue) addCarried(f *filling) bool {
	q.yielded = false
	for first := true; len(q.carried) > 0; first = false {
		j := q.carried[0]
		if len(f.jobs) == maxBatch || !f.fits(j) {
			q.yielded = first // there is something else in the transaction, which can only be urgent
			return false
		}
		f.add(j)
		q.carried = q.carried[1:]
	}
	return true
}

// filling is a transaction that is being filled with jobs.
type filling struct {
	jobs []*job
	cost int
}

func (f *filling) add(j *job) {
	f.jobs = append(f.jobs, j)
	f.cost += j.Cost
}

// fits reports whether a job fits. One that is larger than a transaction fits into an empty one.
func (f *filling) fits(j *job) bool { return f.cost == 0 || f.cost+j.Cost <= maxCost }

// carry keeps the jobs of a batch that have not run for the next transaction: all after the first ran. Urgent jobs go back to
// their queue.
func (q *writeQueue) carry(batch []*job, ran int) {
	var ordinary []*job
	for _, j := range batch[ran:] {
		if !j.Urgent {
			ordinary = append(ordinary, j)
		}
	}
	if len(ordinary) > 0 {
		q.carried, q.yielded = append(ordinary, q.carried...), batch[ran-1].Urgent
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range slices.Backward(batch[ran:]) {
		if j.Urgent {
			q.urgent.putBack(j)
		}
	}
}

// fairQueue takes jobs from payers in turn. In each turn a payer may write quantum rows. A payer that writes more is in debt,
// and waits until enough turns have paid the debt (surplus round robin). So the share of a payer does not grow with the
// number or the size of its jobs.
type fairQueue struct {
	queues  map[int64]*list.Element // of turns, by payer
	turns   list.List               // of *payerQueue; the first has its turn
	waiting int                     // jobs
}

// payerQueue holds the jobs of one payer. It is kept while jobs wait in it or the payer is in debt.
type payerQueue struct {
	payer  int64
	jobs   list.List // of *job
	credit int       // rows that it may still write in this turn
}

func (f *fairQueue) queue(payer int64) *payerQueue {
	e, ok := f.queues[payer]
	if !ok {
		q := &payerQueue{payer: payer}
		e = f.turns.PushBack(q)
		f.queues[payer], q.credit = e, f.share(q)
	}
	return e.Value.(*payerQueue)
}

func (f *fairQueue) push(j *job) {
	j.place = f.queue(j.Payer).jobs.PushBack(j)
	f.waiting++
}

// putBack undoes pop for a job that has not run. Of several, the last one is put back first.
func (f *fairQueue) putBack(j *job) {
	q := f.queue(j.Payer)
	j.place = q.jobs.PushFront(j)
	q.credit += j.Cost
	f.waiting++
}

func (f *fairQueue) remove(j *job) {
	f.queue(j.Payer).jobs.Remove(j.place)
	j.place = nil
	f.waiting--
}

// pop takes the next job. When no job waits, all debts are forgotten.
func (f *fairQueue) pop() *job {
	if f.waiting == 0 {
		clear(f.queues)
		f.turns.Init()
		return nil
	}
	for {
		turn := f.turns.Front()
		q := turn.Value.(*payerQueue)
		switch {
		case q.credit <= 0:
			q.credit += f.share(q)
			f.turns.MoveToBack(turn)
		case q.jobs.Len() == 0:
			f.turns.Remove(turn)
			delete(f.queues, q.payer)
		default:
			j := q.jobs.Front().Value.(*job)
			q.credit -= j.Cost
			f.remove(j)
			return j
		}
	}
}

// share is how many rows a payer may write in a turn. The program itself serves all payers, so it gets as much as all of them
// together.
func (f *fairQueue) share(q *payerQueue) int {
	if q.payer == 0 {
		return quantum * max(1, f.turns.Len()-1)
	}
	return quantum
}
