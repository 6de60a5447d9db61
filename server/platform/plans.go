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
	f, err := x.Form()
	if err != nil {
		return err
	}
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

// List lists plans, newest first.
func (h Plans) List(x *exchange.Exchange) error {
	return exchange.ListRows(x, h.store.Plans, NewPlanBody, func(p access.Plan) int64 { return p.RowID })
}

// Find returns the plan in the path.
func (h Plans) Find(x *exchange.Exchange) (access.Plan, error) {
	return h.store.Plan(x.Request.Context(), x.Path.Value("name"))
}

// Read responds with the plan in the path.
func (h Plans) Read(x *exchange.Exchange) error {
	return exchange.Reply(x, NewPlanBody)(h.Find(x))
}

// Update changes a plan.
func (h Plans) Update(x *exchange.Exchange) error {
	name := x.Path.Value("name")
	f, err := x.Form()
	if err != nil {
		return err
	}
	change := f.Plan()
	if err := f.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, NewPlanBody)(h.store.UpdatePlan(x.Request.Context(), x.Actor(), name, change))
}

// Remove deletes a plan that no organization has.
func (h Plans) Remove(x *exchange.Exchange) error {
	return x.Done(h.store.DeletePlan(x.Request.Context(), x.Actor(), x.Path.Value("name")))
}
