package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// errInterrupted is the cause that ends running requests after the grace period.
var errInterrupted = errors.New("interrupted by a stop of the server")

// A failed write is repeated after a tenth of the time since its first try, within these limits.
const (
	minWriteRetry = 20 * time.Millisecond
	maxWriteRetry = 5 * time.Second
)

// worker carries out the scheduler's decisions in its own goroutines, and reports back to it.
type worker struct {
	*Dispatcher
	ctx     context.Context // ends when running requests are cut off
	running sync.WaitGroup
	batches chan []*attempt // one at a time
	reads   chan readRequest
}

// begin records batches until the channel is closed. It waits for each Begin, because the scheduler must know what was
// recorded.
func (w *worker) begin() {
	var starts []webhook.Start
	for batch := range w.batches {
		starts = starts[:0]
		for _, a := range batch {
			starts = append(starts, webhook.Start{
				Delivery: a.Delivery, Subscription: a.Subscription, Epoch: a.epoch, Number: a.Number(), Trigger: a.Trigger(),
			})
		}
		rows, err := w.store.Begin(w.ctx, starts)
		w.inbox.post(beginReturned{batch, rows, err})
	}
}

// read runs reads until the channel is closed. A read ends with ctx.
func (w *worker) read(ctx context.Context) {
	for q := range w.reads {
		w.inbox.post(w.runRead(ctx, q))
	}
}

// deliver sends one attempt and records its result.
func (w *worker) deliver(a *attempt) {
	w.running.Go(func() {
		// An attempt that was decided before a change must not be sent after it. The store reports the change before
		// this check, and the signature is made after it.
		if w.inbox.changes.Load() != a.changesRead {
			w.inbox.post(sendRefused{a})
			return
		}
		sent := w.sender.send(w.ctx, a.target, a.Job)
		if sent.cutOff {
			w.inbox.post(attemptInterrupted{a, true})
			return
		}
		r := w.result(a, sent)
		a.failed = !r.Succeeded
		w.inbox.post(requestEnded{a}) // this drops the body, so the job must not be copied after it
		w.settle(a, r)
	})
}

// result returns the record of how an attempt ended, with the time of the next attempt if it failed.
func (w *worker) result(a *attempt, sent sendResult) webhook.Result {
	r := sent.record(a.row, &a.Job, a.epoch)
	if !r.Succeeded {
		failedProbes := max(a.failures+1-w.options.Policy.FailingAfter, 1)
		now := time.Now().UnixMilli()
		r.RetryAt = now + max(w.backoff.Jittered(r.Number), sent.retryAfter).Milliseconds()
		r.ProbeAt = now + max(w.backoff.Jittered(failedProbes), sent.retryAfter).Milliseconds()
	}
	return r
}

// settle records a result, however long that takes. Until then the delivery is not queued again.
func (w *worker) settle(a *attempt, r webhook.Result) {
	err := retryWrite(w.ctx, func() (err error) {
		a.settled, err = w.store.Record(w.ctx, r)
		if err != nil {
			w.inbox.post(recordFailed{a, err})
		}
		return err
	})
	if err != nil {
		w.inbox.post(attemptInterrupted{a, false})
		return
	}
	w.inbox.post(attemptSettled{a})
	w.report(&a.target.Target, &a.Job, r, a.settled)
}

// retryWrite repeats write until it succeeds. When ctx ends, it gives up and returns the last error.
func retryWrite(ctx context.Context, write func() error) error {
	for begin := time.Now(); ; {
		err := write()
		if err == nil {
			return nil
		}
		timer := time.NewTimer(min(max(time.Since(begin)/10, minWriteRetry), maxWriteRetry))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// release deletes the records of attempts that were begun but not sent. Until then their deliveries are not queued
// again.
func (w *worker) release(attempts []*attempt) {
	w.running.Go(func() {
		rows := make([]int64, len(attempts))
		for i, a := range attempts {
			rows[i] = a.row
		}
		// If this never succeeds, the records stay, like those of attempts that are cut off.
		_ = retryWrite(w.ctx, func() error {
			err := w.store.UndoBegin(w.ctx, rows)
			if err != nil {
				w.inbox.post(releaseFailed{err})
			}
			return err
		})
		w.inbox.post(attemptsReleased{attempts})
	})
}
