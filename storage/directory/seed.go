package directory

import (
	"errors"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// What a new instance is called.
const (
	firstOrganization = "Default"
	firstPlan         = "enterprise"
	firstEmail        = "admin@localhost"
	firstName         = "admin"
)

// Seed writes what a new directory starts with. The first operator's token comes later, and again at every start until
// somebody has used one; see Invite.
func Seed(t *sqlite.Tx) error {
	return errors.Join(seedAccess(t), seedSystem(t), seedOperator(t))
}

func seedAccess(t *sqlite.Tx) error {
	for _, p := range access.SeedPlans() {
		if _, err := insertPlan(t, p); err != nil {
			return err
		}
	}
	for _, p := range access.BuiltInPermissions() {
		if _, err := insertPermission(t, p); err != nil {
			return err
		}
	}
	for _, name := range []string{access.RoleOperator, access.RoleOwner, access.RoleMember} {
		if _, err := insertRole(t, name, true); err != nil {
			return err
		}
	}
	return nil
}

func seedOperator(t *sqlite.Tx) error {
	plan, err := planRow(t, firstPlan)
	if err != nil {
		return err
	}
	role, err := roleRow(t, access.RoleOperator)
	if err != nil {
		return err
	}
	organization, err := insertOrganization(t, access.Organization{Name: firstOrganization}, plan)
	if err != nil {
		return err
	}
	user, err := insertUser(t, access.User{Email: firstEmail, Name: firstName, IsActive: true})
	if err != nil {
		return err
	}
	return upsertMember(t, organization, user, role)
}

// The built-in user. It has no e-mail address, only a word in the place of one, so that nobody who proves an address to
// an identity provider can be taken for it.
const systemName = "system"

func seedSystem(t *sqlite.Tx) error {
	_, err := insertUser(t, access.User{Email: systemName, Name: systemName, IsActive: true, BuiltIn: true})
	return err
}
