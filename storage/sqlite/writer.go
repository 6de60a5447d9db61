package sqlite

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhook/keyhook/storage/fault"
)

// ErrStopped means that Run has ended.
var ErrStopped = errors.New("storage is stopped")

type writer struct {
	tx      *Tx // has the connection
	queue   *writeQueue
	writing sync.Mutex    // held by the writer during a transaction, and by others to keep it from one
	stopped chan struct{} // closed after the writer has ended
	// blockedSince is the start of a commit that has not succeeded yet, or nil.
	blockedSince atomic.Pointer[time.Time]
	commits      atomic.Int64
}

// Work says who pays for a write and how much it is expected to cost. The writer divides its time among payers. The zero value
// is work of the program itself.
type Work struct {
	Payer  int64 // who pays for its time; 0 is the program itself
	Cost   int   // expected number of rows; 0 means UsualCost
	Urgent bool  // runs before other work

	// Reserve means that the write may use the reserve of a full disk. Only writes that withdraw rights may, because the reserve is small.
	Reserve bool

	// Whole means that only a failure of the file makes the write fail after its first change, because it makes all checks before. It
	// gets no savepoint, so its rows can be written together with those of other writes. A failure after a change rolls all of them back.
	Whole bool

	// Measure returns the cost if only the writer can know it. It must not write.
	Measure func(*Tx) (int, error)
}

// UsualCost is the default cost of a write: a row or two, and a line in the audit log.
const UsualCost = 8

// queuedWrite is a function that waits for its turn in a transaction.
type queuedWrite struct {
	Work
	run   func(*Tx) error
	place *list.Element // in the queue of its payer; nil after it was taken out
	spent int           // the cost of its last run, in rows
	err   error
	done  chan struct{}
}

func newQueuedWrite(w Work, run func(*Tx) error) *queuedWrite {
	w.Cost = cmp.Or(w.Cost, UsualCost)
	return &queuedWrite{Work: w, run: run, done: make(chan struct{})}
}

// Write runs fn in a transaction that it may share with others, and returns after the commit is durable. fn may run more than
// once. It must change only its Tx and values that it sets again on each run. If the context ends while fn waits, fn does not
// run. If fn has begun, Write finishes it: an interrupted statement would roll back the writes of other callers. Faults:
// Unavailable if the disk or the file fails, or after Run has ended.
func (f *File) Write(ctx context.Context, w Work, fn func(*Tx) error) error {
	if j := f.joined(ctx); j != nil {
		return j.write(fn)
	}
	return Unavailable(f.enqueue(ctx, w, fn))
}

func (f *File) enqueue(ctx context.Context, w Work, fn func(*Tx) error) error {
	select {
	case <-f.stopped:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	default:
	}
	queued := newQueuedWrite(w, fn)
	f.queue.push(queued)
	select {
	case <-queued.done:
	case <-ctx.Done():
		f.queue.withdraw(queued)
		return context.Cause(ctx)
	case <-f.stopped:
		select {
		case <-queued.done:
		default:
			return ErrStopped
		}
	}
	return queued.err
}

// Alone runs fn in a transaction of its own. Run must not have been called.
func (f *File) Alone(fn func(*Tx) error) error {
	queued := newQueuedWrite(Work{Whole: true}, fn)
	_, err := f.transact([]*queuedWrite{queued})
	return errors.Join(err, queued.err)
}

// Read calls fn with the connection of the writer. Run must not have been called.
func (f *File) Read(fn func(*Tx) error) error { return fn(f.tx) }

// commitLoop is the only goroutine that writes. It takes waiting writes, commits them together, and wakes their callers. When
// ctx ends, it still commits the queued writes, then returns.
func (f *File) commitLoop(ctx context.Context) {
	defer close(f.stopped)
	batch := make([]*queuedWrite, 0, maxBatch)
	for {
		if f.queue.empty() {
			select {
			case <-f.queue.ready:
			case <-ctx.Done():
				if f.queue.empty() {
					return
				}
			}
		}
		// The callers that the last commit has woken may have more to write. Now they share the next commit.
		runtime.Gosched()
		f.writing.Lock()
		batch = f.queue.gather(batch, f.price)
		f.commit(batch)
		f.writing.Unlock()
		clear(batch)
		batch = batch[:0]
	}
}

// price sets the cost of a write that can measure it. An error is ignored here: it shows again when the write runs.
func (f *File) price(w *queuedWrite) {
	if w.Measure == nil {
		return
	}
	_ = f.tx.attempt(func(t *Tx) error {
		cost, err := w.Measure(t)
		if err == nil {
			f.queue.charge(w, cost-w.Cost)
			w.Cost = cost
		}
		return err
	})
}

// commit runs a batch in one transaction. If a write fails and cannot be undone alone, the batch is rolled back and each write gets
// a transaction of its own. So only the failing write gets an error. If the transaction itself fails, no write is the cause, and
// all writes get the error. A retry of each write could wait for the locked file once per write.
func (f *File) commit(batch []*queuedWrite) {
	if f.reserve.spent.Load() {
		f.failures.note(byCommit, errSpent) // a probe may just have ended the problem; without it, nobody makes the reserve again
		batch = f.finishExcept(batch, errSpent, func(w *queuedWrite) bool { return w.Reserve })
	}
	if len(batch) == 0 {
		return
	}
	ran, err := f.tryCommit(batch)
	f.queue.leaveOut(batch, ran)
	batch = batch[:ran]
	full := func(w *queuedWrite) bool {
		failed := cmp.Or(err, w.err)
		return w.Reserve && (isFull(failed) || code(failed) == sqliteWrite)
	}
	if slices.ContainsFunc(batch, full) && f.spendReserve() {
		f.commit(f.finishExcept(batch, err, full))
		return
	}
	if _, failed := errors.AsType[*transactionError](err); err == nil || failed || len(batch) == 1 {
		f.finish(batch, err)
		return
	}
	for i := range batch {
		_, err := f.tryCommit(batch[i : i+1])
		if _, failed := errors.AsType[*transactionError](err); failed {
			f.finish(batch[i:], err)
			return
		}
		f.finish(batch[i:i+1], err)
	}
}

// finishExcept wakes the callers of the writes that are not to run again, and returns the others.
func (f *File) finishExcept(batch []*queuedWrite, err error, again func(*queuedWrite) bool) (others []*queuedWrite) {
	for i, w := range batch {
		if again(w) {
			others = append(others, w)
		} else {
			f.finish(batch[i:i+1], err)
		}
	}
	return others
}

// tryCommit runs transact and notes what the result says about the file. While no transaction can begin and end, nothing can be written.
func (f *File) tryCommit(batch []*queuedWrite) (ran int, err error) {
	f.blockedSince.CompareAndSwap(nil, new(time.Now()))
	ran, err = f.transact(batch)
	f.failures.note(byCommit, err)
	if _, failed := errors.AsType[*transactionError](err); !failed {
		f.blockedSince.Store(nil)
	}
	return ran, err
}

// finish wakes the callers of a batch. An error of the transaction goes to all of them.
func (f *File) finish(batch []*queuedWrite, err error) {
	for _, w := range batch {
		if err != nil {
			w.err = err
		}
		f.queue.charge(w, w.spent-w.Cost)
		close(w.done)
	}
}

// transactionError says that a transaction could not begin or end. No write is the cause.
type transactionError struct{ error }

func (e *transactionError) Unwrap() error { return e.error }

// transact runs writes and commits. It returns how many writes it has run: the others did not fit. A write that fails is undone,
// and it alone gets the error. If it cannot be undone alone, all writes are rolled back, and transact returns the error. SQLite may
// have ended the transaction by itself after a failure of the disk. Then each later statement would be committed alone.
func (f *File) transact(batch []*queuedWrite) (ran int, err error) {
	if err := f.failures.refusal(); err != nil {
		return len(batch), &transactionError{err}
	}
	t := f.tx
	began := time.Now()
	t.now, t.onReserve = f.Now(), f.reserve.spent.Load()
	t.committed = t.committed[:0]
	if err := t.Exec("BEGIN IMMEDIATE"); err != nil {
		return len(batch), &transactionError{fmt.Errorf("begin: %w", err)}
	}
	if err := f.o.Begin(t); err != nil {
		return len(batch), errors.Join(err, f.rollBack())
	}
	t.rows = 0
	for ran < len(batch) && t.rows < maxCost && (ran == 0 || time.Since(began) < maxTime) {
		if err := f.do(batch[ran]); err != nil {
			return len(batch), errors.Join(err, f.rollBack())
		}
		ran++
	}
	if err := f.flush(t); err != nil {
		return len(batch), errors.Join(err, f.rollBack())
	}
	if err := t.Exec("COMMIT"); err != nil {
		err = errors.Join(fmt.Errorf("commit: %w", err), f.rollBack())
		if unusable(err) { // no write is the cause
			err = &transactionError{err}
		}
		return len(batch), err
	}
	if f.lost() || f.failures.ended() != nil {
		return len(batch), f.failures.ended()
	}
	f.commits.Add(1)
	f.o.Committed(ran, time.Since(began))
	for _, fn := range t.committed {
		fn()
	}
	clear(t.committed) // they keep the bodies of events in memory
	return ran, nil
}

// flush writes what the writes of a transaction have left to its end.
func (f *File) flush(t *Tx) error {
	if err := t.writeDelayed(); err != nil {
		return err
	}
	return f.o.Flush(t)
}

// do runs a write. It returns an error that must roll the whole transaction back, and keeps any other in the write.
func (f *File) do(w *queuedWrite) error {
	t := f.tx
	if t.onReserve && !f.reserve.serves(w.Payer) {
		w.err = errSpent
		return nil
	}
	if !w.Whole {
		if err := f.flush(t); err != nil {
			return err
		}
		if err := t.savepoint(); err != nil {
			return err
		}
	}
	mark, before, began := len(t.committed), t.rows, time.Now()
	t.dirty, t.notOwn, t.delays = false, 0, 0
	w.err = t.attempt(w.run)
	// A pause of the whole machine is not the write's fault, so time counts as much as the largest request at most.
	w.spent = max(t.rows-before, min(int((time.Since(began)-t.notOwn)/rowTime), maxSpent))
	changed := t.dirty || code(w.err) != 0
	if w.err != nil {
		t.committed = t.committed[:mark]
	}
	if changed && t.onReserve {
		f.reserve.writes[w.Payer]++
		f.reserve.total++
	}
	switch {
	case w.err == nil || !changed:
		if w.Whole {
			return nil
		}
		return t.release()
	case w.Whole:
		return w.err
	}
	return f.undo(w.err)
}

// undo undoes a write that has failed after it changed something. A refusal must come before the first change, because undoing
// costs the other writes time.
func (f *File) undo(cause error) error {
	if _, refused := fault.As(cause); refused {
		f.o.Logger.Error(LateRefusal, "error", cause)
	}
	if err := f.tx.undo(); err != nil {
		return errors.Join(cause, err)
	}
	f.failures.note(byCommit, cause)
	f.o.Undone()
	return nil
}

// LateRefusal is logged if a write is refused after it has changed something. Tests look for it.
const LateRefusal = "a defect of Keyhook: a write was refused after it had changed rows; they were undone"

func (f *File) rollBack() error {
	f.o.RolledBack()
	return f.tx.rollback()
}
