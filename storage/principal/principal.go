// Package principal owns the principals of credentials: it reads the user, the organization and the permissions behind a
// credential, and keeps an exact cache of them. It does not know how users, roles or credentials are changed.
package principal

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/clock"
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

// PrincipalByToken returns the principal of an access token at this moment. Faults: Unauthenticated, with the code of the first check that
// fails: invalid_key, token_revoked, token_expired, user_inactive. A failure to read the database is never one of these.
func (r *Reader) PrincipalByToken(ctx context.Context, digest access.Digest) (access.Principal, error) {
	return r.known(ctx, &r.cache.tokens, tokenPrincipal, digest, refusedToken)
}

// PrincipalBySession returns the current principal of a session. Faults: Unauthenticated. The code is invalid_key if the session
// is unknown or has ended. Otherwise it is a code of PrincipalByToken.
func (r *Reader) PrincipalBySession(ctx context.Context, digest access.Digest) (access.Principal, error) {
	return r.known(ctx, &r.cache.sessions, sessionPrincipal, digest, refusedSession)
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

// SwitchOrganization returns the principal of a session in another organization of its user, by the id or the external id of the
// organization. The user's role there decides. The result is own if the session may not switch, if it may act everywhere, or if its user is not
// a member of that organization.
func (r *Reader) SwitchOrganization(ctx context.Context, own access.Principal, named string) (access.Principal, error) {
	if own.Session == nil || !own.Session.MaySwitch || own.Home.IsNamed(named) || own.Can(access.PlatformActAs) {
		return own, nil
	}
	generation := r.cache.generation.Load()
	key := identityKey(access.Identity{Subject: own.User.ID}, named)
	p := r.cache.members.find(generation, key)
	if p == nil {
		organization, err := r.membershipNamed(ctx, own.User.RowID, named)
		if err == nil {
			p, err = r.readPrincipal(ctx, memberPrincipal, refusedSession, own.User.RowID, organization)
		}
		switch kind := fault.KindOf(err); {
		case kind == fault.NotFound, kind == fault.Unauthenticated: // the organization is closed
			return own, nil
		case err != nil:
			return access.Principal{}, err
		}
		p.generation = generation
		r.cache.members.keep(key, p)
	}
	other := p.Principal
	other.Session = own.Session
	return other, nil
}

// maxSwitches is how many organizations SessionOrganizations returns.
const maxSwitches = 100

// SessionOrganizations returns the organizations in which the session of p may act because its user is a member, the oldest
// first, at most 100. It returns none for a session that may act only in its own organization.
func (r *Reader) SessionOrganizations(ctx context.Context, p access.Principal) ([]access.Organization, error) {
	if p.Session == nil || !p.Session.MaySwitch {
		return nil, nil
	}
	return sqlite.All[access.Organization](r.reads.In(ctx), `
		SELECT o.id, o.public_id, o.external_id, o.name, p.name AS plan, o.created_at, o.updated_at
		FROM memberships m CROSS JOIN organizations o ON o.id = m.organization_id JOIN plans p ON p.id = o.plan_id
		WHERE m.user_id = ? AND o.closed_at IS NULL
		ORDER BY m.organization_id LIMIT ?`, p.User.RowID, maxSwitches)
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

// isOver reports whether a session or a link has expired, or was created while the clock was ahead: it would last too long.
func isOver(s *access.Session) bool {
	now := time.Now().UnixMilli()
	return s.ExpiresAt <= now || s.CreatedAt > now+clock.Tolerance.Milliseconds()
}

// readCredential is readPrincipal by a digest. The digest escapes to the heap here, and so a cached principal costs no allocation.
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

// refusals are the words for a sort of credential in its refusals.
type refusals struct{ code, name, holder, holderCode string }

var (
	refusedKey   = refusals{"key", "API key", "The creator of this API key", "creator_inactive"}
	refusedToken = refusals{"token", "access token", "The user of this access token", "user_inactive"}
	// A session that has ended is unknown.
	refusedSession = refusals{"token", "session's access token", "The user of this session", "user_inactive"}
	// A link that was used or has expired is unknown.
	refusedLink = refusals{"token", "sign-in link", "The user of this sign-in link", "user_inactive"}
	// The identity itself was verified before, so only its user can be refused.
	refusedIdentity = refusals{"token", "token", "The user of this token", "user_inactive"}
)

// InvalidLink refuses a sign-in link that is unknown, was used or has expired.
func InvalidLink() error { return refusedLink.invalid() }

// invalid is the refusal of a malformed and of an unknown credential. It has the same code for all sorts of credentials.
func (r refusals) invalid() error {
	return fault.New(fault.Unauthenticated, "invalid_key", "This %s is not valid; check that it was copied in full.", r.name)
}

func (r refusals) revoked() error {
	return fault.New(fault.Unauthenticated, r.code+"_revoked", "This %s has been revoked; use another.", r.name)
}

func (r refusals) expired() error {
	return fault.New(fault.Unauthenticated, r.code+"_expired", "This %s has expired; use another.", r.name)
}

// inactive refuses the credential of a user who may not act. It names the user only by the id.
func (r refusals) inactive(user string, isActive bool) error {
	why := "no longer a member of the organization; an operator can add the user again"
	if !isActive {
		why = "not active; an operator can activate the user"
	}
	return fault.New(fault.Unauthenticated, r.holderCode, "%s, %s, is %s.", r.holder, user, why)
}

// forCheck returns the refusal for a failed check of the credential; nil for a check of something else.
func (r refusals) forCheck(failed access.Check, of access.User) error {
	switch failed {
	case access.CheckRevoked:
		return r.revoked()
	case access.CheckExpired:
		return r.expired()
	case access.CheckCreator:
		return r.inactive(of.ID, of.IsActive)
	}
	return nil
}
