package storage

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// ErrStopped is returned for a write that comes after Run has ended.
var ErrStopped = errors.New("storage is stopped")

// job is a function that waits for its turn in a transaction.
type job struct {
	work
	run   func(*tx) error
	place *list.Element // in the queue of its organization; nil once it is out of it
	spent int           // what its last run has cost, in rows
	err   error
	done  chan struct{}
}

func newJob(w work, run func(*tx) error) *job {
	if w.cost == 0 {
		w.cost = usualCost
	}
	return &job{work: w, run: run, done: make(chan struct{})}
}

// write runs fn in a transaction as work of Keyhook itself. See enqueue.
func (s *Store) write(ctx context.Context, fn func(*tx) error) error {
	return s.enqueue(ctx, work{}, fn)
}

// enqueue runs fn in a transaction that it may share with others, and returns once that is durable. fn may be run more
// than once and must touch nothing but its tx and what it sets afresh on each run. When the context ends, a job that still
// waits is not done. One that has begun is: an interrupted statement would roll back everybody's transaction.
func (s *Store) enqueue(ctx context.Context, w work, fn func(*tx) error) error {
	select {
	case <-s.stopped:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	default:
	}
	j := newJob(w, fn)
	s.jobs.push(j)
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		s.jobs.withdraw(j)
		return context.Cause(ctx)
	case <-s.stopped:
		select {
		case <-j.done:
			return j.err
		default:
			return ErrStopped
		}
	}
}

// alone runs fn in a transaction of its own, before Run does.
func (s *Store) alone(fn func(*tx) error) error {
	j := newJob(work{}, fn)
	_, err := s.transact([]*job{j})
	return errors.Join(err, j.err)
}

// commitLoop is the one writer. It takes what waits, commits once, and answers. When ctx ends it answers what has been
// queued by then and returns.
func (s *Store) commitLoop(ctx context.Context) {
	defer close(s.stopped)
	batch := make([]*job, 0, maxBatch)
	for {
		if s.jobs.empty() {
			select {
			case <-s.jobs.ready:
				runtime.Gosched()
			case do := <-s.pauses:
				do()
				continue
			case <-ctx.Done():
				if s.jobs.empty() {
					return
				}
			}
		}
		select {
		case do := <-s.pauses:
			do()
		default:
		}
		batch = s.jobs.gather(batch, s.price)
		s.commit(batch)
		clear(batch)
		batch = batch[:0]
	}
}

// price asks what a job will cost, if it can tell. A failure shows again when the job runs.
func (s *Store) price(j *job) {
	if j.measure == nil {
		return
	}
	expected := j.cost
	if err := s.tx.attempt(func(t *tx) (err error) {
		j.cost, err = j.measure(t)
		return err
	}); err != nil {
		j.cost = expected
	}
	s.jobs.charge(j, j.cost-expected)
}

// commit runs a batch in one transaction. If one of the jobs fails, the batch is rolled back and each job gets a
// transaction of its own, so that a job's failure is its own. If the transaction itself fails, that is nobody's failure
// and all of them get its error: to try each would take as long as the file stays locked, for each of them.
func (s *Store) commit(batch []*job) {
	if len(batch) == 0 {
		return
	}
	ran, err := s.tryCommit(batch)
	if _, failed := errors.AsType[*transactionError](err); err == nil || failed || len(batch) == 1 {
		s.jobs.carry(batch, ran)
		s.answer(batch[:ran], err)
		return
	}
	for i, j := range batch {
		_, err := s.tryCommit(batch[i : i+1])
		if _, failed := errors.AsType[*transactionError](err); failed {
			s.answer(batch[i:], err)
			return
		}
		s.answer([]*job{j}, err)
	}
}

// tryCommit is transact, and notes what that says about the file: nothing can be written as long as no transaction can begin
// and end.
func (s *Store) tryCommit(batch []*job) (ran int, err error) {
	s.blockedSince.CompareAndSwap(nil, new(time.Now()))
	ran, err = s.transact(batch)
	s.condition.note(byCommit, err)
	if _, failed := errors.AsType[*transactionError](err); !failed {
		s.blockedSince.Store(nil)
	}
	return ran, err
}

// answer tells the callers. An error of the transaction is everybody's.
func (s *Store) answer(batch []*job, err error) {
	for _, j := range batch {
		if err != nil {
			j.err = err
		}
		s.jobs.charge(j, j.spent-j.cost)
		close(j.done)
	}
}

// transactionError says that a transaction could not begin or end. No job is the cause.
type transactionError struct{ error }

func (e *transactionError) Unwrap() error { return e.error }

// transact runs jobs and commits, and returns how many it has run: the rest has no room. A job that fails before it has
// written anything keeps its error to itself; any other failure rolls all of them back and is returned. So does one of
// SQLite's, be it of a read: where the disk fails, SQLite has ended the transaction by itself, and each statement that
// follows would be durable on its own.
func (s *Store) transact(batch []*job) (ran int, err error) {
	if err := s.condition.refusal(); err != nil {
		return len(batch), &transactionError{err}
	}
	t := s.tx
	began := time.Now()
	t.now = began.UnixMilli()
	t.committed = t.committed[:0]
	if _, err := t.exec("BEGIN IMMEDIATE"); err != nil {
		return len(batch), &transactionError{fmt.Errorf("begin: %w", err)}
	}
	latest, err := s.keepOrder(t)
	if err != nil {
		return len(batch), errors.Join(err, t.rollback())
	}
	t.rows = 0
	for ran < len(batch) && t.rows < maxCost && (ran == 0 || time.Since(began) < maxTime) {
		if err := t.do(batch[ran]); err != nil {
			return len(batch), errors.Join(err, t.rollback())
		}
		ran++
	}
	if err := t.writeCounts(); err != nil {
		return len(batch), errors.Join(err, t.rollback())
	}
	if _, err := t.exec("COMMIT"); err != nil {
		return len(batch), commitFailed(errors.Join(fmt.Errorf("commit: %w", err), t.rollback()))
	}
	if s.lost() || s.condition.ended() != nil {
		return len(batch), s.condition.ended()
	}
	s.latest = latest
	s.commits.Add(1)
	s.observer.Committed(ran, time.Since(began))
	for _, fn := range t.committed {
		fn()
	}
	clear(t.committed) // they hold the bodies of events
	return ran, nil
}

// commitFailed says whether a failed commit is the file's failure or may be a job's.
func commitFailed(err error) error {
	if unusable(err) {
		return &transactionError{err}
	}
	return err
}
