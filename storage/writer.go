package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/jmoiron/sqlx"
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

// tx is the transaction that the jobs of a batch share. Every statement is prepared once and kept, found by its text.
type tx struct {
	conn       *sqlx.Conn
	statements map[string]*sqlx.Stmt
	now        int64 // one time for the whole batch, in milliseconds
	dirty      bool  // something was written since the current job began
	committed  []func()

	organizations map[int64]string // row id → public id, neither of which ever changes
}

// background is the context of everything that must not be interrupted.
var background = context.Background()

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
			batch = s.gather(append(batch, j))
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
// other failure rolls all of them back and is returned.
func (s *Store) transact(batch []*job) error {
	t := s.tx
	t.now = time.Now().UnixMilli()
	t.committed = t.committed[:0]
	if _, err := t.exec("BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	for _, j := range batch {
		t.dirty, j.err = false, nil
		mark := len(t.committed)
		if err := t.attempt(j.run); err != nil {
			if t.dirty {
				return errors.Join(err, t.rollback())
			}
			t.committed = t.committed[:mark]
			j.err = err
		}
	}
	if _, err := t.exec("COMMIT"); err != nil {
		return errors.Join(fmt.Errorf("commit: %w", err), t.rollback())
	}
	s.commits.Add(1)
	for _, fn := range t.committed {
		fn()
	}
	return nil
}

// attempt runs fn and turns a panic into an error, so that one bad job does not take the appliance down with it.
func (t *tx) attempt(fn func(*tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			t.dirty, err = true, fmt.Errorf("panic in a transaction: %v\n%s", p, debug.Stack())
		}
	}()
	return fn(t)
}

// rollback ends the transaction. On a full disk SQLite has done so already and says that there is none: no error then.
func (t *tx) rollback() error {
	_, err := t.exec("ROLLBACK")
	if code(err) == sqliteError {
		return nil
	}
	return err
}

// onCommit has fn called once the transaction is durable and before anybody is answered, in order, by the writer.
func (t *tx) onCommit(fn func()) { t.committed = append(t.committed, fn) }

// prepared returns the statement of that text. Statements are never interrupted, so they get a context without an end.
func (t *tx) prepared(text string) (*sqlx.Stmt, error) {
	if st, ok := t.statements[text]; ok {
		return st, nil
	}
	st, err := t.conn.PreparexContext(background, text)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	t.statements[text] = st
	return st, nil
}

// exec runs a statement that returns no rows.
func (t *tx) exec(text string, args ...any) (sql.Result, error) {
	st, err := t.prepared(text)
	if err != nil {
		return nil, err
	}
	t.dirty = true
	return st.ExecContext(background, args...)
}

// insert runs an INSERT and returns the new row's id.
func (t *tx) insert(text string, args ...any) (int64, error) {
	result, err := t.exec(text, args...)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

// affected runs a statement and returns how many rows it changed.
func (t *tx) affected(text string, args ...any) (int64, error) {
	result, err := t.exec(text, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// get reads one row into dest; sql.ErrNoRows where there is none. For a statement that writes and returns, use update.
func (t *tx) get(dest any, text string, args ...any) error {
	st, err := t.prepared(text)
	if err != nil {
		return err
	}
	return st.GetContext(background, dest, args...)
}

// update runs a statement that writes and returns one row.
func (t *tx) update(dest any, text string, args ...any) error {
	t.dirty = true
	return t.get(dest, text, args...)
}

// list reads all rows into dest, a pointer to a slice.
func (t *tx) list(dest any, text string, args ...any) error {
	st, err := t.prepared(text)
	if err != nil {
		return err
	}
	return st.SelectContext(background, dest, args...)
}

// updates runs a statement that writes and returns rows into dest, a pointer to a slice.
func (t *tx) updates(dest any, text string, args ...any) error {
	t.dirty = true
	return t.list(dest, text, args...)
}

// organization returns the public id of an organization.
func (t *tx) organization(row int64) (string, error) {
	if id, ok := t.organizations[row]; ok {
		return id, nil
	}
	var id string
	if err := t.get(&id, "SELECT public_id FROM organizations WHERE id = ?", row); err != nil {
		return "", missing(err, "organization")
	}
	t.organizations[row] = id
	return id, nil
}
