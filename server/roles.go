package server

import (
	"context"

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

// roles are the role endpoints.
type roles struct {
	store  roleStore
	lookup form.Lookup
}

type roleBody struct {
	Name        string   `json:"name"`
	Permissions []string `json:"permissions"`
	BuiltIn     bool     `json:"built_in"`
}

func newRoleBody(r access.Role) roleBody { return roleBody{r.Name, r.Permissions.Keys(), r.BuiltIn} }

func (h roles) create(x *exchange) error {
	f, err := x.form()
	if err != nil {
		return err
	}
	f.Require("name", "permissions")
	name, granted := f.Slug("name"), h.lookup.Permissions(x.request.Context(), f, "permissions")
	if err := f.Err(); err != nil {
		return err
	}
	role, err := h.store.CreateRole(x.request.Context(), x.actor(), access.Role{Name: *name, Permissions: *granted})
	if err != nil {
		return err
	}
	return x.created("/api/v1/roles/"+role.Name+"/", newRoleBody(role))
}

func (h roles) list(x *exchange) error {
	p, err := x.page()
	if err != nil {
		return err
	}
	found, err := h.store.Roles(x.request.Context(), p.After.Row, p.More())
	if err != nil {
		return err
	}
	return writePage(x, p, found, newRoleBody, func(r access.Role) form.Position { return form.Position{Row: r.RowID} })
}

// find returns the role in the path.
func (h roles) find(x *exchange) (found access.Role, err error) {
	name, err := x.pathName(aRole)
	if err != nil {
		return found, err
	}
	return h.store.Role(x.request.Context(), name)
}

func (h roles) read(x *exchange) error {
	found, err := h.find(x)
	if err != nil {
		return err
	}
	return x.ok(newRoleBody(found))
}

func (h roles) update(x *exchange) error {
	name, err := x.pathName(aRole)
	if err != nil {
		return err
	}
	f, err := x.form()
	if err != nil {
		return err
	}
	change := access.RoleChange{Permissions: h.lookup.Permissions(x.request.Context(), f, "permissions")}
	if err := f.Err(); err != nil {
		return err
	}
	role, err := h.store.UpdateRole(x.request.Context(), x.actor(), name, change)
	if err != nil {
		return err
	}
	return x.ok(newRoleBody(role))
}

func (h roles) remove(x *exchange) error {
	name, err := x.pathName(aRole)
	if err != nil {
		return err
	}
	if err := h.store.DeleteRole(x.request.Context(), x.actor(), name); err != nil {
		return err
	}
	return x.noContent()
}
