package storage

import (
	"context"

	"github.com/keyhook/keyhook/storage/access"
)

// The built-in user. It has no e-mail address, only a word in the place of one, so that nobody who proves an address to
// an identity provider can be taken for it.
const systemName = "system"

func seedSystem(t *tx) error {
	_, err := insertUser(t, access.User{Email: systemName, Name: systemName, IsActive: true, BuiltIn: true})
	return err
}

// PrincipalOfSystem returns the built-in operator, as whom requests over the local socket act, in the oldest organization.
// It is read afresh each time: those requests are typed by hand, and so no cache has to be exact about it.
func (s *Store) PrincipalOfSystem(ctx context.Context) (access.Principal, error) {
	var row principalRow
	if err := s.get(ctx, &row, `
		SELECT`+principalColumns+`
		FROM users u
		JOIN organizations o ON o.id = (SELECT min(id) FROM organizations)
		JOIN plans p ON p.id = o.plan_id
		LEFT JOIN memberships m ON m.organization_id = o.id AND m.user_id = u.id`+actingRole+`
		WHERE u.built_in = 1`); err != nil {
		return access.Principal{}, err
	}
	return access.Principal{
		User: row.User, Organization: row.Home, Home: row.Home, Plan: row.Plan, Permissions: effective(row.Role),
	}, nil
}
