package platform

import (
	"context"

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

// readPlan requires the limit: if it were optional, a forgotten limit would make the plan unlimited.
func readPlan(_ context.Context, f *form.Form) access.Plan {
	f.Require("name", "api_rate_limit_per_minute")
	name, c := f.Slug("name"), f.Plan()
	return c.On(access.Plan{Name: form.Or(name, "")})
}

func readPlanChange(_ context.Context, f *form.Form) access.PlanChange { return f.Plan() }

type roleBody struct {
	Name        string   `json:"name"`
	Permissions []string `json:"permissions"`
	BuiltIn     bool     `json:"built_in"`
}

func newRoleBody(r access.Role) roleBody { return roleBody{r.Name, r.Permissions.Keys(), r.BuiltIn} }

func (h *Endpoints) readRole(ctx context.Context, f *form.Form) access.Role {
	f.Require("name", "permissions")
	name, granted := f.Slug("name"), h.lookup.Permissions(ctx, f, "permissions")
	return access.Role{Name: form.Or(name, ""), Permissions: form.Or(granted, access.Scope{})}
}

func (h *Endpoints) readRoleChange(ctx context.Context, f *form.Form) access.RoleChange {
	return access.RoleChange{Permissions: h.lookup.Permissions(ctx, f, "permissions")}
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

func readPermission(_ context.Context, f *form.Form) access.Permission {
	f.Require("key")
	key, description, internal := f.PermissionKey("key"), f.Multiline("description"), f.Bool("internal")
	return access.Permission{Key: form.Or(key, ""), Description: form.Or(description, ""), Internal: form.Or(internal, false)}
}

// readPermissionChange reads the description, which alone may change.
func readPermissionChange(_ context.Context, f *form.Form) string {
	f.Require("description")
	return form.Or(f.Multiline("description"), "")
}
