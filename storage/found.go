package storage

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/clock"
)

// What a new instance is called.
const (
	firstOrganization = "Default"
	firstPlan         = "enterprise"
	firstEmail        = "admin@localhost"
	firstName         = "admin"
	bootstrapToken    = "bootstrap"
)

// found makes the schema and what a new instance starts with, in one transaction: after a crash there is either nothing
// or all of it, the first operator's token included.
func (s *Store) found(o Options) error {
	if o.Bootstrap == (access.Credential{}) {
		return errors.New("a new database needs a bootstrap credential")
	}
	return s.alone(func(t *tx) error {
		t.dirty = true // what follows goes past t
		if _, err := t.conn.ExecContext(background, o.Schema); err != nil {
			return fmt.Errorf("apply schema: %w", err)
		}
		if _, err := t.conn.ExecContext(background, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, s.upgrades.version())); err != nil {
			return fmt.Errorf("mark file: %w", err)
		}
		return errors.Join(s.seedInstance(t), seedAccess(t), seedSystem(t), seedOperator(t, o.Bootstrap))
	})
}

// invite makes the bootstrap credential an access token of the first operator, also in a file that is not new, as long as
// nobody has ever come in: a first start may have ended before its token was read. It reports whether it did.
func (s *Store) invite(token access.Credential) (bool, error) {
	if token == (access.Credential{}) {
		return false, nil
	}
	invited := false
	err := s.alone(func(t *tx) error {
		digest := token.Digest()
		var first struct {
			User         int64 `db:"user_id"`
			Organization int64 `db:"organization_id"`
		}
		err := t.get(&first, `
			SELECT user_id, organization_id FROM access_tokens
			WHERE name = ? AND NOT EXISTS (SELECT 1 FROM access_tokens WHERE last_used_at IS NOT NULL OR digest = ?)
			  AND NOT EXISTS (SELECT 1 FROM api_keys)
			ORDER BY id LIMIT 1`, bootstrapToken, digest[:])
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		invited = true
		_, err = insertToken(t, first.User, first.Organization, token, bootstrapToken, nil)
		return err
	})
	return invited, err
}

func (s *Store) seedInstance(t *tx) error {
	salt := make([]byte, 16)
	rand.Read(salt)
	if _, err := t.exec("INSERT INTO instance (name, value) VALUES ('salt', ?), ('canary', ?)",
		salt, s.ring.Seal([]byte(canary), canary)); err != nil {
		return err
	}
	return writeClock(t, clock.State{Seen: t.now})
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

func seedOperator(t *tx, token access.Credential) error {
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
	if err := upsertMember(t, organization, user, role); err != nil {
		return err
	}
	_, err = insertToken(t, user, organization, token, bootstrapToken, nil)
	return err
}
