package directory

import (
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// KeyState returns an API key with all that decides about it, in whatever state it is, as it stands in the file now.
// Faults: NotFound.
func (d *Directory) KeyState(ctx context.Context, digest access.Digest) (access.CredentialState, error) {
	return d.readKeyState(ctx, keyPrincipal, digest[:])
}

// KeyStateByID is KeyState for the key of that id, of whatever organization.
func (d *Directory) KeyStateByID(ctx context.Context, id string) (access.CredentialState, error) {
	return d.readKeyState(ctx, keyPrincipalByID, id)
}

func (d *Directory) readKeyState(ctx context.Context, statement string, by any) (access.CredentialState, error) {
	var row principalRow
	if err := d.get(ctx, &row, statement, by); err != nil {
		return access.CredentialState{}, sqlite.Missing(err, "API key")
	}
	return row.state(), nil
}

// state returns the row as an access.CredentialState.
func (r principalRow) state() access.CredentialState {
	granted := effective(r.Role)
	permissions := granted
	if r.Key != nil {
		permissions = granted.Intersect(r.Key.Scope)
	}
	return access.CredentialState{
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
