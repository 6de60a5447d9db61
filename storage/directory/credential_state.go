package directory

import (
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// KeyState reads an API key in any state, with all facts that decide whether Keyhook accepts it. It reads the file, not
// the cache. Faults: NotFound.
func (d *Directory) KeyState(ctx context.Context, digest access.Digest) (access.CredentialState, error) {
	return d.readKeyState(ctx, keyPrincipal, digest[:])
}

// KeyStateByID is KeyState by the public id of the key, in any organization.
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
	if r.Token != nil && r.Token.RowID == 0 {
		r.Token = nil // a session without a token
	}
	if r.Session.IsPortal() {
		r.Session.Role = r.Limit.Name
		permissions = inPortal(granted, r.Limit)
	}
	return access.CredentialState{
		Principal: access.Principal{
			User: r.User, Organization: r.Home, Home: r.Home, Plan: r.Plan, Permissions: permissions,
			Key: r.Key, Token: r.Token, Session: r.Session,
		},
		Member: r.Member, Role: r.Role.Name, Granted: granted,
	}
}

// forCheck returns the refusal for a failed check of the credential; nil for a check of something else.
func (r refusals) forCheck(failed access.Check) error {
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
