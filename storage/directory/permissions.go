package directory

import (
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
)

const permissionColumns = "id, key, description, built_in, internal, created_at"

// Permissions lists the permissions, newest first.
func (d *Directory) Permissions(ctx context.Context, before int64, limit int) ([]access.Permission, error) {
	permissions := []access.Permission{}
	err := d.list(ctx, &permissions, "SELECT "+permissionColumns+" FROM permissions WHERE id < ? ORDER BY id DESC LIMIT ?", scan.UpperBound(before), limit)
	return permissions, err
}

// Permission returns the permission of that key. Faults: NotFound.
func (d *Directory) Permission(ctx context.Context, key string) (access.Permission, error) {
	var p access.Permission
	err := d.get(ctx, &p, "SELECT "+permissionColumns+" FROM permissions WHERE key = ?", key)
	return p, sqlite.Missing(err, "permission")
}

// allPermissions reads the keys of all permissions as a scope.
const allPermissions = "SELECT coalesce(group_concat(key, ' '), '') FROM permissions"

// UnknownPermissions returns the part of a scope for which there is no permission.
func (d *Directory) UnknownPermissions(ctx context.Context, named access.Scope) (access.Scope, error) {
	var known access.Scope
	if err := d.get(ctx, &known, allPermissions); err != nil {
		return access.Scope{}, err
	}
	return named.Minus(known), nil
}

// CreatePermission creates a permission, which is never a built-in one. The built-in roles grant it from the next request on.
// Faults: Conflict if the key is taken.
func (d *Directory) CreatePermission(ctx context.Context, by access.Actor, p access.Permission) (access.Permission, error) {
	p.BuiltIn = false
	return returning(ctx, d, workFor(by.Organization), func(t *sqlite.Tx) (made access.Permission, err error) {
		if err := refuseTaken(t, "permission", "key", "SELECT key FROM permissions WHERE key = ?", p.Key); err != nil {
			return made, err
		}
		row, err := insertPermission(t, p)
		if err != nil {
			return made, err
		}
		if err := t.Get(&made, "SELECT "+permissionColumns+" FROM permissions WHERE id = ?", row); err != nil {
			return made, err
		}
		d.outdatePrincipals(t)
		return made, d.hooks.Audit(t, by, 0, access.PermissionCreated, Target{Type: "permission", ID: p.Key},
			map[string]any{"description": p.Description})
	})
}

// UpdatePermission replaces the description of a permission, also of a built-in one. Faults: NotFound.
func (d *Directory) UpdatePermission(ctx context.Context, by access.Actor, key, description string) (access.Permission, error) {
	return returning(ctx, d, workFor(by.Organization), func(t *sqlite.Tx) (changed access.Permission, err error) {
		if changed, err = permission(t, key); err != nil {
			return changed, err
		}
		changed.Description = description
		if _, err := t.Exec("UPDATE permissions SET description = ? WHERE id = ?", description, changed.RowID); err != nil {
			return changed, err
		}
		return changed, d.hooks.Audit(t, by, 0, access.PermissionUpdated, Target{Type: "permission", ID: key},
			map[string]any{"description": description})
	})
}

// DeletePermission deletes a permission. Faults: NotFound; Conflict for a built-in one, and while a role grants it or an active
// key has it in its scope. Otherwise, if the permission were created again with another meaning, that key would have it.
func (d *Directory) DeletePermission(ctx context.Context, by access.Actor, key string) error {
	return d.change(ctx, urgentFor(by.Organization), func(t *sqlite.Tx) error {
		p, err := permission(t, key)
		if err != nil {
			return err
		}
		if p.BuiltIn {
			return errBuiltIn("permission", key)
		}
		used := errInUse("permission", "roles grant it; take it out of their permissions first")
		if err := refuseIf(t, used, "SELECT 1 FROM role_permissions WHERE permission_id = ?", p.RowID); err != nil {
			return err
		}
		if err := refuseIf(t, errInUse("permission", "API keys have it in their scope; revoke them first"), `
			SELECT 1 FROM api_keys
			WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?1) AND instr(' ' || scope || ' ', ' ' || ?2 || ' ') > 0`,
			t.Now(), key); err != nil {
			return err
		}
		if _, err := t.Exec("DELETE FROM permissions WHERE id = ?", p.RowID); sqlite.IsReferenced(err) {
			return used
		} else if err != nil {
			return err
		}
		d.outdatePrincipals(t)
		return d.hooks.Audit(t, by, 0, access.PermissionDeleted, Target{Type: "permission", ID: key}, nil)
	})
}

func permission(t *sqlite.Tx, key string) (access.Permission, error) {
	var p access.Permission
	err := t.Get(&p, "SELECT "+permissionColumns+" FROM permissions WHERE key = ?", key)
	return p, sqlite.Missing(err, "permission")
}

func insertPermission(t *sqlite.Tx, p access.Permission) (int64, error) {
	return t.Insert("INSERT INTO permissions (key, description, built_in, internal, created_at) VALUES (?, ?, ?, ?, ?)",
		p.Key, p.Description, p.BuiltIn, p.Internal, t.Now())
}

// knownPermissions refuses a field with unknown permissions, and names each of them.
func knownPermissions(t *sqlite.Tx, field string, named access.Scope) error {
	var known access.Scope
	if err := t.Get(&known, allPermissions); err != nil {
		return err
	}
	var fields []fault.Field
	for _, key := range named.Minus(known).Keys() {
		fields = append(fields, fault.Field{
			Field: field, Code: "unknown_permission",
			Message: "There is no permission " + key + "; an operator can create it.",
		})
	}
	return fault.Fields(fields)
}
