package directory

import (
	"cmp"
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
)

const roleColumns = "r.id, r.name, r.built_in, r.created_at, " + principal.ListedPermissions + " AS permissions"

// Roles lists the roles with the permissions that they grant at present, newest first.
func (d *Directory) Roles(ctx context.Context, before int64, limit int) ([]access.Role, error) {
	roles, err := sqlite.All[access.Role](d.reads.In(ctx),
		"SELECT "+roleColumns+" FROM roles r WHERE r.id < ? ORDER BY r.id DESC LIMIT ?", scan.UpperBound(before), limit)
	for i := range roles {
		roles[i].Permissions = principal.Effective(roles[i])
	}
	return roles, err
}

// Role returns a role with the permissions that it grants at present. Faults: NotFound.
func (d *Directory) Role(ctx context.Context, name string) (access.Role, error) {
	return roleNamed(d.reads.In(ctx), name)
}

func roleNamed(from sqlite.Reader, name string) (access.Role, error) {
	r, err := sqlite.One[access.Role](from, "role", "SELECT "+roleColumns+" FROM roles r WHERE r.name = ?", name)
	r.Permissions = principal.Effective(r)
	return r, err
}

// CreateRole creates a role, which is never a built-in one. Faults: Conflict if the name is taken; Invalid if a permission is
// unknown; Forbidden if the role has more permissions than by.
func (d *Directory) CreateRole(ctx context.Context, by access.Actor, r access.Role) (access.Role, error) {
	return sqlite.Returning(ctx, d.file, workFor(by.Organization), func(t *sqlite.Tx) (made access.Role, err error) {
		taken := RefuseTaken(t, "role", "name", "SELECT name FROM roles WHERE name = ?", r.Name)
		if err := cmp.Or(taken, knownPermissions(t, "permissions", r.Permissions), mayGrant(t, by, r.Permissions, false)); err != nil {
			return made, err
		}
		if made, err = insertRole(t, r.Name, false); err != nil {
			return made, err
		}
		made.Permissions = r.Permissions
		if err := setPermissions(t, made.RowID, r.Permissions); err != nil {
			return made, err
		}
		return made, d.hooks.Audit(t, by, 0, access.RoleCreated, Target{Type: "role", ID: r.Name},
			map[string]any{"permissions": r.Permissions.Keys()})
	})
}

// UpdateRole changes the permissions of a role, from the next request of its holders on. Faults: NotFound; Conflict for a
// built-in one; Invalid if a permission is unknown; Forbidden if the role has more permissions than by, before or after the change.
func (d *Directory) UpdateRole(ctx context.Context, by access.Actor, name string, c access.RoleChange) (access.Role, error) {
	return sqlite.Returning(ctx, d.file, urgentFor(by.Organization), func(t *sqlite.Tx) (changed access.Role, err error) {
		changed, err = roleNamed(t, name)
		if err := cmp.Or(err, refuseBuiltIn(changed.BuiltIn, "role", name)); err != nil {
			return changed, err
		}
		details := map[string]any{}
		if c.Permissions != nil {
			if err := cmp.Or(t.Withdraws(changed.Permissions.HasAll(*c.Permissions)), knownPermissions(t, "permissions", *c.Permissions), mayChangeRole(t, by, changed, *c.Permissions)); err != nil {
				return changed, err
			}
			if err := setPermissions(t, changed.RowID, *c.Permissions); err != nil {
				return changed, err
			}
			changed.Permissions, details["permissions"] = *c.Permissions, c.Permissions.Keys()
			d.OutdatePrincipals(t)
		}
		return changed, d.hooks.Audit(t, by, 0, access.RoleUpdated, Target{Type: "role", ID: name}, details)
	})
}

// DeleteRole deletes a role. Portal sessions that it limits end. Faults: NotFound; Conflict for a built-in one, and while a member has it.
func (d *Directory) DeleteRole(ctx context.Context, by access.Actor, name string) error {
	return d.file.Write(ctx, urgentFor(by.Organization), func(t *sqlite.Tx) error {
		r, err := roleNamed(t, name)
		inUse := errInUse("role", "members of organizations have it; give them another role first")
		if err := cmp.Or(err, refuseBuiltIn(r.BuiltIn, "role", name),
			sqlite.RefuseIf(t, inUse, "SELECT 1 FROM memberships WHERE role_id = ?", r.RowID)); err != nil {
			return err
		}
		if err := t.Exec("DELETE FROM roles WHERE id = ?", r.RowID); err != nil {
			return err
		}
		d.OutdatePrincipals(t)
		return d.hooks.Audit(t, by, 0, access.RoleDeleted, Target{Type: "role", ID: name}, nil)
	})
}

func insertRole(t *sqlite.Tx, name string, builtIn bool) (made access.Role, err error) {
	err = t.ExecGet(&made, "INSERT INTO roles (name, built_in, created_at) VALUES (?, ?, ?) RETURNING id, name, built_in, created_at",
		name, builtIn, t.Now())
	return made, err
}

// setPermissions replaces the permissions of a role.
func setPermissions(t *sqlite.Tx, role int64, permissions access.Scope) error {
	if err := t.Exec("DELETE FROM role_permissions WHERE role_id = ?", role); err != nil {
		return err
	}
	return t.Exec(`
		INSERT INTO role_permissions (role_id, permission_id)
		SELECT ?, id FROM permissions WHERE key IN (SELECT value FROM json_each(?))`, role, sqlite.TextList(permissions.Keys()))
}
