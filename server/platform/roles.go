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
	f, err := x.Form()
	if err != nil {
		return err
	}
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

// List lists roles, newest first.
func (h Roles) List(x *exchange.Exchange) error {
	return exchange.ListRows(x, h.store.Roles, newRoleBody, func(r access.Role) int64 { return r.RowID })
}

// Find returns the role in the path.
func (h Roles) Find(x *exchange.Exchange) (access.Role, error) {
	return h.store.Role(x.Request.Context(), x.Path.Value("name"))
}

// Read responds with the role in the path.
func (h Roles) Read(x *exchange.Exchange) error {
	return exchange.Reply(x, newRoleBody)(h.Find(x))
}

// Update changes the permissions of a role.
func (h Roles) Update(x *exchange.Exchange) error {
	name := x.Path.Value("name")
	f, err := x.Form()
	if err != nil {
		return err
	}
	change := access.RoleChange{Permissions: h.lookup.Permissions(x.Request.Context(), f, "permissions")}
	if err := f.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, newRoleBody)(h.store.UpdateRole(x.Request.Context(), x.Actor(), name, change))
}

// Remove deletes a role that no member has.
func (h Roles) Remove(x *exchange.Exchange) error {
	return x.Done(h.store.DeleteRole(x.Request.Context(), x.Actor(), x.Path.Value("name")))
}
