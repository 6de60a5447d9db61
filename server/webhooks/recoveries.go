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

// recoveryStore is the part of the store that the endpoints after an outage use.
type recoveryStore interface {
	subscriptionNames
	// Recover activates a subscription and creates new deliveries of what ended exhausted since a time.
	Recover(ctx context.Context, actor access.Actor, organization int64, id string, r webhook.RecoveryRequest) (webhook.Recovery, error)
	// CountRecovery says what Recover would send.
	CountRecovery(ctx context.Context, organization int64, id string, r webhook.RecoveryRequest) (webhook.Recovery, error)
	// Discard drops pending deliveries of events from before a time; 0 drops all.
	Discard(ctx context.Context, actor access.Actor, organization int64, id string, before int64) (int64, error)
}

// Recoveries are the endpoints for a subscription after an outage of its receiver.
type Recoveries struct{ store recoveryStore }

type recoveryBody struct {
	Deliveries int64         `json:"deliveries"`
	Pending    int64         `json:"pending"`
	Since      exchange.Time `json:"since"`
	BlockedBy  *string       `json:"blocked_by"`
}

// Recover makes a subscription active, and sends again what its receiver missed. A dry run counts only.
func (h Recoveries) Recover(x *exchange.Exchange) error {
	id, f, err := subscriptionForm(x, h.store)
	if err != nil {
		return err
	}
	since := f.Time("since")
	if since != nil && since.After(time.Now()) {
		f.Refuse("since", "in_the_future", "This must be in the past.")
	}
	activate, dry := f.Bool("activate"), f.Bool("dry_run")
	if err := f.Err(); err != nil {
		return err
	}
	request := webhook.RecoveryRequest{Since: milliseconds(since), Activate: form.Or(activate, false)}
	ctx, cancel := x.LongContext(replayLimit)
	defer cancel()
	var r webhook.Recovery
	if form.Or(dry, false) {
		r, err = h.store.CountRecovery(ctx, x.Organization(), id, request)
	} else {
		r, err = h.store.Recover(ctx, x.Actor(), x.Organization(), id, request)
	}
	if err != nil {
		return err
	}
	return x.Respond(http.StatusAccepted, recoveryBody{r.Deliveries, r.Pending, exchange.Time(r.Since), exchange.NullIfEmpty(string(r.BlockedBy))})
}

// Discard drops pending deliveries of a subscription.
func (h Recoveries) Discard(x *exchange.Exchange) error {
	id, f, err := subscriptionForm(x, h.store)
	if err != nil {
		return err
	}
	before := f.Time("before")
	if err := f.Err(); err != nil {
		return err
	}
	ctx, cancel := x.LongContext(replayLimit)
	defer cancel()
	n, err := h.store.Discard(ctx, x.Actor(), x.Organization(), id, milliseconds(before))
	if err != nil {
		return err
	}
	return x.Respond(http.StatusAccepted, deliveriesBody{n})
}

// milliseconds returns a time of a body; 0 for none.
func milliseconds(at *time.Time) int64 {
	if at == nil {
		return 0
	}
	return max(1, at.UnixMilli())
}
