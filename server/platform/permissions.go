package platform

import (
	"context"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

// permissionStore is the part of the store that the permission endpoints use.
type permissionStore interface {
	// Permissions lists them newest first, with row ids below before; 0 starts at the newest.
	Permissions(ctx context.Context, before int64, limit int) ([]access.Permission, error)
	Permission(ctx context.Context, key string) (access.Permission, error)
	CreatePermission(ctx context.Context, actor access.Actor, p access.Permission) (access.Permission, error)
	UpdatePermission(ctx context.Context, actor access.Actor, key, description string) (access.Permission, error)
	DeletePermission(ctx context.Context, actor access.Actor, key string) error
}

// Permissions are the permission endpoints.
type Permissions struct {
	resource[access.Permission, permissionBody]
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

// Create creates a permission.
func (h Permissions) Create(x *exchange.Exchange) error {
	f := x.Form()
	f.Require("key")
	key, description, internal := f.PermissionKey("key"), f.Multiline("description"), f.Bool("internal")
	if err := f.Err(); err != nil {
		return err
	}
	created := access.Permission{Key: *key, Description: form.Or(description, ""), Internal: form.Or(internal, false)}
	permission, err := h.store.CreatePermission(x.Request.Context(), x.Actor(), created)
	if err != nil {
		return err
	}
	return x.Created("/api/v1/permissions/"+permission.Key+"/", newPermissionBody(permission))
}

// Update changes the description of a permission.
func (h Permissions) Update(x *exchange.Exchange) error {
	f := x.Form()
	f.Require("description")
	description := f.Multiline("description")
	if err := f.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, newPermissionBody)(h.store.UpdatePermission(x.Request.Context(), x.Actor(), x.Path.Value("key"), *description))
}
