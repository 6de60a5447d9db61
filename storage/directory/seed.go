package directory

import (
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// The names of a new instance.
const (
	firstOrganization = "Default"
	firstPlan         = "enterprise"
	firstName         = "admin"

	// systemName is the name of the built-in user, and the value of its e-mail column. It is not an e-mail address, so no identity
	// provider can verify it.
	systemName = "system"
)

// Seed writes the first rows of a new directory. The first operator's token is created later, at each start until somebody has
// made a request; see EnsureBootstrapToken.
func Seed(t *sqlite.Tx) error {
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
	for _, name := range []string{access.RoleOperator, access.RoleOwner, access.RoleCustomer, access.RoleMember} {
		if _, err := insertRole(t, name, true); err != nil {
			return err
		}
	}
	if _, err := insertUser(t, access.User{Email: systemName, Name: systemName, IsActive: true, BuiltIn: true}); err != nil {
		return err
	}
	organization, err := insertOrganization(t, access.Organization{Name: firstOrganization, Plan: firstPlan})
	if err != nil {
		return err
	}
	user, err := insertUser(t, access.User{Email: principal.FirstEmail, Name: firstName, IsActive: true})
	if err != nil {
		return err
	}
	return upsertMember(t, organization.RowID, user.RowID, access.RoleOperator)
}
