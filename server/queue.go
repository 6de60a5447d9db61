package server

import (
	"context"
	"net/url"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// queueStore is the part of the store that the queue endpoints use.
type queueStore interface {
	// Queue returns the pending deliveries and the hold.
	Queue(ctx context.Context) (webhook.Queue, error)
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

// queue are the endpoints of the pending deliveries of all organizations.
type queue struct{ store queueStore }

type queueBody struct {
	Held                 bool         `json:"held"`
	HeldSince            *timestamp   `json:"held_since"`
	Reason               *string      `json:"reason"`
	PendingDeliveries    int64        `json:"pending_deliveries"`
	PendingSubscriptions int64        `json:"pending_subscriptions"`
	Pending              []queuedBody `json:"pending"` // the largest first, at most webhook.MaxQueued
}

// queuedBody is a subscription with pending deliveries. It shows only the host of the URL.
type queuedBody struct {
	SubscriptionID   string    `json:"subscription_id"`
	OrganizationID   string    `json:"organization_id"`
	OrganizationName string    `json:"organization_name"`
	URLHost          string    `json:"url_host"`
	Pending          int64     `json:"pending"`
	OldestDue        timestamp `json:"oldest_due"`
}

func newQueueBody(q webhook.Queue) queueBody {
	body := queueBody{PendingDeliveries: q.Deliveries, PendingSubscriptions: q.Subscriptions, Pending: []queuedBody{}}
	if q.Hold != nil {
		since := timestamp(q.Hold.Since)
		body.Held, body.HeldSince, body.Reason = true, &since, nullIfEmpty(q.Hold.Reason)
	}
	for _, w := range q.Largest {
		item := queuedBody{w.SubscriptionID, w.OrganizationID, w.OrganizationName, "", w.Pending, timestamp(w.OldestDue)}
		if u, err := url.Parse(w.URL); err == nil {
			item.URLHost = u.Host
		}
		body.Pending = append(body.Pending, item)
	}
	return body
}

func (h queue) read(x *exchange) error {
	q, err := h.store.Queue(x.request.Context())
	if err != nil {
		return err
	}
	return x.ok(newQueueBody(q))
}

// hold responds with the queue, as every change of the queue does.
func (h queue) hold(x *exchange) error {
	f, err := x.optionalForm()
	if err != nil {
		return err
	}
	reason := f.Label("reason")
	if err := f.Err(); err != nil {
		return err
	}
	if reason == nil {
		reason = new(string)
	}
	if err := h.store.HoldQueue(x.request.Context(), x.actor(), *reason); err != nil {
		return err
	}
	return h.read(x)
}

func (h queue) release(x *exchange) error {
	released, err := h.store.ReleaseQueue(x.request.Context(), x.actor())
	if err != nil {
		return err
	}
	q, err := h.store.Queue(x.request.Context())
	if err != nil {
		return err
	}
	return x.ok(struct {
		queueBody
		Released int64 `json:"released"`
	}{newQueueBody(q), released})
}

func (h queue) discard(x *exchange) error {
	ctx, cancel := x.longContext(discardLimit)
	defer cancel()
	dropped, err := h.store.DiscardQueue(ctx, x.actor())
	if err != nil {
		return err
	}
	q, err := h.store.Queue(ctx)
	if err != nil {
		return err
	}
	return x.ok(struct {
		queueBody
		Dropped int64 `json:"dropped"`
	}{newQueueBody(q), dropped})
}
