package platform

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// queueStore is the part of the store that the queue endpoints use.
type queueStore interface {
	// Queue returns the pending deliveries and the hold.
	QueueSummary(ctx context.Context) (webhook.Queue, error)
	// HoldQueue stops all sending.
	HoldQueue(ctx context.Context, actor access.Actor, reason string) error
	// ReleaseQueue ends the hold and returns how many deliveries are pending.
	ReleaseQueue(ctx context.Context, actor access.Actor) (int64, error)
	// DiscardQueue drops the deliveries that were pending when the hold began, ends the hold, and returns how many it dropped.
	DiscardQueue(ctx context.Context, actor access.Actor) (int64, error)
}

// discardLimit is how long a discard may take. A million deliveries take a fraction of it. If a discard is cut off, the hold
// stays, and the next discard continues.
const discardLimit = 5 * time.Minute

// Queue are the endpoints of the pending deliveries of all organizations.
type Queue struct{ store queueStore }

type queueBody struct {
	Held                 bool           `json:"held"`
	HeldSince            *exchange.Time `json:"held_since"`
	Reason               *string        `json:"reason"`
	PendingDeliveries    int64          `json:"pending_deliveries"`
	PendingSubscriptions int64          `json:"pending_subscriptions"`
	Pending              []queuedBody   `json:"pending"` // the largest first, at most webhook.MaxQueued
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

func newQueueBody(q webhook.Queue) queueBody {
	body := queueBody{PendingDeliveries: q.Deliveries, PendingSubscriptions: q.Subscriptions, Pending: []queuedBody{}}
	if q.Hold != nil {
		body.Held, body.HeldSince, body.Reason = true, new(exchange.Time(q.Hold.Since)), exchange.NullIfEmpty(q.Hold.Reason)
	}
	for _, w := range q.Largest {
		host := webhook.URLHost(w.URL)
		body.Pending = append(body.Pending, queuedBody{w.SubscriptionID, w.OrganizationID, w.OrganizationExternalID, w.OrganizationName, host, w.Pending, exchange.Time(w.OldestDue)})
	}
	return body
}

// Read responds with the largest parts of the queue, and with the hold.
func (h Queue) Read(x *exchange.Exchange) error {
	return exchange.Reply(x, newQueueBody)(h.store.QueueSummary(x.Request.Context()))
}

// Hold stops all sending and responds with the queue, as every change of the queue does.
func (h Queue) Hold(x *exchange.Exchange) error {
	f := x.OptionalForm()
	reason := f.Label("reason")
	if err := f.Err(); err != nil {
		return err
	}
	if err := h.store.HoldQueue(x.Request.Context(), x.Actor(), form.Or(reason, "")); err != nil {
		return err
	}
	return h.Read(x)
}

type releasedBody struct {
	queueBody
	Released int64 `json:"released"`
}

// Release ends the hold.
func (h Queue) Release(x *exchange.Exchange) error {
	released, err := h.store.ReleaseQueue(x.Request.Context(), x.Actor())
	if err != nil {
		return err
	}
	body := func(q webhook.Queue) releasedBody { return releasedBody{newQueueBody(q), released} }
	return exchange.Reply(x, body)(h.store.QueueSummary(x.Request.Context()))
}

type discardedBody struct {
	queueBody
	Dropped int64 `json:"dropped"`
}

// Discard drops the deliveries that were pending when the hold began, and ends the hold.
func (h Queue) Discard(x *exchange.Exchange) error {
	ctx, cancel := x.LongContext(discardLimit)
	defer cancel()
	dropped, err := h.store.DiscardQueue(ctx, x.Actor())
	if err != nil {
		return err
	}
	body := func(q webhook.Queue) discardedBody { return discardedBody{newQueueBody(q), dropped} }
	return exchange.Reply(x, body)(h.store.QueueSummary(ctx))
}
