package platform

import (
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

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

// CreatePlan creates a plan. It requires the limit: if it were optional, a forgotten limit would make the plan unlimited.
func (h *Endpoints) CreatePlan(x *exchange.Exchange) error {
	f := x.Form()
	f.Require("name", "api_rate_limit_per_minute")
	name, c := f.Slug("name"), f.Plan()
	if err := f.Err(); err != nil {
		return err
	}
	return h.Plans.created(x)(h.Store.CreatePlan(x.Request.Context(), x.Actor(), c.On(access.Plan{Name: *name})))
}

// UpdatePlan changes a plan.
func (h *Endpoints) UpdatePlan(x *exchange.Exchange) error {
	f := x.Form()
	change := f.Plan()
	if err := f.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, NewPlanBody)(h.Store.UpdatePlan(x.Request.Context(), x.Actor(), x.Path.Value("name"), change))
}

type roleBody struct {
	Name        string   `json:"name"`
	Permissions []string `json:"permissions"`
	BuiltIn     bool     `json:"built_in"`
}

func newRoleBody(r access.Role) roleBody { return roleBody{r.Name, r.Permissions.Keys(), r.BuiltIn} }

// CreateRole creates a role.
func (h *Endpoints) CreateRole(x *exchange.Exchange) error {
	f := x.Form()
	f.Require("name", "permissions")
	name, granted := f.Slug("name"), h.lookup.Permissions(x.Request.Context(), f, "permissions")
	if err := f.Err(); err != nil {
		return err
	}
	created := access.Role{Name: *name, Permissions: *granted}
	return h.Roles.created(x)(h.Store.CreateRole(x.Request.Context(), x.Actor(), created))
}

// UpdateRole changes the permissions of a role.
func (h *Endpoints) UpdateRole(x *exchange.Exchange) error {
	f := x.Form()
	change := access.RoleChange{Permissions: h.lookup.Permissions(x.Request.Context(), f, "permissions")}
	if err := f.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, newRoleBody)(h.Store.UpdateRole(x.Request.Context(), x.Actor(), x.Path.Value("name"), change))
}

type permissionBody struct {
	Key         string   `json:"key"`
	Description string   `json:"description"`
	BuiltIn     bool     `json:"built_in"`
	Internal    bool     `json:"internal"`
	Roles       []string `json:"roles"` // that grant it now
}

func newPermissionBody(p access.Permission) permissionBody {
	return permissionBody{p.Key, p.Description, p.BuiltIn, p.Internal, p.Roles}
}

// CreatePermission creates a permission.
func (h *Endpoints) CreatePermission(x *exchange.Exchange) error {
	f := x.Form()
	f.Require("key")
	key, description, internal := f.PermissionKey("key"), f.Multiline("description"), f.Bool("internal")
	if err := f.Err(); err != nil {
		return err
	}
	created := access.Permission{Key: *key, Description: form.Or(description, ""), Internal: form.Or(internal, false)}
	return h.Permissions.created(x)(h.Store.CreatePermission(x.Request.Context(), x.Actor(), created))
}

// UpdatePermission changes the description of a permission.
func (h *Endpoints) UpdatePermission(x *exchange.Exchange) error {
	f := x.Form()
	f.Require("description")
	description := f.Multiline("description")
	if err := f.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, newPermissionBody)(h.Store.UpdatePermission(x.Request.Context(), x.Actor(), x.Path.Value("key"), *description))
}
