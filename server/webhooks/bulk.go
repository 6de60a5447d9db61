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

// bulkStore is the part of the store that sends again what a list of events shows.
type bulkStore interface {
	subscriptionNames
	// EventRetention is how long events are kept; 0 means for ever.
	EventRetention() time.Duration
	// SendListed sends again what a list of events shows, or only counts it.
	SendListed(ctx context.Context, actor access.Actor, organization int64, r webhook.BulkRequest) (webhook.BulkResult, error)
}

// Bulk are the endpoints that send again what a list of events shows.
type Bulk struct{ store bulkStore }

type bulkBody struct {
	Events        int64   `json:"events"`
	Deliveries    int64   `json:"deliveries"`
	Subscriptions int64   `json:"subscriptions"`
	Pending       int64   `json:"pending"`
	BlockedBy     *string `json:"blocked_by"`
}

// Recover sends again what has not arrived, and activates the subscriptions that failures have disabled.
func (h Bulk) Recover(x *exchange.Exchange) error { return h.send(x, true) }

// Redeliver sends again what the list shows, whether it has arrived since or not.
func (h Bulk) Redeliver(x *exchange.Exchange) error { return h.send(x, false) }

func (h Bulk) send(x *exchange.Exchange, recovers bool) error {
	f := x.Form()
	r := webhook.BulkRequest{Events: readListed(f, recovers, h.store.EventRetention()), Recover: recovers, DryRun: form.Or(f.Bool("dry_run"), false)}
	r.Events.WithoutAudit = r.Events.WithoutAudit || !x.Principal.Can(access.AuditRead)
	err := f.Err()
	if err != nil {
		return err
	}
	if r.Events.Subscription, err = resolveSubscription(x, h.store, r.Events.Subscription); err != nil {
		return err
	}
	ctx, cancel := x.LongContext(replayLimit)
	defer cancel()
	sent, err := h.store.SendListed(ctx, x.Actor(), x.Organization(), r)
	if err != nil {
		return err
	}
	return x.Respond(http.StatusAccepted, bulkBody{sent.Events, sent.Deliveries, sent.Subscriptions, sent.Pending, exchange.NullIfEmpty(string(sent.BlockedBy))})
}

// readListed reads the filters of the list. kept is how long Keyhook keeps events; expired ones are older.
func readListed(f *form.Form, recovers bool, kept time.Duration) (events webhook.EventFilter) {
	f.Require("state", "since")
	if text := f.Text("state", form.MaxName); text != nil {
		events.State = webhook.EventState(*text)
		if why := notSent(events.State, recovers); why != "" {
			f.Refuse("state", "invalid", "%s", why)
		}
	}
	if events.State == webhook.AnyExpired {
		kept = 0
	}
	events.Since, events.Until = readKeptPeriod(f, kept)
	if text := f.Text("event_type", webhook.MaxEventType); text != nil {
		if events.Type = *text; !webhook.ValidPattern(*text) {
			f.Refuse("event_type", "invalid", "This must be an event type such as user.created, or a prefix such as user.*.")
		}
	}
	if text := f.Text("subscription_id", access.MaxExternalID); text != nil {
		if events.Subscription = *text; !access.SubscriptionID.MayName(*text) {
			f.Refuse("subscription_id", "invalid", "This must be the id or the external id of a subscription.")
		}
	}
	events.WithoutAudit = !form.Or(f.Bool("audit_events"), true)
	return events
}

// notSent says why nothing is sent again of a list with this state; empty if something is.
func notSent(state webhook.EventState, recovers bool) string {
	switch {
	case state == webhook.AnyExhausted, state == webhook.AnyDropped, state == webhook.AnyDelivered && !recovers, state == webhook.AnyExpired && recovers:
		return ""
	case state == webhook.AnyDelivered:
		return "These events have arrived. To send them again, redeliver them."
	case state == webhook.AnyExpired:
		return "These deliveries still wait. To send them, recover them, which activates their subscriptions."
	case state == webhook.AnyPending:
		return "These deliveries wait, and Keyhook sends them without a request. If failures have disabled a subscription, recover it."
	case state == webhook.ForNobody:
		return "These events have no delivery. To make one, replay the subscription that has missed them."
	case recovers:
		return "This must be one of exhausted, dropped, expired."
	}
	return "This must be one of delivered, exhausted, dropped."
}
