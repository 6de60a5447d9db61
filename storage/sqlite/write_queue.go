package sqlite

import (
	"container/list"
	"slices"
	"sync"
	"time"
)

// The bounds of a transaction. It closes when one of them is reached, so that no caller waits long for another.
const (
	// maxBatch is how many writes share a commit: enough to share the fsync widely.
	maxBatch = 256
	// maxCost is how many rows share a commit. They take about 25 ms. A write that costs more has a transaction to itself.
	maxCost = 4096
	// maxTime is how long a transaction accepts writes if they cost more than expected.
	maxTime = 50 * time.Millisecond
	// rowTime converts the running time of a write into rows, for writes that mostly read the database.
	rowTime = 10 * time.Microsecond
	// maxSpent is the most that a write pays for its running time, in rows. It is what the largest request writes.
	maxSpent = 10_000
	// quantum is how many rows a payer may write in its turn.
	quantum = 256
)

// writeQueue contains the writes that wait for the writer. A write stays in the queue only while its caller waits, so
// the number of callers bounds the queue. A payer's writes do not keep another payer's writes out.
//
// Writes of one payer and one class run in the order in which they came. No other order is promised. A caller
// that depends on an earlier write has waited for its result.
type writeQueue struct {
	ready chan struct{} // has a token after a write has come

	mu       sync.Mutex
	urgent   fairQueue
	ordinary fairQueue

	late bool // the writer's own: urgent writes kept an ordinary one out, so the next transaction begins with it
}

func newWriteQueue() *writeQueue {
	return &writeQueue{
		ready:    make(chan struct{}, 1),
		urgent:   fairQueue{queues: map[int64]*list.Element{}},
		ordinary: fairQueue{queues: map[int64]*list.Element{}},
	}
}

func (q *writeQueue) class(w *queuedWrite) *fairQueue {
	if w.Urgent {
		return &q.urgent
	}
	return &q.ordinary
}

func (q *writeQueue) push(w *queuedWrite) {
	q.mu.Lock()
	q.class(w).push(w)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// withdraw removes a write whose caller has gone. A write that the writer has already taken still runs.
func (q *writeQueue) withdraw(w *queuedWrite) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.place != nil {
		q.class(w).remove(w)
	}
}

func (q *writeQueue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.urgent.waiting+q.ordinary.waiting == 0
}

// charge makes a payer pay for the rows that a write cost beyond its price.
func (q *writeQueue) charge(w *queuedWrite, more int) {
	if more <= 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.class(w).queue(w.Payer).credit -= more
}

// gather appends the writes of the next transaction to batch. Urgent writes come first, but fill at most half of the
// transaction, so a flood of them does not stop the others. An ordinary write that urgent writes have kept out once comes before
// all others. price sets the cost of a write.
func (q *writeQueue) gather(batch []*queuedWrite, price func(*queuedWrite)) []*queuedWrite {
	cost := 0
	// fill takes writes of a class until the transaction has that many writes or that cost. A write that does not fit goes back.
	// fill reports whether there was none.
	fill := func(class *fairQueue, writes, most int) bool {
		for len(batch) < writes && cost < most {
			q.mu.Lock()
			w := class.pop()
			q.mu.Unlock()
			if w == nil {
				return true
			}
			price(w)
			if cost > 0 && cost+w.Cost > maxCost { // one that is larger than a transaction fits into an empty one
				q.putBack(w)
				return false
			}
			batch = append(batch, w)
			cost += w.Cost
		}
		return true
	}
	if q.late {
		q.late = false
		fill(&q.ordinary, 1, 1)
	}
	first := len(batch)
	fill(&q.urgent, (first+maxBatch)/2, (cost+maxCost)/2)
	urgent := len(batch) > first
	if !fill(&q.ordinary, maxBatch, maxCost) {
		q.late = urgent
	}
	return batch
}

// putBack puts writes that have not run to the front of the queues of their payers, in their order. So a payer that is in debt
// does not overtake the others.
func (q *writeQueue) putBack(writes ...*queuedWrite) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range slices.Backward(writes) {
		q.class(w).putBack(w)
	}
}

// leaveOut puts back the writes of a batch that did not run. The first ran writes have run.
func (q *writeQueue) leaveOut(batch []*queuedWrite, ran int) {
	left := batch[ran:]
	q.putBack(left...)
	if slices.ContainsFunc(left, func(w *queuedWrite) bool { return !w.Urgent }) {
		q.late = batch[ran-1].Urgent
	}
}

// fairQueue takes writes from payers in turn. In each turn a payer may write quantum rows. A payer that writes more is in debt,
// and waits until enough turns have paid the debt (surplus round robin). So the share of a payer does not grow with the
// number or the size of its writes.
type fairQueue struct {
	queues  map[int64]*list.Element // of turns, by payer
	turns   list.List               // of *payerQueue; the first has its turn
	waiting int                     // writes
}

// payerQueue contains the waiting writes of one payer. It is kept while writes wait in it or the payer is in debt.
type payerQueue struct {
	payer  int64
	writes list.List // of *queuedWrite
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

func (f *fairQueue) push(w *queuedWrite) {
	w.place = f.queue(w.Payer).writes.PushBack(w)
	f.waiting++
}

// putBack undoes pop for a write that has not run. Of several, the last one is put back first. A payer that was forgotten
// meanwhile had no debt, and gets the next turn for this write only.
func (f *fairQueue) putBack(w *queuedWrite) {
	if _, known := f.queues[w.Payer]; !known {
		f.queues[w.Payer] = f.turns.PushFront(&payerQueue{payer: w.Payer})
	}
	q := f.queue(w.Payer)
	w.place = q.writes.PushFront(w)
	q.credit += w.Cost
	f.waiting++
}

func (f *fairQueue) remove(w *queuedWrite) {
	f.queue(w.Payer).writes.Remove(w.place)
	w.place = nil
	f.waiting--
}

// pop takes the next write. When no write waits, all debts are forgotten, and it returns nil.
func (f *fairQueue) pop() *queuedWrite {
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
		case q.writes.Len() == 0:
			f.turns.Remove(turn)
			delete(f.queues, q.payer)
		default:
			w := q.writes.Front().Value.(*queuedWrite)
			q.credit -= w.Cost
			f.remove(w)
			return w
		}
	}
}

// share is how many rows a payer may write in a turn. The program itself serves all payers, so it gets as much as all of them together.
func (f *fairQueue) share(q *payerQueue) int {
	if q.payer == 0 {
		return quantum * max(1, f.turns.Len()-1)
	}
	return quantum
}
