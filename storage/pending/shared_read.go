package pending

import (
	"context"
	"time"
)

// sharedRead is the last result of a read that takes long. All who ask while it is fresh get it, and one reads it again.
type sharedRead[T any] struct {
	lock  chan struct{} // has a token while somebody uses the other fields
	value T
	until time.Time
}

func newSharedRead[T any]() sharedRead[T] { return sharedRead[T]{lock: make(chan struct{}, 1)} }

const (
	minFresh   = time.Second // how long a result is fresh
	freshTimes = 10          // the result of a slow read is fresh for so many times the time that the read took
)

// get returns the last result while it is fresh, and otherwise a new one.
func (r *sharedRead[T]) get(ctx context.Context, read func(context.Context) (T, error)) (value T, err error) {
	select {
	case r.lock <- struct{}{}:
		defer func() { <-r.lock }()
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
	began := time.Now()
	if began.Before(r.until) {
		return r.value, nil
	}
	if value, err = read(ctx); err != nil {
		return value, err
	}
	end := time.Now()
	r.value, r.until = value, end.Add(max(minFresh, freshTimes*end.Sub(began)))
	return value, nil
}
