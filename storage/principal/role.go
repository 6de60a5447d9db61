package principal

import "github.com/keyhook/keyhook/storage/access"

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
	granted, _ := access.BuiltInRole(r.Name, r.Permissions)
	return granted
}

// BuiltInGrants reports whether the built-in role of that name grants a permission: Effective of ListedPermissions has it.
func BuiltInGrants(role string, p access.Permission) bool {
	granted, _ := access.BuiltInRole(role, access.NewScope(p.Key))
	return granted.Has(p.Key) && (!p.Internal || role == access.RoleOperator)
}

// ActingRoleColumns selects the role r of a principal; its columns are empty if there is no role.
const ActingRoleColumns = `
	coalesce(r.name, '') AS "role.name", coalesce(r.built_in, 0) AS "role.built_in", ` + ListedPermissions + ` AS "role.permissions"`

// JoinActingRole joins the role r of a user u: the role of membership m, or operator for the built-in user, who has no
// memberships.
const JoinActingRole = `
	LEFT JOIN roles r ON r.id = CASE u.built_in WHEN 1 THEN (SELECT id FROM roles WHERE name = '` + access.RoleOperator + `') ELSE m.role_id END`

// InPortal returns the permissions of a portal session: those that its user holds and the role grants. None is about the whole
// instance.
func InPortal(held access.Scope, limit access.Role) access.Scope {
	allowed, _ := access.BuiltInRole(access.RoleOwner, Effective(limit))
	return held.Intersect(allowed)
}
