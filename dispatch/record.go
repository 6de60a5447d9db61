package dispatch

import (
	"context"
	"log/slog"

	"github.com/keyhook/keyhook/dispatch/sender"
	"github.com/keyhook/keyhook/storage/webhook"
)

// record saves results until the channel is closed. Results that come while it saves others are saved together after that. The store
// saves all results of a call or none, so one result that it refuses stops the others. After a failure, each result is saved alone.
func (w *worker) record() {
	var batch []*sendOrder
	var results []webhook.Result
	for first := range w.ended {
		batch = append(batch[:0], first)
		for range min(len(w.ended), maxBatch-1) {
			batch = append(batch, <-w.ended)
		}
		results = results[:0]
		for _, o := range batch {
			results = append(results, o.Result)
		}
		settled, err := w.store.Record(w.recordCtx, results...)
		if err == nil {
			w.finishRecord(batch, settled)
			clear(results) // they keep the bodies of responses in memory
		} else {
			results = nil // the store may still be at work on them
			for _, o := range batch {
				w.running.Go(func() { w.recordAlone(o) })
			}
		}
		clear(batch)
	}
}

// recordAlone saves a result, however long that takes. Until then the delivery is not queued again.
func (w *worker) recordAlone(o *sendOrder) {
	w.unsaved.Add(1)
	defer w.unsaved.Add(-1)
	key := o.key()
	var settled []webhook.Settled
	err := retryWrite(w.ctx, func() (err error) {
		if settled, err = w.store.Record(w.recordCtx, o.Result); err != nil {
			w.post(func(s *scheduler) { s.noteFailedRecord(s.lanes.find(key), err) })
		}
		return err
	})
	if err != nil {
		w.post(func(s *scheduler) { s.lanes.move(s.lanes.find(key), gone) }) // the record stays as it is
		return
	}
	w.finishRecord([]*sendOrder{o}, settled)
}

func (w *worker) finishRecord(orders []*sendOrder, settled []webhook.Settled) {
	attempts := make([]attemptKey, len(orders))
	for i, o := range orders {
		attempts[i] = o.key()
	}
	w.post(func(s *scheduler) {
		for i, key := range attempts {
			s.settle(s.lanes.find(key), settled[i])
		}
	})
	for i, o := range orders {
		w.report(&o.Attempt, settled[i])
	}
}

// report calls OnSettled and logs the attempt in one line. A success is a debug line; a failure or a recovery is an
// info line. It is a warning if the delivery has no attempts left or the subscription's health got worse.
func (d *Dispatcher) report(a *sender.Attempt, settled webhook.Settled) {
	t, j, r := a.Target, &a.Job, &a.Result
	if d.options.OnSettled != nil {
		d.options.OnSettled(*r, settled)
	}
	level := slog.LevelDebug
	switch {
	case !r.Succeeded && (settled.Changed || settled.State == webhook.Exhausted) && r.Trigger != webhook.ByTest:
		level = slog.LevelWarn
	case !r.Succeeded || settled.Changed:
		level = slog.LevelInfo
	}
	ctx := context.Background()
	if !d.log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 16)
	attrs = append(attrs,
		slog.String("organization", t.OrganizationID), slog.String("subscription", t.ID),
		slog.String("event", j.EventID), slog.String("event_type", j.EventType), slog.Int64("delivery", j.Delivery),
		slog.Int("attempt", r.Number), slog.String("trigger", r.Trigger.String()),
		slog.Int64("duration_ms", r.DurationMS), slog.String("delivery_state", settled.State.String()),
	)
	if r.ResponseStatus != nil {
		attrs = append(attrs, slog.Int("status", *r.ResponseStatus))
	}
	if !r.Failure.IsZero() {
		attrs = append(attrs, slog.String("error", r.Failure.String()))
	}
	if settled.State == webhook.Pending {
		attrs = append(attrs, slog.String("due_at", string(webhook.AppendTime(nil, settled.DueAt))))
	}
	if r.Trigger != webhook.ByTest {
		attrs = append(attrs, slog.String("health", string(settled.Health.Status)), slog.Int("consecutive_failures", settled.Health.ConsecutiveFailures))
	}
	if settled.Changed && settled.Health.Status != webhook.Healthy {
		attrs = append(attrs, slog.Any("mend", webhook.Mend{Action: settled.Health.Action(), Organization: t.OrganizationID, Subscription: t.ID}))
	}
	text := "attempt succeeded"
	if !r.Succeeded {
		text = "attempt failed"
	}
	d.log.LogAttrs(ctx, level, text, attrs...)
}
