package platform

import (
	"context"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

type queueBody struct {
	Held                 bool           `json:"held"`
	HeldSince            *exchange.Time `json:"held_since"`
	Reason               *string        `json:"reason"`
	PendingDeliveries    int64          `json:"pending_deliveries"`
	PendingSubscriptions int64          `json:"pending_subscriptions"`
	Pending              []queuedBody   `json:"pending"`            // the largest first, at most webhook.MaxQueued
	Released             *int64         `json:"released,omitempty"` // by this request
	Dropped              *int64         `json:"dropped,omitempty"`  // by this request
}

// queuedBody is a subscription with pending deliveries. It shows only the host of the URL.
type queuedBody struct {
	SubscriptionID         string        `json:"subscription_id"`
	OrganizationID         string        `json:"organization_id"`
	OrganizationExternalID *string       `json:"organization_external_id"`
	OrganizationName       string        `json:"organization_name"`
	URLHost                string        `json:"url_host"`
	Pending                int64         `json:"pending"`
	OldestDue              exchange.Time `json:"oldest_due"`
}

// respondQueue responds with the queue. The body already has what the request did.
func (h *Endpoints) respondQueue(ctx context.Context, x *exchange.Exchange, body queueBody) error {
	q, err := h.Store.QueueSummary(ctx)
	if err != nil {
		return err
	}
	body.PendingDeliveries, body.PendingSubscriptions = q.Deliveries, q.Subscriptions
	if q.Hold != nil {
		body.Held, body.HeldSince, body.Reason = true, new(exchange.Time(q.Hold.Since)), access.NullIfEmpty(q.Hold.Reason)
	}
	body.Pending = exchange.Each(q.Largest, func(w webhook.Queued) queuedBody {
		host := webhook.URLHost(w.URL)
		return queuedBody{w.SubscriptionID, w.OrganizationID, w.OrganizationExternalID, w.OrganizationName, host, w.Pending, exchange.Time(w.OldestDue)}
	})
	return x.OK(body)
}

// ReadQueue responds with the largest parts of the queue, and with the hold.
func (h *Endpoints) ReadQueue(x *exchange.Exchange) error {
	return h.respondQueue(x.Request.Context(), x, queueBody{})
}

// HoldQueue stops all sending and responds with the queue, as every change of the queue does.
func (h *Endpoints) HoldQueue(x *exchange.Exchange) error {
	f := x.OptionalForm()
	reason := f.Label("reason")
	if err := f.Err(); err != nil {
		return err
	}
	if err := h.Store.HoldQueue(x.Request.Context(), x.Actor(), form.Or(reason, "")); err != nil {
		return err
	}
	return h.ReadQueue(x)
}

// ReleaseQueue ends the hold.
func (h *Endpoints) ReleaseQueue(x *exchange.Exchange) error {
	released, err := h.Store.ReleaseQueue(x.Request.Context(), x.Actor())
	if err != nil {
		return err
	}
	return h.respondQueue(x.Request.Context(), x, queueBody{Released: &released})
}

// DiscardQueue drops the deliveries that were pending when the hold began, and ends the hold.
func (h *Endpoints) DiscardQueue(x *exchange.Exchange) error {
	ctx, cancel := x.LongContext(exchange.BulkLimit)
	defer cancel()
	dropped, err := h.Store.DiscardQueue(ctx, x.Actor())
	if err != nil {
		return err
	}
	return h.respondQueue(ctx, x, queueBody{Dropped: &dropped})
}
