package storage

import (
	"crypto/rand"
	"errors"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/clock"
)

// The names of the first objects of a new instance.
const (
	firstOrganization = "Default"
	firstPlan         = "enterprise"
	firstEmail        = "admin@localhost"
	firstName         = "admin"
)

// seed writes the first rows of a new instance. The first operator's token is created later, and again at every start
// until somebody has used one; see ensureBootstrapToken.
func (s *Store) seed(t *tx) error {
	return errors.Join(s.seedInstance(t), seedAccess(t), seedSystem(t), seedOperator(t))
}

func (s *Store) seedInstance(t *tx) error {
	salt := make([]byte, 16)
	rand.Read(salt)
	if _, err := t.Exec("INSERT INTO instance (name, value) VALUES ('salt', ?), ('canary', ?)",
		salt, s.keyRing.Seal([]byte(canary), canary)); err != nil {
		return err
	}
	return writeClock(t, clock.State{Seen: t.Now()})
}

func seedAccess(t *tx) error {
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

func seedOperator(t *tx) error {
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

// The built-in user has this word in place of an e-mail address. So no proved address of an identity provider can match
// it.
const systemName = "system"

func seedSystem(t *tx) error {
	_, err := insertUser(t, access.User{Email: systemName, Name: systemName, IsActive: true, BuiltIn: true})
	return err
}
