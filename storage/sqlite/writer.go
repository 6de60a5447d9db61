package sqlite

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
)

// ErrStopped means that Run has ended.
var ErrStopped = errors.New("storage is stopped")

// writer is the only connection that writes, and its queue.
type writer struct {
	db      *sqlx.DB // one connection, held by tx
	tx      *Tx
	jobs    *writeQueue
	pauses  chan func()   // functions to run between two transactions
	stopped chan struct{} // closed after the writer has ended
	// blockedSince is the start of a commit that has not succeeded yet, or nil.
	blockedSince atomic.Pointer[time.Time]
	commits      atomic.Int64
}

// Work says who pays for a job and how much it is expected to cost. The writer divides its time among payers. The zero value
// is work of the program itself.
type Work struct {
	Payer  int64 // who pays for its time; 0 is the program itself
	Cost   int   // expected number of rows; 0 means UsualCost
	Urgent bool  // runs before other work

	// Measure returns the cost if only the writer can know it. It must not write.
	Measure func(*Tx) (int, error)
}

// UsualCost is the default cost of a job: a row or two, and a line in the audit log.
const UsualCost = 8

// job is a function that waits for its turn in a transaction.
type job struct {
	Work
	run   func(*Tx) error
	place *list.Element // in the queue of its payer; nil after it was taken out
	spent int           // the cost of its last run, in rows
	err   error
	done  chan struct{}
}

func newJob(w Work, run func(*Tx) error) *job {
	if w.Cost == 0 {
		w.Cost = UsualCost
	}
	return &job{Work: w, run: run, done: make(chan struct{})}
}

// Write runs fn in a transaction that it may share with others, and returns once that is durable. fn may be run more than
// once and must touch nothing but its Tx and what it sets afresh on each run. When the context ends, a job that still waits
// is not done. One that has begun is: an interrupted statement would roll back everybody's transaction. Faults: Unavailable
// where the disk or the file fails, or after Run has ended.
func (f *File) Write(ctx context.Context, w Work, fn func(*Tx) error) error {
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
	j := newJob(w, fn)
	f.jobs.push(j)
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		f.jobs.withdraw(j)
		return context.Cause(ctx)
	case <-f.stopped:
		select {
		case <-j.done:
			return j.err
		default:
			return ErrStopped
		}
	}
}

// Alone runs fn in a transaction of its own. Run must not have been called.
func (f *File) Alone(fn func(*Tx) error) error {
	j := newJob(Work{}, fn)
	_, err := f.transact([]*job{j})
	return errors.Join(err, j.err)
}

// Read calls fn with the connection of the writer. Run must not have been called.
func (f *File) Read(fn func(*Tx) error) error { return fn(f.tx) }

// commitLoop is the one writer. It takes what waits, commits once, and answers. When ctx ends it answers what has been
// queued by then and returns.
func (f *File) commitLoop(ctx context.Context) {
	defer close(f.stopped)
	batch := make([]*job, 0, maxBatch)
	for {
		if f.jobs.empty() {
			select {
			case <-f.jobs.ready:
				runtime.Gosched()
			case do := <-f.pauses:
				do()
				continue
			case <-ctx.Done():
				if f.jobs.empty() {
					return
				}
			}
		}
		select {
		case do := <-f.pauses:
			do()
		default:
		}
		batch = f.jobs.gather(batch, f.price)
		f.commit(batch)
		clear(batch)
		batch = batch[:0]
	}
}

// price sets the cost of a job that can measure it. An error is ignored here: it shows again when the job runs.
func (f *File) price(j *job) {
	if j.Measure == nil {
		return
	}
	expected := j.Cost
	if err := f.tx.attempt(func(t *Tx) (err error) {
		j.Cost, err = j.Measure(t)
		return err
	}); err != nil {
		j.Cost = expected
	}
	f.jobs.charge(j, j.Cost-expected)
}

// commit runs a batch in one transaction. If a job fails, the batch is rolled back and each job gets a transaction of its own,
// so that only the job that fails gets an error. If the transaction itself fails, no job is the cause and all get the error:
// to retry each job would take as long as the file stays locked, once per job.
func (f *File) commit(batch []*job) {
	if len(batch) == 0 {
		return
	}
	ran, err := f.tryCommit(batch)
	if _, failed := errors.AsType[*transactionError](err); err == nil || failed || len(batch) == 1 {
		f.jobs.carry(batch, ran)
		f.answer(batch[:ran], err)
		return
	}
	for i, j := range batch {
		_, err := f.tryCommit(batch[i : i+1])
		if _, failed := errors.AsType[*transactionError](err); failed {
			f.answer(batch[i:], err)
			return
		}
		f.answer([]*job{j}, err)
	}
}

// tryCommit runs transact and notes what the result says about the file. While no transaction can begin and end, nothing can
// be written.
func (f *File) tryCommit(batch []*job) (ran int, err error) {
	f.blockedSince.CompareAndSwap(nil, new(time.Now()))
	ran, err = f.transact(batch)
	f.failures.note(byCommit, err)
	if _, failed := errors.AsType[*transactionError](err); !failed {
		f.blockedSince.Store(nil)
	}
	return ran, err
}

// answer wakes the callers. An error of the transaction goes to all of them.
func (f *File) answer(batch []*job, err error) {
	for _, j := range batch {
		if err != nil {
			j.err = err
		}
		f.jobs.charge(j, j.spent-j.Cost)
		close(j.done)
	}
}

// transactionError says that a transaction could not begin or end. No job is the cause.
type transactionError struct{ error }

func (e *transactionError) Unwrap() error { return e.error }

// transact runs jobs and commits. It returns how many jobs it has run: the others did not fit. If a job fails before it has
// written anything, only that job gets the error. Any other failure rolls all jobs back and is returned. So does every error
// of SQLite, even of a read: after a disk failure SQLite has ended the transaction by itself, and each following statement
// would be durable on its own.
func (f *File) transact(batch []*job) (ran int, err error) {
	if err := f.failures.refusal(); err != nil {
		return len(batch), &transactionError{err}
	}
	t := f.tx
	began := time.Now()
	t.now = began.UnixMilli()
	t.committed = t.committed[:0]
	if _, err := t.Exec("BEGIN IMMEDIATE"); err != nil {
		return len(batch), &transactionError{fmt.Errorf("begin: %w", err)}
	}
	if err := f.o.Begin(t); err != nil {
		return len(batch), errors.Join(err, f.rollBack())
	}
	t.rows = 0
	for ran < len(batch) && t.rows < maxCost && (ran == 0 || time.Since(began) < maxTime) {
		if err := t.do(batch[ran]); err != nil {
			return len(batch), errors.Join(err, f.rollBack())
		}
		ran++
	}
	if err := f.o.BeforeCommit(t); err != nil {
		return len(batch), errors.Join(err, f.rollBack())
	}
	if _, err := t.Exec("COMMIT"); err != nil {
		return len(batch), commitFailed(errors.Join(fmt.Errorf("commit: %w", err), f.rollBack()))
	}
	if f.lost() || f.failures.ended() != nil {
		return len(batch), f.failures.ended()
	}
	f.commits.Add(1)
	f.o.Committed(ran, time.Since(began))
	for _, fn := range t.committed {
		fn()
	}
	clear(t.committed) // they hold the bodies of events
	return ran, nil
}

// rollBack ends a transaction that has failed.
func (f *File) rollBack() error {
	f.o.RolledBack()
	return f.tx.rollback()
}

// commitFailed says whether a failed commit is the file's failure or may be a job's.
func commitFailed(err error) error {
	if unusable(err) {
		return &transactionError{err}
	}
	return err
}
