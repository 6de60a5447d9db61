package dispatch

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/keyhook/keyhook/dispatch/sender"
	"github.com/keyhook/keyhook/storage/webhook"
)

// A failed write is repeated after a tenth of the time since its first try, within these limits.
const (
	minWriteRetry = 20 * time.Millisecond
	maxWriteRetry = 5 * time.Second
)

// lastRecords is how long results are still recorded after running requests were interrupted. A commit takes milliseconds.
const lastRecords = time.Second

// worker carries out the scheduler's decisions in its own goroutines, and reports back to it.
type worker struct {
	*Dispatcher
	readCtx       context.Context // ends when the server stops
	ctx           context.Context // ends when running requests are interrupted
	interrupt     context.CancelCauseFunc
	recordCtx     context.Context // ends later, so that complete responses are recorded
	stopRecording context.CancelFunc
	running       sync.WaitGroup
	ended         chan *sendOrder // with results that wait to be saved
}

func newWorker(ctx context.Context, d *Dispatcher) *worker {
	w := &worker{Dispatcher: d, readCtx: ctx, ended: make(chan *sendOrder, maxUnsaved)}
	w.ctx, w.interrupt = context.WithCancelCause(context.WithoutCancel(ctx))
	w.recordCtx, w.stopRecording = context.WithCancel(context.WithoutCancel(ctx))
	return w
}

// begin records attempts. No other call of it may run, because the scheduler must know what was recorded.
func (w *worker) begin(starts []webhook.Start) {
	w.running.Go(func() {
		rows, err := w.store.Begin(w.ctx, starts)
		w.post(func(s *scheduler) { s.finishBegin(starts, rows, err) })
	})
}

// sendOrder is a copy of everything that sending an attempt needs. It gets the result.
type sendOrder struct {
	sender.Attempt
	failures    int    // consecutive failures of the subscription
	changesRead uint64 // calls of SubscriptionsChanged and BodiesChanged that the scheduler had read
}

func (o *sendOrder) key() attemptKey { return attemptKey{o.Job.Subscription, o.Job.Delivery} }

// send sends one attempt in another goroutine, and passes its result to record. They own the order from now on.
func (w *worker) send(o *sendOrder) {
	w.running.Add(1)
	go w.deliver(o)
}

func (w *worker) deliver(o *sendOrder) {
	defer w.running.Done()
	key := o.key()
	// An attempt that was decided before a change must not be sent after it. The store reports the change before this
	// check, and the signature is made after it.
	if w.changes.Load() != o.changesRead {
		w.post(func(s *scheduler) { s.takeBack(s.lanes.find(key)) })
		return
	}
	w.sender.Send(w.ctx, &o.Attempt)
	if o.Interrupted {
		w.post(func(s *scheduler) { s.lanes.move(s.lanes.find(key), gone) }) // the record stays as it is
		return
	}
	o.Job.Body = nil // from now on, the scheduler does not count it
	r := &o.Result
	if !r.Succeeded {
		failedProbes := max(o.failures+1-w.options.Policy.FailingAfter, 1)
		now := time.Now().UnixMilli()
		r.RetryAt = now + max(w.backoff.Jittered(r.Number, w.options.Random()), o.RetryAfter).Milliseconds()
		r.ProbeAt = now + max(w.backoff.Jittered(failedProbes, w.options.Random()), o.RetryAfter).Milliseconds()
	}
	failed := !r.Succeeded
	w.post(func(s *scheduler) { s.finishRequest(s.lanes.find(key), failed) })
	w.ended <- o
}

// retryWrite repeats write until it succeeds. When ctx ends, it gives up and returns the last error.
func retryWrite(ctx context.Context, write func() error) error {
	for begin := time.Now(); ; {
		err := write()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(min(max(time.Since(begin)/10, minWriteRetry), maxWriteRetry)):
		case <-ctx.Done():
			return err
		}
	}
}

// release deletes the records of attempts that were begun but not sent. Until then their deliveries are not queued again.
func (w *worker) release(attempts []attemptKey, rows []int64) {
	w.running.Go(func() {
		// If this never succeeds, the records stay, like those of attempts that are interrupted.
		_ = retryWrite(w.ctx, func() error {
			err := w.store.UndoBegin(w.ctx, rows)
			if err != nil {
				w.post(func(s *scheduler) { s.storeFails(stepRelease, err) })
			}
			return err
		})
		w.post(func(s *scheduler) { s.finishRelease(attempts) })
	})
}

// jitter is the largest random change of a delay, as a part of it. It spreads retries of deliveries that failed together.
const jitter = 0.2

// Backoff computes the delay after consecutive failures: first Base, then each delay is Factor times the last, and never more than Max.
type Backoff struct {
	Base   time.Duration
	Factor float64 // at least 1
	Max    time.Duration
}

// Delay returns the delay after the n-th failure, counted from 1, without jitter. It never shrinks as n grows.
func (b Backoff) Delay(n int) time.Duration {
	// A floating-point power overflows to +Inf, where an integer would wrap around.
	d := float64(b.Base) * math.Pow(b.Factor, float64(max(n, 1)-1))
	if d >= float64(b.Max) {
		return b.Max
	}
	return time.Duration(d)
}

// Jittered returns Delay, shortened or lengthened by up to a fifth, and never more than Max. The change is as random as the
// argument, which is in [0, 1).
func (b Backoff) Jittered(n int, random float64) time.Duration {
	d := float64(b.Delay(n)) * (1 - jitter + 2*jitter*random)
	return min(time.Duration(d), b.Max)
}
