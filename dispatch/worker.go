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
	againSoonest = 20 * time.Millisecond
	againLatest  = 5 * time.Second
)

// work does what the scheduler decides, in goroutines of its own, and tells it what came of it.
type work struct {
	*Dispatcher
	ctx     context.Context // ends when what is under way is cut off
	running sync.WaitGroup
	batches chan []*attempt // one at a time
	asks    chan ask
}

// begin has batches begun until there are no more. Once asked for, a Begin is waited for: what it has recorded must be
// known.
func (w *work) begin() {
	var starts []webhook.Start
	for batch := range w.batches {
		starts = starts[:0]
		for _, a := range batch {
			starts = append(starts, webhook.Start{
				Delivery: a.Delivery, Subscription: a.Subscription, Epoch: a.epoch, Number: a.Number(), Trigger: a.Trigger(),
			})
		}
		rows, err := w.store.Begin(w.ctx, starts)
		w.inbox.post(begun{batch, rows, err})
	}
}

// read answers what is asked for until there is nothing more. A read ends with ctx.
func (w *work) read(ctx context.Context) {
	for q := range w.asks {
		w.inbox.post(w.find(ctx, q))
	}
}

// deliver sends one attempt and records its end.
func (w *work) deliver(a *attempt) {
	w.running.Go(func() {
		// Nothing that was decided before a change is sent after it: this look comes after the store told of the change,
		// and before the signature is made.
		if w.inbox.changes.Load() != a.changes {
			w.inbox.post(bounced{a})
			return
		}
		end := w.sender.send(w.ctx, a.target, a.Job)
		if end.cut {
			w.inbox.post(cutOff{a, true})
			return
		}
		r := w.result(a, end)
		a.failed = !r.Succeeded
		w.inbox.post(sent{a}) // which lets go of the body: the job must not be copied from here on
		w.settle(a, r)
	})
}

// result is the record of how an attempt ended, with what follows if it failed.
func (w *work) result(a *attempt, end ending) webhook.Result {
	r := webhook.Result{
		Attempt: a.row, Delivery: a.Delivery, Subscription: a.Subscription,
		Epoch: a.epoch, Number: a.Number(), Trigger: a.Trigger(),
		Succeeded: end.failure.IsZero(), ResponseStatus: end.status, ResponseBody: end.body,
		DurationMS: end.took.Milliseconds(), Failure: end.failure,
	}
	if !r.Succeeded {
		failedProbes := max(a.failures+1-w.o.Policy.FailingAfter, 1)
		now := time.Now().UnixMilli()
		r.RetryAt = now + max(w.backoff.Jittered(r.Number), end.retryAfter).Milliseconds()
		r.ProbeAt = now + max(w.backoff.Jittered(failedProbes), end.retryAfter).Milliseconds()
	}
	return r
}

// settle records an end, however long that takes: until then the delivery is not taken up again.
func (w *work) settle(a *attempt, r webhook.Result) {
	err := persist(w.ctx, func() (err error) {
		a.settled, err = w.store.Record(w.ctx, r)
		if err != nil {
			w.inbox.post(unrecorded{a, err})
		}
		return err
	})
	if err != nil {
		w.inbox.post(cutOff{a, false})
		return
	}
	w.inbox.post(settled{a})
	w.report(&a.target.Target, &a.Job, r, a.settled)
}

// persist tries until write succeeds. It gives up, with the last error, when ctx ends.
func persist(ctx context.Context, write func() error) error {
	for begin := time.Now(); ; {
		err := write()
		if err == nil {
			return nil
		}
		timer := time.NewTimer(min(max(time.Since(begin)/10, againSoonest), againLatest))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// release takes attempts back that were begun and not sent. Until that is done their deliveries are not taken up again.
func (w *work) release(attempts []*attempt) {
	w.running.Go(func() {
		rows := make([]int64, len(attempts))
		for i, a := range attempts {
			rows[i] = a.row
		}
		// If that fails for good, they stay in the store as they are, like those that are cut off.
		_ = persist(w.ctx, func() error {
			err := w.store.Release(w.ctx, rows)
			if err != nil {
				w.inbox.post(unreleased{err})
			}
			return err
		})
		w.inbox.post(released{attempts})
	})
}
