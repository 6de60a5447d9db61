package webhooks

import (
	"context"
	"net/http"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Replay sends events again that a subscription did not receive. A dry run counts only.
func (h Endpoints) Replay(x *exchange.Exchange, id string) error {
	f := x.Form()
	f.Require("since")
	var r webhook.Replay
	r.Since, r.Until = readKeptPeriod(f, h.Store.EventRetention())
	r.EventTypes = form.Or(f.EventTypes("event_types"), nil)
	only := f.OneOf("only", string(webhook.OnlyFailed), string(webhook.OnlyMissed), string(webhook.OnlyAll))
	r.Only = webhook.Only(form.Or(only, string(webhook.OnlyAll)))
	r.WithoutAudit, r.DryRun = !x.Principal.Can(access.AuditRead), form.Or(f.Bool("dry_run"), false)
	return respondAccepted(x, f, func(ctx context.Context) (webhook.Replayed, error) {
		return h.Store.Replay(ctx, x.Actor(), x.Organization(), id, r)
	}, func(r webhook.Replayed) replayBody { return replayBody{r.Total(), reasonsBody(r)} })
}

// respondAccepted does what a body asks for, which may take as long as exchange.BulkLimit, and responds with the outcome. f has the problems of
// the body.
func respondAccepted[T, B any](x *exchange.Exchange, f *form.Form, do func(context.Context) (T, error), body func(T) B) error {
	if err := f.Err(); err != nil {
		return err
	}
	ctx, cancel := x.LongContext(exchange.BulkLimit)
	defer cancel()
	done, err := do(ctx)
	if err != nil {
		return err
	}
	return x.Respond(http.StatusAccepted, body(done))
}

type replayBody struct {
	Deliveries int64       `json:"deliveries"`
	Reasons    reasonsBody `json:"reasons"`
}

type reasonsBody struct {
	Exhausted     int64 `json:"exhausted"`
	Plan          int64 `json:"plan"`
	TypeAdded     int64 `json:"type_added"`
	FilterChanged int64 `json:"filter_changed"`
}

// readKeptPeriod reads a period that begins in the past, in milliseconds; 0 is none. kept is how long Keyhook keeps its events; 0 means
// for ever.
func readKeptPeriod(f *form.Form, kept time.Duration) (from, to int64) {
	now := time.Now()
	since, until := f.Time("since"), f.Time("until")
	switch {
	case since == nil:
	case since.After(now):
		f.Refuse("since", "in_the_future", "This must be in the past.")
	case kept > 0 && since.Before(now.Add(-kept)):
		f.Refuse("since", CodeBeyondRetention, "Older events than storage.retention_events have been deleted; give a time after %s.",
			webhook.AppendTime(nil, now.Add(-kept).UnixMilli()))
	}
	if since != nil && until != nil && !until.After(*since) {
		f.Refuse("until", "out_of_range", "This must be later than since.")
	}
	return milliseconds(since), milliseconds(until)
}

// CodeBeyondRetention is the code of a time whose events may have been deleted.
const CodeBeyondRetention = "beyond_retention"

type recoveryBody struct {
	Deliveries int64         `json:"deliveries"`
	Pending    int64         `json:"pending"`
	Since      exchange.Time `json:"since"`
	BlockedBy  *string       `json:"blocked_by"`
}

// Recover makes a subscription active, and sends again what its receiver missed. A dry run counts only.
func (h Endpoints) Recover(x *exchange.Exchange, id string) error {
	f := x.OptionalForm()
	since := f.Time("since")
	if since != nil && since.After(time.Now()) {
		f.Refuse("since", "in_the_future", "This must be in the past.")
	}
	request := webhook.RecoveryRequest{
		Since: milliseconds(since), Activate: form.Or(f.Bool("activate"), false),
		WithoutAudit: !x.Principal.Can(access.AuditRead), DryRun: form.Or(f.Bool("dry_run"), false),
	}
	return respondAccepted(x, f, func(ctx context.Context) (webhook.Recovery, error) {
		return h.Store.Recover(ctx, x.Actor(), x.Organization(), id, request)
	}, func(r webhook.Recovery) recoveryBody {
		return recoveryBody{r.Deliveries, r.Pending, exchange.Time(r.Since), access.NullIfEmpty(string(r.BlockedBy))}
	})
}

// Discard drops pending deliveries of a subscription.
func (h Endpoints) Discard(x *exchange.Exchange, id string) error {
	f := x.OptionalForm()
	before := f.Time("before")
	return respondAccepted(x, f, func(ctx context.Context) (int64, error) {
		return h.Store.Discard(ctx, x.Actor(), x.Organization(), id, milliseconds(before))
	}, func(n int64) deliveriesBody { return deliveriesBody{n} })
}

type bulkBody struct {
	Events        int64   `json:"events"`
	Deliveries    int64   `json:"deliveries"`
	Subscriptions int64   `json:"subscriptions"`
	Pending       int64   `json:"pending"`
	BlockedBy     *string `json:"blocked_by"`
}

// RecoverListed sends again what has not arrived, and activates the subscriptions that failures have disabled.
func (h Endpoints) RecoverListed(x *exchange.Exchange) error {
	return h.sendListed(x, true, "exhausted", "dropped", "expired")
}

// RedeliverListed sends again what the list shows, whether it has arrived since or not.
func (h Endpoints) RedeliverListed(x *exchange.Exchange) error {
	return h.sendListed(x, false, "delivered", "exhausted", "dropped")
}

// sendListed sends the events of a filtered list again. It takes the given states only.
func (h Endpoints) sendListed(x *exchange.Exchange, recovers bool, states ...string) error {
	f := x.Form()
	f.Require("state", "since")
	r := webhook.BulkRequest{Recover: recovers}
	r.Events.State = webhook.EventState(form.Or(f.OneOf("state", states...), ""))
	r.Events.Since, r.Events.Until = readKeptPeriod(f, 0) // as the list, it takes any time
	eventType, subscription := f.Text("event_type", webhook.MaxEventType), f.Text("subscription_id", access.MaxExternalID)
	eventType = f.Matching("event_type", eventType, "be an event type such as user.created, or a prefix such as user.*", webhook.ValidPattern)
	r.Events.Type = form.Or(eventType, "")
	subscription = f.Matching("subscription_id", subscription, "be the id or the external id of a subscription", access.SubscriptionID.MayName)
	r.Events.Subscription = form.Or(subscription, "")
	r.Events.WithoutAudit = !form.Or(f.Bool("audit_events"), true) || !x.Principal.Can(access.AuditRead)
	r.DryRun = form.Or(f.Bool("dry_run"), false)
	return respondAccepted(x, f, func(ctx context.Context) (sent webhook.BulkResult, err error) {
		if r.Events.Subscription, err = h.resolveSubscription(x, r.Events.Subscription); err != nil {
			return sent, err
		}
		return h.Store.SendListed(ctx, x.Actor(), x.Organization(), r)
	}, func(r webhook.BulkResult) bulkBody {
		return bulkBody{r.Events, r.Deliveries, r.Subscriptions, r.Pending, access.NullIfEmpty(string(r.BlockedBy))}
	})
}

func milliseconds(at *time.Time) int64 {
	if at == nil {
		return 0
	}
	return max(1, at.UnixMilli())
}
