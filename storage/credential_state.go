package storage

import (
	"context"

	"github.com/keyhook/keyhook/storage/access"
)

// KeyStanding returns an API key with all that decides about it, in whatever state it is, as it stands in the file now.
// Faults: NotFound.
func (s *Store) KeyStanding(ctx context.Context, d access.Digest) (access.Standing, error) {
	return s.readStanding(ctx, keyPrincipal, d[:])
}

// KeyStandingByID is KeyStanding for the key of that id, of whatever organization.
func (s *Store) KeyStandingByID(ctx context.Context, id string) (access.Standing, error) {
	return s.readStanding(ctx, keyPrincipalByID, id)
}

func (s *Store) readStanding(ctx context.Context, statement string, by any) (access.Standing, error) {
	var row principalRow
	if err := s.get(ctx, &row, statement, by); err != nil {
		return access.Standing{}, missing(err, "API key")
	}
	return row.standing(), nil
}

// standing is the row as the vocabulary has it.
func (r principalRow) standing() access.Standing {
	granted := effective(r.Role)
	permissions := granted
	if r.Key != nil {
		permissions = granted.Intersect(r.Key.Scope)
	}
	return access.Standing{
		Principal: access.Principal{
			User: r.User, Organization: r.Home, Home: r.Home, Plan: r.Plan, Permissions: permissions,
			Key: r.Key, Token: r.Token, Session: r.Session,
		},
		Member: r.Member, Role: r.Role.Name, Granted: granted,
	}
}

// at returns the refusal of a credential that fails a check of its own, nil where it passes.
func (r refusals) at(failed access.Check) error {
	switch failed {
	case access.CheckRevoked:
		return r.revoked()
	case access.CheckExpired:
		return r.expired()
	case access.CheckCreator:
		return r.inactive()
	}
	return nil
}
