// Package principal owns the principals of credentials: it reads the user, the organization and the permissions behind a
// credential, and keeps an exact cache of them. It does not know how users, roles or credentials are changed.
package principal

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// Reader returns principals. All methods are safe for concurrent use.
type Reader struct {
	reads *sqlite.Pool
	bind  Bind
	cache cache
}

// Bind makes the subject of an identity the external id of the user of p, whom the Reader has found by the e-mail address. It changes
// nothing if the user now has an external id or another address, or if another user has the subject. If it changes the user, it
// calls OutdatePrincipals. The Reader reads the user again afterwards.
type Bind func(ctx context.Context, p access.Principal, i access.Identity) error

// New returns a reader with an empty cache.
func New(reads *sqlite.Pool, bind Bind) *Reader { return &Reader{reads: reads, bind: bind} }

// PrincipalByKey returns the principal of an API key at this moment. It does not check Plan.APIKeys. Faults:
// Unauthenticated, with the code of the first check that fails: invalid_key, key_revoked, key_expired, creator_inactive. A
// failure to read the database is never one of these.
func (r *Reader) PrincipalByKey(ctx context.Context, digest access.Digest) (access.Principal, error) {
	return r.known(ctx, &r.cache.keys, keyPrincipal, digest, refusedKey)
}

// PrincipalByToken returns the principal of an access token at this moment. Faults:
// Unauthenticated, with the code of the first check that fails: invalid_key, token_revoked, token_expired,
// user_inactive. A failure to read the database is never one of these.
func (r *Reader) PrincipalByToken(ctx context.Context, digest access.Digest) (access.Principal, error) {
	return r.known(ctx, &r.cache.tokens, tokenPrincipal, digest, refusedToken)
}

// PrincipalByLink returns the principal of the session that a sign-in link would start at this moment. The session has no id yet.
// It reads the file: a link is used once. Faults: Unauthenticated. The code is invalid_key if the link is unknown, was used or
// has expired. Otherwise it is a code of PrincipalByToken.
func (r *Reader) PrincipalByLink(ctx context.Context, digest access.Digest) (access.Principal, error) {
	p, err := r.readCredential(ctx, linkPrincipal, digest, refusedLink)
	if err != nil {
		return access.Principal{}, err
	}
	return refusedLink.unlessEnded(p)
}

// PrincipalOfSystem returns the built-in operator in the oldest organization that is not closed. Requests over the local socket act
// as this principal. It is not cached: people type those requests.
func (r *Reader) PrincipalOfSystem(ctx context.Context) (access.Principal, error) {
	var row principalRow
	err := r.reads.Get(ctx, &row, "SELECT"+principalColumns+` FROM (
		SELECT id AS user_id, (SELECT min(id) FROM organizations WHERE closed_at IS NULL) AS organization_id FROM users WHERE built_in = 1) c`+principalJoins)
	return row.state().Principal, err
}

// known returns the principal of a digest from its cache, or reads it and keeps it there.
func (r *Reader) known(ctx context.Context, in *principals, statement string, digest access.Digest, refused refusals) (access.Principal, error) {
	generation := r.cache.generation.Load()
	p := in.find(generation, digest)
	if p == nil {
		var err error
		if p, err = r.readCredential(ctx, statement, digest, refused); err != nil {
			return access.Principal{}, err
		}
		p.generation = generation
		in.keep(digest, p)
	}
	return refused.unlessEnded(p)
}

// unlessEnded returns the principal of a credential, unless the credential has ended since it was read.
func (r refusals) unlessEnded(p *knownPrincipal) (access.Principal, error) {
	i := p.Issued()
	switch {
	case i != nil && i.ExpiresAt != nil && *i.ExpiresAt <= time.Now().UnixMilli():
		return access.Principal{}, r.expired()
	case p.Session != nil && isOver(p.Session):
		return access.Principal{}, r.invalid()
	}
	return p.Principal, nil
}

// readCredential is readPrincipal by a digest. The digest escapes to the heap here, and so a cached principal costs no
// allocation.
func (r *Reader) readCredential(ctx context.Context, statement string, digest access.Digest, refused refusals) (*knownPrincipal, error) {
	return r.readPrincipal(ctx, statement, refused, digest[:])
}

// readPrincipal reads a principal and checks its credential; see access.CredentialState.
func (r *Reader) readPrincipal(ctx context.Context, statement string, refused refusals, by ...any) (*knownPrincipal, error) {
	row, err := sqlite.One[principalRow](r.reads.In(ctx), refused.name, statement, by...)
	if fault.KindOf(err) == fault.NotFound {
		return nil, refused.invalid()
	} else if err != nil {
		return nil, err
	}
	state := row.state()
	if err := refused.forCheck(state.FailedCheck(time.Now().UnixMilli()), row.User); err != nil {
		return nil, err
	}
	return &knownPrincipal{Principal: state.Principal}, nil
}

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
	return row.state(), err
}

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
