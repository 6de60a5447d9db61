package server

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

func (h roles) create(x *exchange.Exchange) error {
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

func (h roles) list(x *exchange.Exchange) error {
	return exchange.ListRows(x, h.store.Roles, newRoleBody, func(r access.Role) int64 { return r.RowID })
}

// find returns the role in the path.
func (h roles) find(x *exchange.Exchange) (found access.Role, err error) {
	name, err := pathName(x, aRole)
	if err != nil {
		return found, err
	}
	return h.store.Role(x.Request.Context(), name)
}

func (h roles) read(x *exchange.Exchange) error { return exchange.Show(x, h.find, newRoleBody) }

func (h roles) update(x *exchange.Exchange) error {
	name, err := pathName(x, aRole)
	if err != nil {
		return err
	}
	f, err := x.Form()
	if err != nil {
		return err
	}
	change := access.RoleChange{Permissions: h.lookup.Permissions(x.Request.Context(), f, "permissions")}
	if err := f.Err(); err != nil {
		return err
	}
	role, err := h.store.UpdateRole(x.Request.Context(), x.Actor(), name, change)
	if err != nil {
		return err
	}
	return x.OK(newRoleBody(role))
}

func (h roles) remove(x *exchange.Exchange) error {
	name, err := pathName(x, aRole)
	if err != nil {
		return err
	}
	if err := h.store.DeleteRole(x.Request.Context(), x.Actor(), name); err != nil {
		return err
	}
	return x.NoContent()
}

// permissionStore is the part of the store that the permission endpoints use.
type permissionStore interface {
	// Permissions lists them newest first, with row ids below before; 0 starts at the newest.
	Permissions(ctx context.Context, before int64, limit int) ([]access.Permission, error)
	Permission(ctx context.Context, key string) (access.Permission, error)
	CreatePermission(ctx context.Context, actor access.Actor, p access.Permission) (access.Permission, error)
	UpdatePermission(ctx context.Context, actor access.Actor, key, description string) (access.Permission, error)
	DeletePermission(ctx context.Context, actor access.Actor, key string) error
}

// permissions are the permission endpoints.
type permissions struct {
	store permissionStore
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

func (h permissions) create(x *exchange.Exchange) error {
	f, err := x.Form()
	if err != nil {
		return err
	}
	f.Require("key")
	key, description, internal := f.Text("key", access.MaxPermissionKey), f.Multiline("description"), f.Bool("internal")
	if key != nil && !access.ValidPermissionKey(*key) {
		f.Refuse("key", "invalid", "This must be a permission such as orders:read: words of lower-case letters, digits and _, joined by colons.")
	}
	if err := f.Err(); err != nil {
		return err
	}
	created := access.Permission{Key: *key, Internal: internal != nil && *internal}
	if description != nil {
		created.Description = *description
	}
	permission, err := h.store.CreatePermission(x.Request.Context(), x.Actor(), created)
	if err != nil {
		return err
	}
	return x.Created("/api/v1/permissions/"+permission.Key+"/", newPermissionBody(permission))
}

func (h permissions) list(x *exchange.Exchange) error {
	return exchange.ListRows(x, h.store.Permissions, newPermissionBody, func(p access.Permission) int64 { return p.RowID })
}

// find returns the permission in the path.
func (h permissions) find(x *exchange.Exchange) (found access.Permission, err error) {
	key, err := pathKey(x)
	if err != nil {
		return found, err
	}
	return h.store.Permission(x.Request.Context(), key)
}

func (h permissions) read(x *exchange.Exchange) error {
	return exchange.Show(x, h.find, newPermissionBody)
}

func (h permissions) update(x *exchange.Exchange) error {
	key, err := pathKey(x)
	if err != nil {
		return err
	}
	f, err := x.Form()
	if err != nil {
		return err
	}
	f.Require("description")
	description := f.Multiline("description")
	if err := f.Err(); err != nil {
		return err
	}
	permission, err := h.store.UpdatePermission(x.Request.Context(), x.Actor(), key, *description)
	if err != nil {
		return err
	}
	return x.OK(newPermissionBody(permission))
}

func (h permissions) remove(x *exchange.Exchange) error {
	key, err := pathKey(x)
	if err != nil {
		return err
	}
	if err := h.store.DeletePermission(x.Request.Context(), x.Actor(), key); err != nil {
		return err
	}
	return x.NoContent()
}
