package storage

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// maxBatch bounds how many functions share a commit: enough to share the fsync widely, few enough that a commit stays in
// the order of milliseconds.
const maxBatch = 256

// ErrStopped is returned for a write that comes after Run has ended.
var ErrStopped = errors.New("storage is stopped")

// job is a function that waits for its turn in a transaction.
type job struct {
	run  func(*tx) error
	err  error
	done chan struct{}
}

// write runs fn in a transaction that it may share with others, and returns once that is durable. fn may be run more
// than once and must touch nothing but its tx and what it sets afresh on each run. The context ends the waiting, not the
// work: an interrupted statement would roll back everybody's transaction.
func (s *Store) write(ctx context.Context, fn func(*tx) error) error {
	j := &job{run: fn, done: make(chan struct{})}
	select {
	case s.jobs <- j:
	case <-s.stopped:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
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
	j := &job{run: fn}
	return errors.Join(s.transact([]*job{j}), j.err)
}

// commitLoop is the one writer. It takes all that waits, commits once, and answers. When ctx ends it answers what has
// been queued by then and returns.
func (s *Store) commitLoop(ctx context.Context) {
	defer close(s.stopped)
	batch := make([]*job, 0, maxBatch)
	for {
		select {
		case j := <-s.jobs:
			runtime.Gosched()
			batch = s.gather(append(batch, j))
		case do := <-s.pauses:
			do()
			continue
		case <-ctx.Done():
			if batch = s.gather(batch); len(batch) == 0 {
				return
			}
		}
		s.commit(batch)
		clear(batch)
		batch = batch[:0]
	}
}

func (s *Store) gather(batch []*job) []*job {
	for len(batch) < maxBatch {
		select {
		case j := <-s.jobs:
			batch = append(batch, j)
		default:
			return batch
		}
	}
	return batch
}

// commit runs a batch in one transaction. If that fails for one, the batch is rolled back and each job gets a
// transaction of its own, so that a job's failure is its own.
func (s *Store) commit(batch []*job) {
	err := s.transact(batch)
	s.condition.note(byCommit, err)
	if err != nil && len(batch) > 1 {
		for i := range batch {
			s.commit(batch[i : i+1])
		}
		return
	}
	for _, j := range batch {
		if err != nil {
			j.err = err
		}
		close(j.done)
	}
}

// transact runs the jobs and commits. A job that fails before it has written anything keeps its error to itself; any
// other failure rolls all of them back and is returned. So does one of SQLite's, be it of a read: where the disk fails,
// SQLite has ended the transaction by itself, and each statement that follows would be durable on its own.
func (s *Store) transact(batch []*job) error {
	if err := s.condition.refusal(); err != nil {
		return err
	}
	t := s.tx
	began := time.Now()
	t.now = began.UnixMilli()
	t.committed = t.committed[:0]
	if _, err := t.exec("BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	latest, err := s.keepOrder(t)
	if err != nil {
		return errors.Join(err, t.rollback())
	}
	for _, j := range batch {
		t.dirty, j.err = false, nil
		mark := len(t.committed)
		if err := t.attempt(j.run); err != nil {
			if t.dirty || code(err) != 0 {
				return errors.Join(err, t.rollback())
			}
			t.committed = t.committed[:mark]
			j.err = err
		}
	}
	if err := t.writeTallies(); err != nil {
		return errors.Join(err, t.rollback())
	}
	if _, err := t.exec("COMMIT"); err != nil {
		return errors.Join(fmt.Errorf("commit: %w", err), t.rollback())
	}
	if s.lost() || s.condition.ended() != nil {
		return s.condition.ended()
	}
	s.latest = latest
	s.commits.Add(1)
	s.observer.Committed(len(batch), time.Since(began))
	for _, fn := range t.committed {
		fn()
	}
	clear(t.committed) // they hold the bodies of events
	return nil
}
