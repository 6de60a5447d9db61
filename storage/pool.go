package storage

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/fault"
)

// The pool of readers that requests and deliveries wait for; see logReader for the others. Each connection has a page cache
// of its own outside the Go heap. The limit is there for the write-ahead log too: it cannot start anew beneath a reader.
const (
	readers   = 4
	readLimit = 10 * time.Second

	surveyReaders = 1 // looks at every subscription with pending deliveries: a second or more for 300,000
	surveyLimit   = 20 * time.Second
)

var errLateRead = errors.New("a read took longer than its limit")

// pool is a set of read-only connections with their prepared statements.
type pool struct {
	db       *sqlx.DB
	limit    time.Duration // of one read
	note     func(error)   // is told of what fails
	prepared sync.Map      // statement text → *sqlx.Stmt
}

func openPool(ctx context.Context, name string, connections int, limit time.Duration, note func(error)) (*pool, error) {
	db, err := connect(ctx, name, connections, readerPragmas())
	if err != nil {
		return nil, err
	}
	return &pool{db: db, limit: limit, note: note}, nil
}

func (p *pool) close() error {
	var errs []error
	p.prepared.Range(func(_, st any) bool {
		errs = append(errs, st.(*sqlx.Stmt).Close())
		return true
	})
	return errors.Join(append(errs, p.db.Close())...)
}

// statement returns the prepared statement of that text.
func (p *pool) statement(ctx context.Context, text string) (*sqlx.Stmt, error) {
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

// get reads one row into dest; sql.ErrNoRows where there is none.
func (p *pool) get(ctx context.Context, dest any, text string, args ...any) error {
	return p.read(ctx, text, func(ctx context.Context, st *sqlx.Stmt) error { return st.GetContext(ctx, dest, args...) })
}

// list reads all rows into dest, a pointer to a slice.
func (p *pool) list(ctx context.Context, dest any, text string, args ...any) error {
	return p.read(ctx, text, func(ctx context.Context, st *sqlx.Stmt) error { return st.SelectContext(ctx, dest, args...) })
}

// read runs a statement within the limit. Where that ends it, the fault says so; where the caller's context does, the
// error stays what it is.
func (p *pool) read(ctx context.Context, text string, run func(context.Context, *sqlx.Stmt) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, errLateRead)
	defer cancel()
	st, err := p.statement(ctx, text)
	if err == nil {
		err = run(ctx, st)
	}
	if err != nil && errors.Is(context.Cause(ctx), errLateRead) {
		return fault.New(fault.Unavailable, "too_slow",
			"This took too long to look up; narrow the period, or try again later.").Because(err)
	}
	if err != nil {
		p.note(err)
	}
	return unavailable(err)
}
