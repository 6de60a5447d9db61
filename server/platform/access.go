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
	return h.Plans.respondCreated(x, f, c.On(access.Plan{Name: form.Or(name, "")}))
}

// UpdatePlan changes a plan.
func (h *Endpoints) UpdatePlan(x *exchange.Exchange) error {
	f := x.Form()
	return respondChanged(h.Plans, x, f, f.Plan(), h.Store.UpdatePlan)
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
	return h.Roles.respondCreated(x, f, access.Role{Name: form.Or(name, ""), Permissions: form.Or(granted, access.Scope{})})
}

// UpdateRole changes the permissions of a role.
func (h *Endpoints) UpdateRole(x *exchange.Exchange) error {
	f := x.Form()
	change := access.RoleChange{Permissions: h.lookup.Permissions(x.Request.Context(), f, "permissions")}
	return respondChanged(h.Roles, x, f, change, h.Store.UpdateRole)
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
	return h.Permissions.respondCreated(x, f, access.Permission{
		Key: form.Or(key, ""), Description: form.Or(description, ""), Internal: form.Or(internal, false),
	})
}

// UpdatePermission changes the description of a permission.
func (h *Endpoints) UpdatePermission(x *exchange.Exchange) error {
	f := x.Form()
	f.Require("description")
	return respondChanged(h.Permissions, x, f, form.Or(f.Multiline("description"), ""), h.Store.UpdatePermission)
}
