package platform

import (
	"context"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

// roleStore is the part of the store that the role endpoints use.
type roleStore interface {
	// Roles lists them newest first, with row ids below before; 0 starts at the newest.
	Roles(ctx context.Context, before int64, limit int) ([]access.Role, error)
	Role(ctx context.Context, name string) (access.Role, error)
	CreateRole(ctx context.Context, actor access.Actor, r access.Role) (access.Role, error)
	UpdateRole(ctx context.Context, actor access.Actor, name string, c access.RoleChange) (access.Role, error)
	DeleteRole(ctx context.Context, actor access.Actor, name string) error
}

// Roles are the role endpoints.
type Roles struct {
	resource[access.Role, roleBody]
	store  roleStore
	lookup form.Lookup
}

type roleBody struct {
	Name        string   `json:"name"`
	Permissions []string `json:"permissions"`
	BuiltIn     bool     `json:"built_in"`
}

func newRoleBody(r access.Role) roleBody { return roleBody{r.Name, r.Permissions.Keys(), r.BuiltIn} }

// Create creates a role.
func (h Roles) Create(x *exchange.Exchange) error {
	f := x.Form()
	f.Require("name", "permissions")
	name, granted := f.Slug("name"), h.lookup.Permissions(x.Request.Context(), f, "permissions")
	if err := f.Err(); err != nil {
		return err
	}
	role, err := h.store.CreateRole(x.Request.Context(), x.Actor(), access.Role{Name: *name, Permissions: *granted})
	if err != nil {
		return err
	}
	return x.Created("/api/v1/roles/"+role.Name+"/", newRoleBody(role))
}

// Update changes the permissions of a role.
func (h Roles) Update(x *exchange.Exchange) error {
	f := x.Form()
	change := access.RoleChange{Permissions: h.lookup.Permissions(x.Request.Context(), f, "permissions")}
	if err := f.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, newRoleBody)(h.store.UpdateRole(x.Request.Context(), x.Actor(), x.Path.Value("name"), change))
}
