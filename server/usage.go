package server

import (
	"context"
	"time"
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

func (h usage) read(x *exchange) (err error) {
	var body usageBody
	if body.APIKeys, err = h.store.LiveKeys(x.request.Context(), x.organization(), time.Now().UnixMilli()); err != nil {
		return err
	}
	if body.Subscriptions, err = h.store.LiveSubscriptions(x.request.Context(), x.organization()); err != nil {
		return err
	}
	return x.ok(body)
}
