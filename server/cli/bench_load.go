package cli

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// load sends a request n times over so many connections, each as soon as the one before on its connection is answered.
type load struct {
	address     string
	request     request
	status      int // expected
	n           int
	connections int
}

// run returns how long it took, from before the connections are made, and the size of the last answer.
func (l load) run(ctx context.Context) (took time.Duration, size int, err error) {
	began := time.Now()
	var left, last atomic.Int64
	left.Store(int64(l.n))
	all, ctx := errgroup.WithContext(ctx)
	for range min(l.connections, l.n) {
		all.Go(func() error {
			w, err := dialWire(ctx, l.address)
			if err != nil {
				return err
			}
			defer w.close()
			var buffer []byte
			for left.Add(-1) >= 0 {
				buffer = l.request.stamped(buffer[:0], time.Now())
				size, err := w.do(buffer, l.status)
				if err != nil {
					return orCause(ctx, err)
				}
				last.Store(int64(size))
			}
			return nil
		})
	}
	err = all.Wait()
	return time.Since(began), int(last.Load()), err
}

// paced sends n requests at a steady rate, whether or not those before are answered, and each of the given ones in turn.
type paced struct {
	address  string
	requests []request
	status   int // expected
	n        int
	rate     int // a second
}

// pacedConnections is how many requests a paced load has on their way before one more has to wait, which would show in
// its stamp.
const pacedConnections = 32

func (p paced) run(ctx context.Context) error {
	type sending struct {
		request int
		at      time.Time
	}
	queue := make(chan sending, p.n)
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error {
		defer close(queue)
		ticker := time.NewTicker(time.Second / time.Duration(p.rate))
		defer ticker.Stop()
		for i := range p.n {
			select {
			case <-ticker.C:
				queue <- sending{i % len(p.requests), time.Now()}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	for range min(pacedConnections, p.n) {
		all.Go(func() error {
			w, err := dialWire(ctx, p.address)
			if err != nil {
				return err
			}
			defer w.close()
			var buffer []byte
			for s := range queue {
				buffer = p.requests[s.request].stamped(buffer[:0], s.at)
				if _, err := w.do(buffer, p.status); err != nil {
					return orCause(ctx, err)
				}
			}
			return nil
		})
	}
	return all.Wait()
}

// orCause returns why ctx has ended, where that is the reason for err.
func orCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
