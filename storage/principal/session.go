package principal

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// PrincipalBySession returns the current principal of a session. Faults: Unauthenticated. The code is invalid_key if the session
// is unknown or has ended. Otherwise it is a code of PrincipalByToken.
func (r *Reader) PrincipalBySession(ctx context.Context, digest access.Digest) (access.Principal, error) {
	return r.known(ctx, &r.cache.sessions, sessionPrincipal, digest, refusedSession)
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

// isOver reports whether a session or a link has expired, or was created while the clock was ahead: it would last too long.
func isOver(s *access.Session) bool {
	now := time.Now().UnixMilli()
	return s.ExpiresAt <= now || s.CreatedAt > now+clock.Tolerance.Milliseconds()
}
