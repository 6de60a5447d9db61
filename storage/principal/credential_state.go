package principal

import (
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// KeyState reads an API key in any state, with all facts that decide whether Keyhook accepts it. It reads the file, not
// the cache. Faults: NotFound.
func (r *Reader) KeyState(ctx context.Context, digest access.Digest) (access.CredentialState, error) {
	return r.readKeyState(ctx, keyPrincipal, digest[:])
}

// KeyStateByID is KeyState by the public id of the key, in any organization.
func (r *Reader) KeyStateByID(ctx context.Context, id string) (access.CredentialState, error) {
	return r.readKeyState(ctx, keyPrincipalByID, id)
}

func (r *Reader) readKeyState(ctx context.Context, statement string, by any) (access.CredentialState, error) {
	row, err := sqlite.One[principalRow](r.reads.In(ctx), "API key", statement, by)
	if err != nil {
		return access.CredentialState{}, err
	}
	return row.state(), nil
}

// state returns the row as an access.CredentialState.
func (r principalRow) state() access.CredentialState {
	granted := Effective(r.Role)
	permissions := granted
	if r.Key != nil {
		permissions = granted.Intersect(r.Key.Scope)
	}
	if r.Token != nil && r.Token.RowID == 0 {
		r.Token = nil // a session without a token
	}
	if r.Session.IsPortal() {
		r.Session.Role = r.Limit.Name
		permissions = InPortal(granted, r.Limit)
	}
	return access.CredentialState{
		Principal: access.Principal{
			User: r.User, Organization: r.Home, Home: r.Home, Plan: r.Plan, Permissions: permissions,
			Key: r.Key, Token: r.Token, Session: r.Session,
		},
		Member: r.Member, Role: r.Role.Name, Granted: granted,
	}
}
