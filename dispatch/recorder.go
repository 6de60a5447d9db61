package dispatch

import (
	"slices"
	"sync"

	"github.com/keyhook/keyhook/storage/webhook"
)

// recorder saves the results of attempts. Results that come while it saves others are saved together after that.
type recorder struct {
	ready chan struct{} // holds one token while results wait

	mu      sync.Mutex
	waiting []attemptResult
}

// attemptResult is the result of an attempt that was sent.
type attemptResult struct {
	order *sendOrder
	webhook.Result
}

func newRecorder() *recorder { return &recorder{ready: make(chan struct{}, 1)} }

// add makes a result wait to be saved.
func (r *recorder) add(result attemptResult) {
	r.mu.Lock()
	defer r.mu.Unlock() // before its token is sent, nobody can take the result, so Run has not closed the channel
	r.waiting = append(r.waiting, result)
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// take returns the results that wait. empty becomes the next buffer.
func (r *recorder) take(empty []attemptResult) []attemptResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := r.waiting
	r.waiting = empty
	return waiting
}

// record saves results until the channel is closed. The store saves all results of a call or none, so one result that it
// refuses stops the others. After a failure, each result is saved alone.
func (w *worker) record() {
	var buffer []attemptResult
	var results []webhook.Result
	for range w.recorder.ready {
		buffer = w.recorder.take(buffer[:0])
		for batch := range slices.Chunk(buffer, maxBatch) {
			results = results[:0]
			for i := range batch {
				results = append(results, batch[i].Result)
			}
			settled, err := w.store.Record(w.recordCtx, results...)
			if err == nil {
				w.finishRecord(batch, settled)
				clear(results) // they keep the bodies of responses in memory
				continue
			}
			results = nil // the store may still be at work on them
			for _, result := range batch {
				w.running.Go(func() { w.recordAlone(result) })
			}
		}
		clear(buffer)
	}
}

// recordAlone saves a result, however long that takes. Until then the delivery is not queued again.
func (w *worker) recordAlone(result attemptResult) {
	w.unsaved.Add(1)
	defer w.unsaved.Add(-1)
	var settled []webhook.Settled
	err := retryWrite(w.ctx, func() (err error) {
		if settled, err = w.store.Record(w.recordCtx, result.Result); err != nil {
			w.inbox.post(recordFailed{result.order.key(), err})
		}
		return err
	})
	if err != nil {
		w.inbox.post(attemptInterrupted{result.order.key()})
		return
	}
	w.finishRecord([]attemptResult{result}, settled)
}

// finishRecord reports results that are saved.
func (w *worker) finishRecord(results []attemptResult, settled []webhook.Settled) {
	attempts := make([]attemptKey, len(results))
	for i := range results {
		attempts[i] = results[i].order.key()
	}
	w.inbox.post(resultsRecorded{attempts, settled})
	for i := range results {
		w.report(&results[i].order.target.Target, &results[i].order.Job, results[i].Result, settled[i])
	}
}
