package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// errCut is why what is under way ends when Run has waited long enough.
var errCut = errors.New("cut off by a stop")

// What the store refused is tried again after a tenth of the time that it has been refused for, within these bounds.
const (
	minWriteRetry = 20 * time.Millisecond
	maxWriteRetry = 5 * time.Second
)

// work does what the scheduler decides, in goroutines of its own, and tells it what came of it.
type worker struct {
	*Dispatcher
	ctx     context.Context // ends when what is under way is cut off
	running sync.WaitGroup
	batches chan []*attempt // one at a time
	reads   chan readRequest
}

// begin has batches begun until there are no more. Once asked for, a Begin is waited for: what it has recorded must be
// known.
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

// read answers what is asked for until there is nothing more. A read ends with ctx.
func (w *worker) read(ctx context.Context) {
	for q := range w.reads {
		w.inbox.post(w.runRead(ctx, q))
	}
}

// deliver sends one attempt and records its end.
func (w *worker) deliver(a *attempt) {
	w.running.Go(func() {
		// Nothing that was decided before a change is sent after it: this look comes after the store told of the change,
		// and before the signature is made.
		if w.inbox.changes.Load() != a.changesRead {
			w.inbox.post(sendRefused{a})
			return
		}
		end := w.sender.send(w.ctx, a.target, a.Job)
		if end.cutOff {
			w.inbox.post(attemptCutOff{a, true})
			return
		}
		r := w.result(a, end)
		a.failed = !r.Succeeded
		w.inbox.post(requestEnded{a}) // which lets go of the body: the job must not be copied from here on
		w.settle(a, r)
	})
}

// result is the record of how an attempt ended, with what follows if it failed.
func (w *worker) result(a *attempt, end sendResult) webhook.Result {
	r := webhook.Result{
		Attempt: a.row, Delivery: a.Delivery, Subscription: a.Subscription,
		Epoch: a.epoch, Number: a.Number(), Trigger: a.Trigger(),
		Succeeded: end.err == "", ResponseStatus: end.status, ResponseBody: end.body,
		DurationMS: end.duration.Milliseconds(), Error: end.err,
	}
	if !r.Succeeded {
		failedProbes := max(a.failures+1-w.options.Policy.FailingAfter, 1)
		now := time.Now().UnixMilli()
		r.RetryAt = now + max(w.backoff.Jittered(r.Number), end.retryAfter).Milliseconds()
		r.ProbeAt = now + max(w.backoff.Jittered(failedProbes), end.retryAfter).Milliseconds()
	}
	return r
}

// settle records an end, however long that takes: until then the delivery is not taken up again.
func (w *worker) settle(a *attempt, r webhook.Result) {
	err := retryWrite(w.ctx, func() (err error) {
		a.settled, err = w.store.Record(w.ctx, r)
		if err != nil {
			w.inbox.post(recordFailed{a, err})
		}
		return err
	})
	if err != nil {
		w.inbox.post(attemptCutOff{a, false})
		return
	}
	w.inbox.post(attemptSettled{a})
	w.report(&a.target.Target, &a.Job, r, a.settled)
}

// persist tries until write succeeds. It gives up, with the last error, when ctx ends.
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

// release takes attempts back that were begun and not sent. Until that is done their deliveries are not taken up again.
func (w *worker) release(attempts []*attempt) {
	w.running.Go(func() {
		rows := make([]int64, len(attempts))
		for i, a := range attempts {
			rows[i] = a.row
		}
		// If that fails for good, they stay in the store as they are, like those that are cut off.
		_ = retryWrite(w.ctx, func() error {
			err := w.store.Release(w.ctx, rows)
			if err != nil {
				w.inbox.post(releaseFailed{err})
			}
			return err
		})
		w.inbox.post(attemptsReleased{attempts})
	})
}
