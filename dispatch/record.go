package dispatch

import "github.com/keyhook/keyhook/storage/webhook"

// attemptResult is the result of an attempt that was sent.
type attemptResult struct {
	order *sendOrder
	webhook.Result
}

// record saves results until the channel is closed. Results that come while it saves others are saved together after that. The store
// saves all results of a call or none, so one result that it refuses stops the others. After a failure, each result is saved alone.
func (w *worker) record() {
	var batch []attemptResult
	var results []webhook.Result
	for first := range w.ended {
		batch = append(batch[:0], first)
		for range min(len(w.ended), maxBatch-1) {
			batch = append(batch, <-w.ended)
		}
		results = results[:0]
		for i := range batch {
			results = append(results, batch[i].Result)
		}
		settled, err := w.store.Record(w.recordCtx, results...)
		if err == nil {
			w.finishRecord(batch, settled)
			clear(results) // they keep the bodies of responses in memory
		} else {
			results = nil // the store may still be at work on them
			for _, result := range batch {
				w.running.Go(func() { w.recordAlone(result) })
			}
		}
		clear(batch)
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
