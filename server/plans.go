package server

import (
	"context"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/storage/access"
)

// planStore is the part of the store that the plan endpoints use.
type planStore interface {
	// Plans lists them newest first, with row ids below before; 0 starts at the newest.
	Plans(ctx context.Context, before int64, limit int) ([]access.Plan, error)
	Plan(ctx context.Context, name string) (access.Plan, error)
	CreatePlan(ctx context.Context, actor access.Actor, p access.Plan) (access.Plan, error)
	UpdatePlan(ctx context.Context, actor access.Actor, name string, p access.PlanChange) (access.Plan, error)
	DeletePlan(ctx context.Context, actor access.Actor, name string) error
}

// maxRate is the largest limit of a plan. A plan without a limit has null.
const maxRate = 1_000_000_000

// maxStoredBytes is the largest number of bytes a day of a plan. A plan without a limit has null.
const maxStoredBytes = 1_000_000_000_000_000

// plans are the plan endpoints.
type plans struct {
	store planStore
}

type planBody struct {
	Name               string `json:"name"`
	APIKeys            bool   `json:"api_keys"`
	Webhooks           bool   `json:"webhooks"`
	RateLimitPerMinute *int64 `json:"api_rate_limit_per_minute"` // null means unlimited
	MaxSubscriptions   *int64 `json:"max_subscriptions"`         // null means access.MostSubscriptions
	MaxAPIKeys         *int64 `json:"max_api_keys"`              // null means access.MostAPIKeys
	MaxStoredBytes     *int64 `json:"max_stored_bytes_per_day"`  // null means no limit
}

func newPlanBody(p access.Plan) planBody {
	return planBody{p.Name, p.APIKeys, p.Webhooks, p.RateLimitPerMinute, p.MaxSubscriptions, p.MaxAPIKeys, p.MaxStoredBytes}
}

// create requires the limit: if it were optional, a forgotten limit would make the plan unlimited.
func (h plans) create(x *exchange.Exchange) error {
	f, err := x.Form()
	if err != nil {
		return err
	}
	f.Require("name", "api_rate_limit_per_minute")
	name, apiKeys, webhooks := f.Slug("name"), f.Bool("api_keys"), f.Bool("webhooks")
	_, limit := f.Limit("api_rate_limit_per_minute", 0, maxRate)
	_, subscriptions := f.Limit("max_subscriptions", 0, access.MostSubscriptions)
	_, keys := f.Limit("max_api_keys", 0, access.MostAPIKeys)
	_, bytes := f.Limit("max_stored_bytes_per_day", 0, maxStoredBytes)
	if err := f.Err(); err != nil {
		return err
	}
	plan, err := h.store.CreatePlan(x.Request.Context(), x.Actor(), access.Plan{
		Name: *name, APIKeys: apiKeys != nil && *apiKeys, Webhooks: webhooks != nil && *webhooks, RateLimitPerMinute: limit,
		MaxSubscriptions: subscriptions, MaxAPIKeys: keys, MaxStoredBytes: bytes,
	})
	if err != nil {
		return err
	}
	return x.Created("/api/v1/plans/"+plan.Name+"/", newPlanBody(plan))
}

func (h plans) list(x *exchange.Exchange) error {
	return exchange.ListRows(x, h.store.Plans, newPlanBody, func(p access.Plan) int64 { return p.RowID })
}

// find returns the plan in the path.
func (h plans) find(x *exchange.Exchange) (found access.Plan, err error) {
	name, err := pathName(x, aPlan)
	if err != nil {
		return found, err
	}
	return h.store.Plan(x.Request.Context(), name)
}

func (h plans) read(x *exchange.Exchange) error { return exchange.Show(x, h.find, newPlanBody) }

func (h plans) update(x *exchange.Exchange) error {
	name, err := pathName(x, aPlan)
	if err != nil {
		return err
	}
	f, err := x.Form()
	if err != nil {
		return err
	}
	change := access.PlanChange{APIKeys: f.Bool("api_keys"), Webhooks: f.Bool("webhooks")}
	change.SetRateLimit, change.RateLimitPerMinute = f.Limit("api_rate_limit_per_minute", 0, maxRate)
	change.SetMaxSubscriptions, change.MaxSubscriptions = f.Limit("max_subscriptions", 0, access.MostSubscriptions)
	change.SetMaxAPIKeys, change.MaxAPIKeys = f.Limit("max_api_keys", 0, access.MostAPIKeys)
	change.SetMaxStoredBytes, change.MaxStoredBytes = f.Limit("max_stored_bytes_per_day", 0, maxStoredBytes)
	if err := f.Err(); err != nil {
		return err
	}
	plan, err := h.store.UpdatePlan(x.Request.Context(), x.Actor(), name, change)
	if err != nil {
		return err
	}
	return x.OK(newPlanBody(plan))
}

func (h plans) remove(x *exchange.Exchange) error {
	name, err := pathName(x, aPlan)
	if err != nil {
		return err
	}
	if err := h.store.DeletePlan(x.Request.Context(), x.Actor(), name); err != nil {
		return err
	}
	return x.NoContent()
}
