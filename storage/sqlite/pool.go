package sqlite

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/fault"
)

// ErrLateRead is the cause that ends a read that takes longer than its limit.
var ErrLateRead = errors.New("a read took longer than its limit")

// Pool is a set of read-only connections with their prepared statements.
type Pool struct {
	db       *sqlx.DB
	file     *File
	limit    time.Duration // of one read
	prepared sync.Map      // statement text → *sqlx.Stmt
}

// Pool opens read-only connections. Close closes them. limit bounds one read, because the write-ahead log cannot restart during
// a read. Each connection has a page cache of its own outside the Go heap.
func (f *File) Pool(ctx context.Context, connections int, limit time.Duration) (*Pool, error) {
	db, err := connect(ctx, f.o.Path, connections, readerPragmas(), existing)
	if err != nil {
		return nil, err
	}
	p := &Pool{db: db, file: f, limit: limit}
	f.pools = append(f.pools, p)
	return p, nil
}

func (p *Pool) statement(ctx context.Context, text string) (*sqlx.Stmt, error) {
	if st, ok := p.prepared.Load(text); ok {
		return st.(*sqlx.Stmt), nil
	}
	st, err := p.db.PreparexContext(ctx, text)
	if err != nil {
		return nil, err
	}
	if first, raced := p.prepared.LoadOrStore(text, st); raced {
		return first.(*sqlx.Stmt), st.Close()
	}
	return st, nil
}

// Get reads one row into dest. It returns sql.ErrNoRows if there is none. Faults: Unavailable if the read exceeds the
// limit, or the file cannot be read.
func (p *Pool) Get(ctx context.Context, dest any, text string, args ...any) error {
	if j := p.file.joined(ctx); j != nil {
		return j.Get(dest, text, args...)
	}
	return p.read(ctx, text, func(ctx context.Context, st *sqlx.Stmt) error { return st.GetContext(ctx, dest, args...) })
}

// List reads all rows into dest, a pointer to a slice.
func (p *Pool) List(ctx context.Context, dest any, text string, args ...any) error {
	if j := p.file.joined(ctx); j != nil {
		return j.List(dest, text, args...)
	}
	return p.read(ctx, text, func(ctx context.Context, st *sqlx.Stmt) error { return st.SelectContext(ctx, dest, args...) })
}

// read runs a statement within the limit. If the limit ends it, the fault says so. If the caller's context does, the error stays.
func (p *Pool) read(ctx context.Context, text string, run func(context.Context, *sqlx.Stmt) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, ErrLateRead)
	defer cancel()
	st, err := p.statement(ctx, text)
	if err == nil {
		err = run(ctx, st)
	}
	if err != nil && errors.Is(context.Cause(ctx), ErrLateRead) {
		return fault.New(fault.Unavailable, "too_slow",
			"This took too long to look up; narrow the period, or try again later.").Because(err)
	}
	if err != nil {
		p.file.failures.note(byReading, err)
	}
	return Unavailable(err)
}

// Reader reads: a *Tx in its transaction, or a Pool.In beside the writer.
type Reader interface {
	Get(dest any, text string, args ...any) error
	List(dest any, text string, args ...any) error
}

type poolReader struct {
	*Pool
	ctx context.Context
}

// In returns the pool as a Reader whose reads end with a context.
func (p *Pool) In(ctx context.Context) Reader { return poolReader{p, ctx} }

func (r poolReader) Get(dest any, text string, args ...any) error {
	return r.Pool.Get(r.ctx, dest, text, args...)
}

func (r poolReader) List(dest any, text string, args ...any) error {
	return r.Pool.List(r.ctx, dest, text, args...)
}

// One reads one row. Faults: NotFound for a thing of the sort if there is none.
func One[T any](from Reader, sort, text string, args ...any) (found T, err error) {
	err = from.Get(&found, text, args...)
	return found, Missing(err, sort)
}

// All reads all rows. The slice is not nil, even if it is empty.
func All[T any](from Reader, text string, args ...any) ([]T, error) {
	rows := []T{}
	err := from.List(&rows, text, args...)
	return rows, err
}
