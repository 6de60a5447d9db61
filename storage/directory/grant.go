package directory

import (
	"fmt"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// mayGrant refuses a grant of permissions that the actor does not have. elsewhere says that the grant reaches an organization
// other than the actor's own: there, the actor also needs platform:act_as. Faults: Forbidden, with the missing permissions;
// Unauthenticated if the actor's credential was revoked after its request began.
func mayGrant(t *sqlite.Tx, by access.Actor, granted access.Scope, elsewhere bool) error {
	own, err := principal.PermissionsOf(t, by.Authority)
	if err != nil {
		return err
	}
	if elsewhere {
		granted = granted.Union(access.NewScope(access.PlatformActAs))
	}
	missing := granted.Minus(own)
	if missing.Empty() {
		return nil
	}
	return fault.New(fault.Forbidden, access.CodeDenied,
		"You can grant only permissions that you have, and you lack %s; ask a user who has it to add it to your role, or grant less.", strings.Join(missing.Keys(), ", "))
}

// mayChangeRole is mayGrant for the permissions of a role before and after a change: nobody changes a role that has more than
// they do. A role is the same in every organization. So an added permission reaches every organization with such a member or portal.
func mayChangeRole(t *sqlite.Tx, by access.Actor, role access.Role, to access.Scope) error {
	elsewhere := false
	if !to.Minus(role.Permissions).Empty() {
		if err := t.Get(&elsewhere, `SELECT EXISTS (SELECT 1 FROM memberships WHERE role_id = ?1 AND organization_id <> ?2)
			OR EXISTS (SELECT 1 FROM sessions WHERE role_id = ?1 AND organization_id <> ?2)
			OR EXISTS (SELECT 1 FROM sign_in_links WHERE role_id = ?1 AND organization_id <> ?2)`, role.RowID, by.Authority.Home); err != nil {
			return fmt.Errorf("look for the uses of a role: %w", err)
		}
	}
	return mayGrant(t, by, role.Permissions.Union(to), elsewhere)
}

// mayActAs is mayGrant for everything that a user has, in all organizations of the user, if a change lets somebody act as the user who could
// not before: another person by a new e-mail address or external id, or the holder of a credential when the user becomes active again.
func mayActAs(t *sqlite.Tx, by access.Actor, user access.User, c access.UserChange) error {
	externalID := ""
	access.Set(&externalID, user.ExternalID)
	becomesActive := c.IsActive != nil && *c.IsActive && !user.IsActive
	if differing(c.Email, user.Email) == nil && differing(c.ExternalID, externalID) == nil && !becomesActive {
		return nil
	}
	roles := []access.Role{}
	if err := t.List(&roles, "SELECT "+roleColumns+" FROM roles r WHERE r.id IN (SELECT role_id FROM memberships WHERE user_id = ?)", user.RowID); err != nil {
		return fmt.Errorf("read the roles of a user: %w", err)
	}
	var granted access.Scope
	for _, r := range roles {
		granted = granted.Union(principal.Effective(r))
	}
	var elsewhere bool
	if err := t.Get(&elsewhere, "SELECT EXISTS (SELECT 1 FROM memberships WHERE user_id = ? AND organization_id <> ?)",
		user.RowID, by.Authority.Home); err != nil {
		return fmt.Errorf("look for the organizations of a user: %w", err)
	}
	return mayGrant(t, by, granted, elsewhere)
}

// grantedTo returns the permissions of a member's role. Faults: Conflict if the user is not a member.
func grantedTo(t *sqlite.Tx, user, organization int64) (access.Scope, error) {
	r, err := sqlite.One[access.Role](t, "member",
		"SELECT "+roleColumns+" FROM memberships m JOIN roles r ON r.id = m.role_id WHERE m.organization_id = ? AND m.user_id = ?", organization, user)
	if fault.KindOf(err) == fault.NotFound {
		err = notMember("The user")
	}
	return principal.Effective(r), err
}
