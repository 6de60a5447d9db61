// Package scan owns fair work on long tables: one read of each organization at a time, long searches in slices, and changes in
// batches. It knows the order of events; the statements about all else come from callers.
package scan

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// Reader reads long tables, one read of each organization at a time. It reads in slices. Each slice has a read transaction
// of its own, so that the write-ahead log can restart between two slices.
type Reader struct {
	turns
	Pool   *sqlite.Pool        // for statements while Connection is held
	Limits Limits              // of each search
	size   int64               // connections of the pool
	free   *semaphore.Weighted // connections that no read uses
}

// Limits bound one search.
type Limits struct {
	Rows  int // that a search looks at
	Slice int // rows of its first slice
}

// NewReader returns a reader over a pool with that many connections. wait bounds the wait for a turn, and then for each
// connection; 0 waits as long as the context lasts.
func NewReader(p *sqlite.Pool, connections int64, wait time.Duration) *Reader {
	return &Reader{
		turns: turns{wait: wait, organizations: map[int64]*turn{}}, Pool: p, Limits: Limits{Rows: searchRows, Slice: firstSlice},
		size: connections, free: semaphore.NewWeighted(connections),
	}
}

// Connection waits for a free connection of the pool. The limit of a read does not run meanwhile. The caller must call free. Faults:
// Unavailable if the wait is too long.
func (r *Reader) Connection(ctx context.Context) (free func(), err error) {
	ctx, cancel := r.waiting(ctx)
	defer cancel()
	if r.free.Acquire(ctx, 1) != nil {
		return nil, context.Cause(ctx)
	}
	return func() { r.free.Release(1) }, nil
}

// connected waits for a connection and runs read.
func (r *Reader) connected(ctx context.Context, read func() error) error {
	free, err := r.Connection(ctx)
	if err != nil {
		return err
	}
	defer free()
	return read()
}

// Get waits for a connection and reads one row into dest. It returns sql.ErrNoRows if there is none.
func (r *Reader) Get(ctx context.Context, dest any, text string, args ...any) error {
	return r.connected(ctx, func() error { return r.Pool.Get(ctx, dest, text, args...) })
}

// List waits for a connection and reads all rows into dest, a pointer to a slice.
func (r *Reader) List(ctx context.Context, dest any, text string, args ...any) error {
	return r.connected(ctx, func() error { return r.Pool.List(ctx, dest, text, args...) })
}

type turnReader struct {
	*Reader
	ctx          context.Context
	organization int64
}

// InTurn returns a sqlite.Reader whose reads wait for the turn of the organization, and then for a connection. Faults: Unavailable if too
// many reads of the organization are running.
func (r *Reader) InTurn(ctx context.Context, organization int64) sqlite.Reader {
	return turnReader{r, ctx, organization}
}

func (r turnReader) Get(dest any, text string, args ...any) error {
	return r.Do(r.ctx, r.organization, func() error { return r.Pool.Get(r.ctx, dest, text, args...) })
}

func (r turnReader) List(dest any, text string, args ...any) error {
	return r.Do(r.ctx, r.organization, func() error { return r.Pool.List(r.ctx, dest, text, args...) })
}

// Drain waits until no read is under way. New reads wait until the caller calls resume. ok is false if the reads do not end in time; there
// is nothing to resume then.
func (r *Reader) Drain(ctx context.Context) (resume func(), ok bool) {
	if r.free.Acquire(ctx, r.size) != nil {
		return nil, false
	}
	return func() { r.free.Release(r.size) }, true
}

// The sizes of slices and searches. A slice of 1,000 delivery attempts, each with its event, takes 5 ms. The Go scheduler
// lets a goroutine compute for 10 ms before others have their turn, so shorter slices keep others from waiting.
const (
	firstSlice    = 500 // rows
	smallestSlice = 100
	largestSlice  = 10_000
	sliceTime     = 5 * time.Millisecond // the aim; a slow disk gets smaller slices
	searchRows    = 100_000
	searchTime    = time.Second
)

// nextSlice returns the rows of the slice after one of that many rows: as many as sliceTime allows, at least one.
func nextSlice(rows int, took time.Duration, most int) int {
	switch {
	case took > sliceTime:
		return max(1, int(int64(rows)*int64(sliceTime)/int64(took)))
	case took < sliceTime/4:
		return min(rows*2, most)
	}
	return rows
}

// CostlySlice is the first slice of a read whose rows may take long, because it parses their bodies.
const CostlySlice = 8 // rows

// Slice is Do for a slice of some rows. It returns the rows of the next one.
func (r *Reader) Slice(ctx context.Context, organization int64, rows, most int, read func() error) (next int, err error) {
	next = rows
	err = r.Do(ctx, organization, func() error {
		began := time.Now()
		err := read()
		next = nextSlice(rows, time.Since(began), most)
		return err
	})
	return next, err
}

// Do runs read in the turn of the organization and with a connection. Faults: Unavailable if too many reads of the organization are running.
func (r *Reader) Do(ctx context.Context, organization int64, read func() error) error {
	end, err := r.Take(ctx, organization)
	if err != nil {
		return err
	}
	defer end()
	return r.connected(ctx, read)
}

// Position is a place in a log, which is ordered by time and row id, or by row id alone: At is 0 then.
type Position struct {
	At  int64 `db:"attempted_at"`
	Row int64 `db:"id"`
}

// Search has the statements of one search, and collects what it finds.
type Search interface {
	// Bound returns the position of the last of that many rows below high; sql.ErrNoRows if there are fewer.
	Bound(ctx context.Context, high Position, rows int) (Position, error)
	// Read collects the matching rows from low, inclusive, up to high, exclusive. full says that the search needs no more.
	Read(ctx context.Context, low, high Position) (full bool, err error)
}

// Walk searches a log downwards from high, exclusive. It returns the zero position at the end of the search. If it reaches its
// limits first, it returns how far it came. first is the most rows of the first slice; 0 is no other limit than that of the reader.
func (r *Reader) Walk(ctx context.Context, high Position, s Search, first int) (Position, error) {
	rows, left, took := cmp.Or(min(first, r.Limits.Slice), r.Limits.Slice), r.Limits.Rows, time.Duration(0) // took counts no waiting
	for {
		low, sliceTook, more, err := r.slice(ctx, high, s, rows)
		left -= rows
		took += sliceTook
		switch {
		case err != nil || !more:
			return Position{}, err
		case left <= 0 || took >= searchTime:
			return low, nil
		}
		if err := Pause(ctx, sliceTook); err != nil {
			return Position{}, err
		}
		rows = max(nextSlice(rows, sliceTook, largestSlice), min(rows, smallestSlice))
		high = low
	}
}

// Pause waits as long as a slice took, so that a long search takes half a processor at most.
func Pause(ctx context.Context, took time.Duration) error {
	select {
	case <-time.After(took):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// slice reads the next slice, and returns how long that took. more is false at the end of the search.
func (r *Reader) slice(ctx context.Context, high Position, s Search, rows int) (low Position, took time.Duration, more bool, err error) {
	err = r.connected(ctx, func() (err error) {
		began := time.Now()
		low, err = s.Bound(ctx, high, rows)
		last := errors.Is(err, sql.ErrNoRows)
		if last {
			low, err = Position{}, nil
		}
		full := false
		if err == nil {
			full, err = s.Read(ctx, low, high)
		}
		took, more = time.Since(began), !last && !full
		return err
	})
	return low, took, more, err
}

// ReadAll reads all rows below high in one slice. It is for a search without a filter: every row matches.
func (r *Reader) ReadAll(ctx context.Context, high Position, s Search) error {
	return r.connected(ctx, func() error {
		_, err := s.Read(ctx, Position{}, high)
		return err
	})
}

// UpperBound returns the exclusive upper bound of a list that runs downwards; 0 is no bound.
func UpperBound(before int64) int64 { return cmp.Or(before, math.MaxInt64) }

// Batches calls step until nothing is left. It pauses after each step, and before another one, as long as the step took, so that
// others get their turn. It takes half a processor at most. A positive limit ends it after about that time.
func Batches(ctx context.Context, limit time.Duration, step func() (more bool, err error)) error {
	for end := time.Now().Add(limit); ; {
		began := time.Now()
		more, err := step()
		if err != nil || !more || limit > 0 && !time.Now().Before(end) {
			return err
		}
		if err := Pause(ctx, time.Since(began)); err != nil {
			return err
		}
	}
}

// Rows is Batches without a limit for rows in the order of their ids. step handles some rows after a row, and returns the last of
// them, or 0 if there is none.
func Rows(ctx context.Context, step func(after int64) (last int64, err error)) error {
	var after int64
	return Batches(ctx, 0, func() (more bool, err error) {
		after, err = step(after)
		return after != 0, err
	})
}

// errBusy is the fault of a wait that took too long, and of one too many.
var errBusy = fault.New(fault.Unavailable, "too_busy",
	"Too many reads of this organization's logs are under way; try again in a few seconds, with fewer at a time.").
	Because(errors.New("other reads took too long to wait for"))

// mostReads is how many reads of one organization may be under way or wait; one more is refused.
const mostReads = 32

// turns allow one read of each organization at a time. Its other reads wait in the order of asking, without a connection. The
// zero value is ready to use.
type turns struct {
	wait time.Duration // for a turn, and then for each connection; 0 is as long as the context lasts

	mu            sync.Mutex
	organizations map[int64]*turn // those that have a read; the others cost nothing
}

type turn struct {
	taken chan struct{} // contains one token while a read runs
	reads int           // under way or waiting
}

// Take waits for the turn of the organization. The caller must call end. Faults: Unavailable if too many reads wait, or if the
// wait takes too long.
func (t *turns) Take(ctx context.Context, organization int64) (end func(), err error) {
	own, err := t.join(organization)
	if err != nil {
		return nil, err
	}
	ctx, cancel := t.waiting(ctx)
	defer cancel()
	select {
	case own.taken <- struct{}{}:
		return func() {
			<-own.taken
			t.leave(organization)
		}, nil
	case <-ctx.Done():
		t.leave(organization)
		return nil, context.Cause(ctx)
	}
}

func (t *turns) join(organization int64) (*turn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own, ok := t.organizations[organization]
	if !ok {
		own = &turn{taken: make(chan struct{}, 1)}
		t.organizations[organization] = own
	}
	if own.reads == mostReads {
		return nil, errBusy
	}
	own.reads++
	return own, nil
}

func (t *turns) leave(organization int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.organizations[organization]
	if own.reads--; own.reads == 0 {
		delete(t.organizations, organization)
	}
}

// waiting returns the context of a wait. Its cause is the error of a wait that it ends.
func (t *turns) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.wait == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, t.wait, errBusy)
}
