package server

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
)

// usageStore is the part of the store that the usage endpoint uses.
type usageStore interface {
	// LiveKeys and LiveSubscriptions count what counts against the plan of an organization.
	LiveKeys(ctx context.Context, organization, now int64) (int64, error)
	LiveSubscriptions(ctx context.Context, organization int64) (int64, error)
}

// usage is the endpoint that says how much of its plan an organization uses.
type usage struct{ store usageStore }

// usageBody counts what the plan limits with max_api_keys and max_subscriptions.
type usageBody struct {
	APIKeys       int64 `json:"api_keys"`
	Subscriptions int64 `json:"subscriptions"`
}

func (h usage) read(x *exchange.Exchange) (err error) {
	var body usageBody
	if body.APIKeys, err = h.store.LiveKeys(x.Request.Context(), x.Organization(), time.Now().UnixMilli()); err != nil {
		return err
	}
	if body.Subscriptions, err = h.store.LiveSubscriptions(x.Request.Context(), x.Organization()); err != nil {
		return err
	}
	return x.OK(body)
}
