package platform

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

// Plans are the plan endpoints.
type Plans struct {
	resource[access.Plan, PlanBody]
	store planStore
}

// PlanBody is a plan in a response.
type PlanBody struct {
	Name               string `json:"name"`
	APIKeys            bool   `json:"api_keys"`
	Webhooks           bool   `json:"webhooks"`
	RateLimitPerMinute *int64 `json:"api_rate_limit_per_minute"` // null means unlimited
	MaxSubscriptions   *int64 `json:"max_subscriptions"`         // null means access.MostSubscriptions
	MaxAPIKeys         *int64 `json:"max_api_keys"`              // null means access.MostAPIKeys
	MaxStoredBytes     *int64 `json:"max_stored_bytes_per_day"`  // null means no limit
}

// NewPlanBody shows a plan.
func NewPlanBody(p access.Plan) PlanBody {
	return PlanBody{p.Name, p.APIKeys, p.Webhooks, p.RateLimitPerMinute, p.MaxSubscriptions, p.MaxAPIKeys, p.MaxStoredBytes}
}

// Create creates a plan. It requires the limit: if it were optional, a forgotten limit would make the plan unlimited.
func (h Plans) Create(x *exchange.Exchange) error {
	f := x.Form()
	f.Require("name", "api_rate_limit_per_minute")
	name, c := f.Slug("name"), f.Plan()
	if err := f.Err(); err != nil {
		return err
	}
	plan, err := h.store.CreatePlan(x.Request.Context(), x.Actor(), c.New(*name))
	if err != nil {
		return err
	}
	return x.Created("/api/v1/plans/"+plan.Name+"/", NewPlanBody(plan))
}

// Update changes a plan.
func (h Plans) Update(x *exchange.Exchange) error {
	f := x.Form()
	change := f.Plan()
	if err := f.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, NewPlanBody)(h.store.UpdatePlan(x.Request.Context(), x.Actor(), x.Path.Value("name"), change))
}
