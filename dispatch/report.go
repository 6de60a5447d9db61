package dispatch

import (
	"context"
	"log/slog"

	"github.com/keyhook/keyhook/storage/webhook"
)

// report calls OnSettled and logs the attempt in one line. A success is a debug line; a failure or a recovery is an
// info line. It is a warning if the delivery has no attempts left or the subscription's health got worse.
func (d *Dispatcher) report(t *webhook.Target, j *webhook.Job, r webhook.Result, settled webhook.Settled) {
	if d.options.OnSettled != nil {
		d.options.OnSettled(r, settled)
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
