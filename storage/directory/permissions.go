package directory

import (
	"cmp"
	"context"
	"slices"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// selectPermissions reads permissions with the roles that an operator made; listPermissions adds the others.
const selectPermissions = `
	SELECT v.id, v.key, v.description, v.built_in, v.internal, v.created_at,
	       coalesce((SELECT group_concat(r.name, ' ') FROM role_permissions g JOIN roles r ON r.id = g.role_id WHERE g.permission_id = v.id), '') AS roles
	FROM permissions v`

// Permissions lists the permissions, newest first.
func (d *Directory) Permissions(ctx context.Context, before int64, limit int) ([]access.Permission, error) {
	return listPermissions(d.reads.In(ctx), " WHERE v.id < ? ORDER BY v.id DESC LIMIT ?", scan.UpperBound(before), limit)
}

// Permission returns the permission of that key. Faults: NotFound.
func (d *Directory) Permission(ctx context.Context, key string) (access.Permission, error) {
	return permissionNamed(d.reads.In(ctx), key)
}

func permissionNamed(from sqlite.Reader, key string) (p access.Permission, err error) {
	found, err := listPermissions(from, " WHERE v.key = ?", key)
	switch {
	case err != nil:
		return p, err
	case len(found) == 0:
		return p, fault.Missing("permission")
	}
	return found[0], nil
}

// listPermissions reads the permissions that a condition selects, with all roles that grant them: the built-in ones come first.
func listPermissions(from sqlite.Reader, condition string, args ...any) ([]access.Permission, error) {
	permissions, err := sqlite.All[access.Permission](from, selectPermissions+condition, args...)
	if err != nil {
		return nil, err
	}
	builtIn, err := sqlite.All[string](from, "SELECT name FROM roles WHERE built_in = 1 ORDER BY id")
	for i := range permissions {
		p := &permissions[i]
		slices.Sort(p.Roles)
		granting := access.RoleNames{}
		for _, role := range builtIn {
			if principal.BuiltInGrants(role, *p) {
				granting = append(granting, role)
			}
		}
		p.Roles = append(granting, p.Roles...)
	}
	return permissions, err
}

// UnknownPermissions returns the part of a scope for which there is no permission.
func (d *Directory) UnknownPermissions(ctx context.Context, named access.Scope) (access.Scope, error) {
	return unknownPermissions(d.reads.In(ctx), named)
}

func unknownPermissions(from sqlite.Reader, named access.Scope) (access.Scope, error) {
	var known access.Scope
	err := from.Get(&known, "SELECT coalesce(group_concat(key, ' '), '') FROM permissions WHERE key IN (SELECT value FROM json_each(?))", sqlite.TextList(named.Keys()))
	return named.Minus(known), err
}

// CreatePermission creates a permission, which is never a built-in one. The built-in roles grant it from the next request on;
// an internal permission only the role operator, and likewise a platform: permission. Faults: Conflict if the key is taken.
func (d *Directory) CreatePermission(ctx context.Context, by access.Actor, p access.Permission) (access.Permission, error) {
	p.BuiltIn, p.Internal = false, p.Internal || access.IsPlatform(p.Key)
	return sqlite.Returning(ctx, d.file, workFor(by.Organization), func(t *sqlite.Tx) (made access.Permission, err error) {
		if err := RefuseTaken(t, "permission", "key", "SELECT key FROM permissions WHERE key = ?", p.Key); err != nil {
			return made, err
		}
		if _, err := insertPermission(t, p); err != nil {
			return made, err
		}
		if made, err = permissionNamed(t, p.Key); err != nil {
			return made, err
		}
		d.OutdatePrincipals(t)
		return made, d.hooks.Audit(t, by, 0, access.PermissionCreated, Target{Type: "permission", ID: p.Key},
			map[string]any{"description": p.Description, "internal": p.Internal})
	})
}

// UpdatePermission replaces the description of a permission, also of a built-in one. Faults: NotFound.
func (d *Directory) UpdatePermission(ctx context.Context, by access.Actor, key, description string) (access.Permission, error) {
	return sqlite.Returning(ctx, d.file, workFor(by.Organization), func(t *sqlite.Tx) (changed access.Permission, err error) {
		if changed, err = permissionNamed(t, key); err != nil {
			return changed, err
		}
		changed.Description = description
		if err := t.Exec("UPDATE permissions SET description = ? WHERE id = ?", description, changed.RowID); err != nil {
			return changed, err
		}
		return changed, d.hooks.Audit(t, by, 0, access.PermissionUpdated, Target{Type: "permission", ID: key},
			map[string]any{"description": description})
	})
}

// DeletePermission deletes a permission. Faults: NotFound; Conflict for a built-in one, and while a role grants it or an active
// key has it in its scope. Otherwise, if the permission were created again with another meaning, that key would have it. Forbidden if it
// is internal and by lacks it, because by could create it again as one that customers have.
func (d *Directory) DeletePermission(ctx context.Context, by access.Actor, key string) error {
	return d.file.Write(ctx, urgentFor(by.Organization), func(t *sqlite.Tx) error {
		p, err := permissionNamed(t, key)
		if err := cmp.Or(err, refuseBuiltIn(p.BuiltIn, "permission", key)); err != nil {
			return err
		}
		own, err := principal.PermissionsOf(t, by.Authority)
		if err != nil {
			return err
		}
		if p.Internal && !own.Has(key) {
			return fault.New(fault.Forbidden, access.CodeDenied,
				"You can delete only internal permissions that you have, and you lack %s; ask a user who has it.", key)
		}
		if err := sqlite.RefuseIf(t, errInUse("permission", "roles grant it; take it out of their permissions first"), "SELECT 1 FROM role_permissions WHERE permission_id = ?", p.RowID); err != nil {
			return err
		}
		if err := sqlite.RefuseIf(t, errInUse("permission", "API keys have it in their scope; revoke them first"), `
			SELECT 1 FROM api_keys
			WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?1) AND instr(' ' || scope || ' ', ' ' || ?2 || ' ') > 0`,
			t.Now(), key); err != nil {
			return err
		}
		if err := t.Exec("DELETE FROM permissions WHERE id = ?", p.RowID); err != nil {
			return err
		}
		d.OutdatePrincipals(t)
		return d.hooks.Audit(t, by, 0, access.PermissionDeleted, Target{Type: "permission", ID: key}, nil)
	})
}

func insertPermission(t *sqlite.Tx, p access.Permission) (int64, error) {
	return t.Insert("INSERT INTO permissions (key, description, built_in, internal, created_at) VALUES (?, ?, ?, ?, ?)",
		p.Key, p.Description, p.BuiltIn, p.Internal, t.Now())
}

// knownPermissions refuses a field with unknown permissions, and names each of them.
func knownPermissions(t *sqlite.Tx, field string, named access.Scope) error {
	unknown, err := unknownPermissions(t, named)
	if err != nil {
		return err
	}
	var fields []fault.Field
	for _, key := range unknown.Keys() {
		fields = append(fields, fault.Field{
			Field: field, Code: "unknown_permission",
			Message: "There is no permission " + key + "; an operator can create it.",
		})
	}
	return fault.Fields(fields)
}
