package storage

import (
	"context"
	"database/sql"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/webhook"
)

// tx is the transaction that the jobs of a batch share. Every statement is prepared once and kept, found by its text.
type tx struct {
	conn       *sqlx.Conn
	statements map[string]*sqlx.Stmt
	now        int64 // one time for the whole batch, in milliseconds
	dirty      bool  // something was written since the current job began
	rows       int   // written since the transaction began, about; a page of an event's body counts as one
	committed  []func()

	organizations map[int64]string // row id → public id, neither of which ever changes
	known         known
	attemptCounts map[minuteOf]*webhook.AttemptCounts // to be written at the end of the transaction
	news          healthNews
	quotas        quotas
}

func newTx(conn *sqlx.Conn) *tx {
	return &tx{
		conn: conn, statements: map[string]*sqlx.Stmt{}, organizations: map[int64]string{},
		known:         known{subscribers: map[int64]*subscriber{}, wanting: map[wish][]int64{}},
		attemptCounts: map[minuteOf]*webhook.AttemptCounts{},
		quotas:        newQuotas(),
	}
}

// background is the context of everything that must not be interrupted.
var background = context.Background()

// attempt runs fn and turns a panic into an error, so that one bad job does not take the appliance down with it.
func (t *tx) attempt(fn func(*tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			t.dirty, err = true, fmt.Errorf("panic in a transaction: %v\n%s", p, debug.Stack())
		}
	}()
	return fn(t)
}

// do runs a job. The error is one that the whole transaction must not survive; any other is kept in the job.
func (t *tx) do(j *job) error {
	mark, before, began := len(t.committed), t.rows, time.Now()
	t.dirty, j.err = false, nil
	if err := t.attempt(j.run); err != nil {
		if t.dirty || code(err) != 0 {
			return err
		}
		t.committed = t.committed[:mark]
		j.err = err
	}
	// A pause of the whole machine is not the job's fault, so time counts as much as the largest request at most.
	j.spent = max(t.rows-before, min(int(time.Since(began)/rowTime), maxDeliveries))
	return nil
}

// rollback ends the transaction, and forgets what was learnt in it. On a full disk SQLite has ended it already and says
// that there is none: no error then.
func (t *tx) rollback() error {
	t.known.forget()
	clear(t.attemptCounts)
	t.quotas.forgetAll()
	_, err := t.exec("ROLLBACK")
	if code(err) == sqliteError {
		return nil
	}
	return err
}

// writeCounts writes what the jobs of the transaction have counted.
func (t *tx) writeCounts() error {
	if err := t.writeAttemptCounts(); err != nil {
		return err
	}
	return t.writeStored()
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
	result, err := st.ExecContext(background, args...)
	if err != nil {
		return nil, err
	}
	if n, err := result.RowsAffected(); err == nil {
		t.rows += int(n)
	}
	return result, nil
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
	t.rows++
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
