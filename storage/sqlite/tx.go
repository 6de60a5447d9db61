package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
)

// Tx is the transaction that the writes of a batch share. Every statement is prepared once and kept, found by its text.
type Tx struct {
	db         *sqlx.DB // of one connection
	conn       *sqlx.Conn
	statements map[string]*sqlx.Stmt
	now        int64 // one time for the whole batch, in milliseconds
	dirty      bool  // something was changed since the current write began
	rows       int   // written since the transaction began, estimated; a page of a long text counts as one
	committed  []func()
	delayed    func() error  // writes rows that were delayed; nil if there are none
	delays     int           // rows that the current write has delayed
	notOwn     time.Duration // how long the current write has written delayed rows
	onReserve  bool          // the disk is full, and the transaction uses the reserve
}

func openTx(ctx context.Context, path string, pragmas []pragma, options ...string) (*Tx, error) {
	db, err := connect(ctx, path, 1, pragmas, options...)
	if err != nil {
		return nil, err
	}
	conn, err := db.Connx(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Tx{db: db, conn: conn, statements: map[string]*sqlx.Stmt{}}, nil
}

func (t *Tx) close() error {
	var errs []error
	for _, st := range t.statements {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, t.conn.Close(), t.db.Close())...)
}

// background is the context of everything that must not be interrupted.
var background = context.Background()

// attempt runs fn and turns a panic into an error, so that a panic in one write does not end the process.
func (t *Tx) attempt(fn func(*Tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			t.dirty, err = true, fmt.Errorf("panic in a transaction: %v\n%s", p, debug.Stack())
		}
	}()
	return fn(t)
}

// savepoint begins the part of a transaction that release ends and undo takes back.
func (t *Tx) savepoint() error { return t.control("SAVEPOINT write") }

func (t *Tx) release() error { return t.control("RELEASE write") }

// undo takes back everything since the savepoint. It fails if SQLite has ended the transaction.
func (t *Tx) undo() error {
	t.delayed = nil
	if err := t.control("ROLLBACK TO write"); err != nil {
		return err
	}
	return t.release()
}

// control runs a statement that changes no rows. SQLite would report the number of the statement before.
func (t *Tx) control(text string) error {
	st, err := t.statement(text)
	if err == nil {
		_, err = st.ExecContext(background)
	}
	return err
}

// Delay has write run before the next statement and before the commit. It is for rows that are collected and written together:
// cost is the number of rows that the call adds, where a page of a long text counts as one. The caller drops them if the transaction is rolled back. Only the last write counts.
func (t *Tx) Delay(cost int, write func() error) {
	t.dirty, t.delayed = true, write
	t.rows += cost
	t.delays += cost
}

// Delays returns how many rows the current write has delayed. All writes of Transact are one.
func (t *Tx) Delays() int { return t.delays }

// writeDelayed writes the delayed rows. They belong to earlier writes, so they cost the current one nothing, and its own
// failure does not concern them.
func (t *Tx) writeDelayed() error {
	write := t.delayed
	if write == nil {
		return nil
	}
	t.delayed = nil
	dirty, rows, began := t.dirty, t.rows, time.Now()
	if err := write(); err != nil {
		t.dirty, t.delayed = true, write // so that the commit fails too, if the write ignores the error
		return err
	}
	t.dirty, t.rows = dirty, rows
	t.notOwn += time.Since(began)
	return nil
}

// rollback ends the transaction. On a full disk, SQLite has already ended it and reports that there is no transaction. That is no error.
func (t *Tx) rollback() error {
	t.delayed = nil
	err := t.Exec("ROLLBACK")
	if code(err) == sqliteError {
		return nil
	}
	return err
}

// OnReserve reports whether the disk is full, so that the transaction uses the reserve. Then a write leaves out what is not needed to
// withdraw rights.
func (t *Tx) OnReserve() bool { return t.onReserve }

// Withdraws refuses a write that withdraws no rights while the disk is full. Call it before the first change.
func (t *Tx) Withdraws(withdraws bool) error {
	if t.onReserve && !withdraws {
		return errSpent
	}
	return nil
}

// Now returns the time of the transaction in milliseconds. All writes that share it have the same.
func (t *Tx) Now() int64 { return t.now }

// UndoIfFailed says that the write has changed memory, as a statement says that it has changed rows: what Options.Flush writes
// later, or what Options.Undone takes back.
func (t *Tx) UndoIfFailed() { t.dirty = true }

// OnCommit registers fn. The writer calls it after the commit and before it wakes the callers, in the order of registration.
func (t *Tx) OnCommit(fn func()) { t.committed = append(t.committed, fn) }

// prepared returns the prepared statement of a text, after it has written the delayed rows. Statements are never interrupted, so their context never ends.
func (t *Tx) prepared(text string) (*sqlx.Stmt, error) {
	if err := t.writeDelayed(); err != nil {
		return nil, err
	}
	return t.statement(text)
}

// statement is prepared without the delayed rows.
func (t *Tx) statement(text string) (*sqlx.Stmt, error) {
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

// Exec runs a statement that returns no rows.
func (t *Tx) Exec(text string, args ...any) error {
	_, err := t.exec(text, args, sql.Result.RowsAffected)
	return err
}

// Insert runs an INSERT and returns the new row's id.
func (t *Tx) Insert(text string, args ...any) (int64, error) {
	return t.exec(text, args, sql.Result.LastInsertId)
}

// Affected runs a statement and returns how many rows it changed.
func (t *Tx) Affected(text string, args ...any) (int64, error) {
	return t.exec(text, args, sql.Result.RowsAffected)
}

func (t *Tx) exec(text string, args []any, read func(sql.Result) (int64, error)) (int64, error) {
	st, err := t.prepared(text)
	if err != nil {
		return 0, err
	}
	result, err := st.ExecContext(background, args...)
	if err != nil {
		return 0, err
	}
	if n, err := result.RowsAffected(); err == nil && n > 0 {
		t.dirty = true
		t.rows += int(n)
	}
	return read(result)
}

// Get reads one row into dest; sql.ErrNoRows if there is none. For a statement that writes and returns a row, use ExecGet.
func (t *Tx) Get(dest any, text string, args ...any) error {
	st, err := t.prepared(text)
	if err != nil {
		return err
	}
	return st.GetContext(background, dest, args...)
}

// GetBeside is Get for a statement that the delayed rows do not concern. They stay delayed.
func (t *Tx) GetBeside(dest any, text string, args ...any) error {
	st, err := t.statement(text)
	if err != nil {
		return err
	}
	return st.GetContext(background, dest, args...)
}

// ExecGet runs a statement that writes and returns one row.
func (t *Tx) ExecGet(dest any, text string, args ...any) error {
	t.dirty = true
	t.rows++
	return t.Get(dest, text, args...)
}

// List reads all rows into dest, a pointer to a slice.
func (t *Tx) List(dest any, text string, args ...any) error {
	st, err := t.prepared(text)
	if err != nil {
		return err
	}
	return st.SelectContext(background, dest, args...)
}

// ExecList runs a statement that writes and returns rows into dest, a pointer to a slice.
func (t *Tx) ExecList(dest any, text string, args ...any) error {
	t.dirty = true
	return t.List(dest, text, args...)
}

// Returning is File.Write for a function that makes something. Where the context has ended the waiting, the writer may be at work on
// it still: the caller then gets the zero value, and shares no variable with the writer.
func Returning[T any](ctx context.Context, f *File, w Work, fn func(*Tx) (T, error)) (T, error) {
	var made, none T
	if err := f.Write(ctx, w, func(t *Tx) (err error) {
		made, err = fn(t)
		return err
	}); err != nil {
		return none, err
	}
	return made, nil
}

// joinedKey is the key of the transaction in the context of Transact. Another file has another key.
type joinedKey struct{ *File }

type joinedTx struct {
	*Tx
	failed error       // of the first write that has failed after it changed something
	ended  atomic.Bool // then a context that somebody has kept means no transaction
}

// Transact is Write for several writes and reads: those that fn makes with the context that it gets belong to its transaction. They
// run at once, as a part of w, so only w counts. If fn returns an error, nothing was written, and likewise if one of the writes failed after
// it changed something, though fn ignores that. fn must make all calls with that context, or it waits for itself, and not in another
// goroutine, because a transaction has one.
func (f *File) Transact(ctx context.Context, w Work, fn func(context.Context) error) error {
	return f.Write(ctx, w, func(t *Tx) error {
		j := &joinedTx{Tx: t}
		defer j.ended.Store(true)
		if err := fn(context.WithValue(ctx, joinedKey{f}, j)); err != nil {
			return err
		}
		return j.failed
	})
}

// joined returns the transaction of Transact that a context belongs to; nil outside of one.
func (f *File) joined(ctx context.Context) *joinedTx {
	j, _ := ctx.Value(joinedKey{f}).(*joinedTx)
	if j == nil || j.ended.Load() {
		return nil
	}
	return j
}

// write runs a write as a part of the transaction. Its errors stay as they are: Transact needs to know those of the file.
func (j *joinedTx) write(fn func(*Tx) error) error {
	before := j.dirty
	j.dirty = false
	err := fn(j.Tx)
	if err != nil && j.failed == nil && (j.dirty || code(err) != 0) {
		j.failed = err
	}
	j.dirty = j.dirty || before
	return err
}
