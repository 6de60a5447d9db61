package directory

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// sessionLife is how long a session lasts, unless its access token expires earlier.
const sessionLife = 12 * time.Hour

// sessionBatch is how many ended sessions one transaction deletes.
const sessionBatch = 500

// refusedSession has the texts for a session whose token or user is refused. A session that has ended is unknown.
var refusedSession = refusals{"token", "session's access token", "The user of this session", "user_inactive"}

// PrincipalBySession returns the current principal of a session. Faults: Unauthenticated. The code is invalid_key if the session
// is unknown or has ended. Otherwise it is a code of PrincipalByToken.
func (d *Directory) PrincipalBySession(ctx context.Context, digest access.Digest) (access.Principal, error) {
	generation := d.principals.generation.Load()
	p := d.principals.sessions.find(generation, digest)
	if p == nil {
		var err error
		if p, err = d.readCredential(ctx, sessionPrincipal, digest, refusedSession); err != nil {
			return access.Principal{}, err
		}
		p.generation = generation
		d.principals.sessions.keep(digest, p)
	}
	now := time.Now().UnixMilli()
	switch {
	case p.Token != nil && p.Token.Status(now) == access.Expired:
		return access.Principal{}, refusedSession.expired()
	case isOver(p.Session):
		return access.Principal{}, refusedSession.invalid()
	}
	return p.Principal, nil
}

// isOver reports whether a session or a link has expired, or was created while the clock was ahead: it would last too long.
func isOver(s *access.Session) bool {
	now := time.Now().UnixMilli()
	return s.ExpiresAt <= now || s.CreatedAt > now+clock.Tolerance.Milliseconds()
}

// inPortal returns the permissions of a portal session: those that its user holds and the role grants. None is about the whole
// instance.
func inPortal(held access.Scope, limit access.Role) access.Scope {
	allowed, _ := access.BuiltInRole(access.RoleOwner, effective(limit))
	return held.Intersect(allowed)
}

// newSession is a session to start.
type newSession struct {
	Kind         access.SessionKind `db:"kind"`
	User         int64              `db:"user_id"`
	Organization int64              `db:"organization_id"`
	Token        *int64             `db:"token_id"`
	Role         *int64             `db:"role_id"`
	ReturnURL    *string            `db:"return_url"`
	Link         *string            `db:"public_id"` // of the link that starts it
}

// CreateSession starts a session that acts as the access token of p. p must have a token.
func (d *Directory) CreateSession(ctx context.Context, p access.Principal, by access.Actor, c access.Credential) (access.Session, error) {
	return returning(ctx, d, workFor(p.Home.RowID), func(t *sqlite.Tx) (access.Session, error) {
		return d.startSession(t, p, by, c, newSession{
			Kind: access.TokenSession, User: p.User.RowID, Organization: p.Home.RowID, Token: &p.Token.RowID,
		})
	})
}

// startSession inserts a session of p and audits it.
func (d *Directory) startSession(t *sqlite.Tx, p access.Principal, by access.Actor, c access.Credential, s newSession) (access.Session, error) {
	made := access.Session{
		ID: publicid.New(access.SessionID), Kind: s.Kind, LinkID: s.Link, ReturnURL: s.ReturnURL,
		CreatedAt: t.Now(), ExpiresAt: t.Now() + sessionLife.Milliseconds(),
	}
	if p.Session != nil {
		made.Role = p.Session.Role
	}
	if p.Token != nil && p.Token.ExpiresAt != nil {
		made.ExpiresAt = min(made.ExpiresAt, *p.Token.ExpiresAt)
	}
	digest := c.Digest()
	row, err := t.Insert(`
		INSERT INTO sessions (public_id, kind, user_id, organization_id, token_id, role_id, return_url, link_id, digest, created_at, expires_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		made.ID, made.Kind, s.User, s.Organization, s.Token, s.Role, s.ReturnURL, s.Link, digest[:], made.CreatedAt, made.ExpiresAt)
	if err != nil {
		return made, err
	}
	made.RowID = row
	p.Session = &made
	details := sessionDetails(p)
	details["expires_at"] = timeText(&made.ExpiresAt)
	if made.IsPortal() {
		by = p.Actor(by.IP, by.RequestID)
	}
	return made, d.hooks.Audit(t, by, p.Home.RowID, access.SessionStarted, Target{Type: "session", ID: made.ID}, details)
}

// sessionDetails are the details of an audit event about the session of p.
func sessionDetails(p access.Principal) map[string]any {
	details := map[string]any{"kind": p.Session.Kind, "user_id": p.User.ID}
	if p.Token != nil {
		details["access_token_id"] = p.Token.ID
	}
	if p.Session.LinkID != nil {
		details["link_id"] = *p.Session.LinkID
	}
	if p.Session.IsPortal() {
		details["role"] = p.Session.Role
	}
	return details
}

// EndSession ends the session of p for all requests that begin after EndSession has returned. The operation is idempotent.
func (d *Directory) EndSession(ctx context.Context, p access.Principal, by access.Actor) error {
	return d.change(ctx, urgentFor(p.Home.RowID), func(t *sqlite.Tx) error {
		n, err := t.Affected("DELETE FROM sessions WHERE public_id = ?", p.Session.ID)
		if err != nil || n == 0 {
			return err
		}
		d.outdatePrincipals(t)
		return d.hooks.Audit(t, by, p.Home.RowID, access.SessionEnded, Target{Type: "session", ID: p.Session.ID}, sessionDetails(p))
	})
}

// DropSessions deletes a batch of the sessions and of the sign-in links that have expired at the time now. It reads before it
// writes: usually there are none. The owner of the file calls it from time to time.
func (d *Directory) DropSessions(ctx context.Context, now int64) error {
	var ended bool
	if err := d.get(ctx, &ended, `
		SELECT EXISTS (SELECT 1 FROM sessions WHERE expires_at <= ?1) OR EXISTS (SELECT 1 FROM sign_in_links WHERE expires_at <= ?1)`,
		now); err != nil || !ended {
		return err
	}
	return d.change(ctx, sqlite.Work{}, func(t *sqlite.Tx) error { return dropEndedSessions(t, now) })
}

func dropEndedSessions(t *sqlite.Tx, now int64) error {
	if _, err := t.Exec("DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE expires_at <= ? LIMIT ?)", now, sessionBatch); err != nil {
		return err
	}
	_, err := t.Exec("DELETE FROM sign_in_links WHERE id IN (SELECT id FROM sign_in_links WHERE expires_at <= ? LIMIT ?)", now, sessionBatch)
	return err
}
