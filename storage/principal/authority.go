package principal

import (
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// PermissionsOf returns the present permissions of a credential in its own organization. The result is empty without a
// credential, and if its user is not active or not a member.
func PermissionsOf(t *sqlite.Tx, a access.Authority) (access.Scope, error) {
	if err := NotRevoked(t, a); err != nil || a.User == 0 {
		return access.Scope{}, err
	}
	found, err := sqlite.One[principalRow](t, "user", `
		SELECT u.is_active AS "user.is_active", `+ActingRoleColumns+`
		FROM users u LEFT JOIN memberships m ON m.organization_id = ?2 AND m.user_id = u.id`+JoinActingRole+`
		WHERE u.id = ?1`, a.User, a.Home)
	own := Effective(found.Role)
	switch {
	case err != nil || !found.User.IsActive:
		return access.Scope{}, err
	case a.Session != "":
		c, err := sqlite.One[principalRow](t, "session", `SELECT c.kind AS "session.kind",`+limitColumns+" FROM sessions c WHERE c.public_id = ?", a.Session)
		if err == nil && !c.Session.IsPortal() {
			return own, nil
		}
		return InPortal(own, c.Limit), err
	case a.Key == 0:
		return own, nil
	}
	scope, err := sqlite.One[access.Scope](t, "API key", "SELECT scope FROM api_keys WHERE id = ?", a.Key)
	return own.Intersect(scope), err
}

// MayReadAudit reports whether a credential has audit:read now.
func MayReadAudit(t *sqlite.Tx, a access.Authority) (bool, error) {
	permissions, err := PermissionsOf(t, a)
	return err == nil && permissions.Has(access.AuditRead), err
}

// Require refuses a credential that was revoked, or that lost a permission, after its request began. It is for operations that take long.
// The program itself has every permission.
func Require(t *sqlite.Tx, a access.Authority, permission string) error {
	if a == (access.Authority{}) {
		return nil
	}
	own, err := PermissionsOf(t, a)
	if err != nil {
		return err
	}
	return access.Principal{Permissions: own}.Permit(access.NewScope(permission))
}

// NotRevoked refuses a credential that was revoked, or a session that has ended, after its request began: it must not create
// another credential.
func NotRevoked(t *sqlite.Tx, a access.Authority) error {
	if a.Session != "" {
		if err := sqlite.RefuseIf(t, refusedSession.invalid(), `
			SELECT 1 WHERE NOT EXISTS (
				SELECT 1 FROM sessions s JOIN organizations o ON o.id = s.organization_id WHERE s.public_id = ? AND o.closed_at IS NULL)`, a.Session); err != nil {
			return err
		}
	}
	if a.Key != 0 {
		if err := sqlite.RefuseIf(t, refusedKey.revoked(), `
			SELECT 1 FROM api_keys k JOIN organizations o ON o.id = k.organization_id
			WHERE k.id = ? AND coalesce(k.revoked_at, o.closed_at) IS NOT NULL`, a.Key); err != nil {
			return err
		}
	}
	if a.Token != 0 {
		return sqlite.RefuseIf(t, refusedToken.revoked(), `
			SELECT 1 FROM access_tokens a JOIN organizations o ON o.id = a.organization_id
			WHERE a.id = ? AND coalesce(a.revoked_at, o.closed_at) IS NOT NULL`, a.Token)
	}
	return nil
}

// ListedPermissions selects the permissions of a role r. For a built-in role these are all permissions, from which Effective
// computes its part; internal ones only for the operator. The result is empty if there is no role.
const ListedPermissions = `
	coalesce(CASE WHEN r.built_in
		THEN (SELECT group_concat(v.key, ' ') FROM permissions v WHERE v.internal = 0 OR r.name = '` + access.RoleOperator + `')
		ELSE (SELECT group_concat(v.key, ' ') FROM role_permissions g JOIN permissions v ON v.id = g.permission_id WHERE g.role_id = r.id)
	END, '')`

// Effective returns the permissions that a role grants, by ListedPermissions. An unknown built-in role grants nothing.
func Effective(r access.Role) access.Scope {
	if !r.BuiltIn {
		return r.Permissions
	}
	return access.BuiltInRole(r.Name, r.Permissions)
}

// BuiltInGrants reports whether the built-in role of that name grants a permission: Effective of ListedPermissions has it.
func BuiltInGrants(role string, p access.Permission) bool {
	return access.BuiltInRole(role, access.NewScope(p.Key)).Has(p.Key) && (!p.Internal || role == access.RoleOperator)
}

// ActingRoleColumns selects the role r of a principal; its columns are empty if there is no role.
const ActingRoleColumns = `
	coalesce(r.name, '') AS "role.name", coalesce(r.built_in, 0) AS "role.built_in", ` + ListedPermissions + ` AS "role.permissions"`

// JoinActingRole joins the role r of a user u: the role of membership m, or operator for the built-in user, who has no memberships.
const JoinActingRole = `
	LEFT JOIN roles r ON r.id = CASE u.built_in WHEN 1 THEN (SELECT id FROM roles WHERE name = '` + access.RoleOperator + `') ELSE m.role_id END`

// InPortal returns the permissions of a portal session: those that its user holds and the role grants. None is about the whole instance.
func InPortal(held access.Scope, limit access.Role) access.Scope {
	return held.Intersect(access.BuiltInRole(access.RoleOwner, Effective(limit)))
}
