package storage

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/keyhook/keyhook/storage/sqlite"
)

// Reads of logs have connections of their own, so that authentication and delivery never wait for them. A caller filters
// a log, so a read may have to look at many rows and find few.
const (
	logReaders    = 2
	replayReaders = 1
	logLimit      = 3 * time.Second // of one statement; a slice takes far less
	logWait       = 5 * time.Second // for a turn, and then for each connection
	logReads      = 32              // of one organization that go on or wait
)

// logReader reads logs, one read of each organization at a time. It reads a long log in slices. Each slice has a read
// transaction of its own, so that the write-ahead log can start anew between two slices.
type logReader struct {
	*turns
	pool   *sqlite.Pool
	size   int64               // connections of the pool
	slots  *semaphore.Weighted // one for each connection, given in the order of asking
	limits search              // of each search
}

func newLogReader(p *sqlite.Pool, size int64, t *turns) *logReader {
	return &logReader{
		turns: t, pool: p, size: size, slots: semaphore.NewWeighted(size),
		limits: search{rows: firstSlice, left: searchRows},
	}
}

// slot waits for a connection. The limit of a read does not run meanwhile. The caller must call free. Faults: Unavailable
// where the wait is too long.
func (r *logReader) slot(ctx context.Context) (free func(), err error) {
	ctx, cancel := r.waiting(ctx)
	defer cancel()
	if r.slots.Acquire(ctx, 1) != nil {
		return nil, waited(ctx)
	}
	return func() { r.slots.Release(1) }, nil
}

// get reads one row into dest; sql.ErrNoRows where there is none.
func (r *logReader) get(ctx context.Context, dest any, text string, args ...any) error {
	free, err := r.slot(ctx)
	if err != nil {
		return err
	}
	defer free()
	return r.pool.Get(ctx, dest, text, args...)
}

// list reads all rows into dest, a pointer to a slice.
func (r *logReader) list(ctx context.Context, dest any, text string, args ...any) error {
	free, err := r.slot(ctx)
	if err != nil {
		return err
	}
	defer free()
	return r.pool.List(ctx, dest, text, args...)
}

// drain waits until no read is under way, and keeps new ones waiting until resume is called. ok is false where the reads
// do not end in time; resume must be called all the same.
func (r *logReader) drain(ctx context.Context) (resume func(), ok bool) {
	if r.slots.Acquire(ctx, r.size) != nil {
		return func() {}, false
	}
	return func() { r.slots.Release(r.size) }, true
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

// search bounds what one request looks at, whatever it finds.
type search struct {
	rows int           // of the next slice
	left int           // rows that may still be looked at
	took time.Duration // so far, without waiting
}

// note takes in that a slice was read.
func (s *search) note(took time.Duration) {
	s.left -= s.rows
	s.took += took
	switch {
	case took > sliceTime:
		s.rows = max(s.rows/2, smallestSlice)
	case took < sliceTime/4:
		s.rows = min(s.rows*2, largestSlice)
	}
}

func (s *search) over() bool { return s.left <= 0 || s.took >= searchTime }

// position is a place in a log, which is ordered by time and row id, or by row id alone: at is 0 then.
type position struct {
	At  int64 `db:"attempted_at"`
	Row int64 `db:"id"`
}

// slicer knows the statements of one search.
type slicer interface {
	// bound returns the position of the last of so many rows below high; sql.ErrNoRows where there are fewer.
	bound(ctx context.Context, high position, rows int) (position, error)
	// read takes in what matches from low, inclusive, up to high, exclusive. full is true where no more is wanted.
	read(ctx context.Context, low, high position) (full bool, err error)
}

// walk searches a log downwards from high, exclusive. It returns the zero position where the search came to its end, and
// else how far it came before it had looked at enough.
func (r *logReader) walk(ctx context.Context, high position, s slicer) (position, error) {
	bounds := r.limits
	for {
		before := bounds.took
		low, more, err := r.slice(ctx, high, s, &bounds)
		switch {
		case err != nil || !more:
			return position{}, err
		case bounds.over():
			return low, nil
		}
		if err := pauseFor(ctx, bounds.took-before); err != nil {
			return position{}, err
		}
		high = low
	}
}

// pauseFor waits as long as a slice took, so that a long search takes half a processor at most.
func pauseFor(ctx context.Context, took time.Duration) error {
	timer := time.NewTimer(took)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// slice reads the next slice. more is false where the search has come to its end.
func (r *logReader) slice(ctx context.Context, high position, s slicer, bounds *search) (low position, more bool, err error) {
	free, err := r.slot(ctx)
	if err != nil {
		return low, false, err
	}
	defer free()
	began := time.Now()
	low, err = s.bound(ctx, high, bounds.rows)
	last := errors.Is(err, sql.ErrNoRows)
	if last {
		low, err = position{}, nil
	}
	if err != nil {
		return low, false, err
	}
	full, err := s.read(ctx, low, high)
	bounds.note(time.Since(began))
	return low, !last && !full, err
}

// whole reads all in one slice: the search of a filter that no row can be looked at for in vain.
type whole struct{ slicer }

func (whole) bound(context.Context, position, int) (position, error) {
	return position{}, sql.ErrNoRows
}
