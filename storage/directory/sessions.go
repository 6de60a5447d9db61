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

const sessionPrincipal = `
	SELECT s.id AS "session.id", s.public_id AS "session.public_id", s.created_at AS "session.created_at", s.expires_at AS "session.expires_at",` +
	tokenColumns + principalColumns + ` FROM sessions s JOIN access_tokens c ON c.id = s.token_id` + principalJoins + ` WHERE s.digest = ?`

// refusedSession has the texts for a session whose token is refused. A session that has ended is unknown.
var refusedSession = refusals{"token", "session's access token", "The user of this session", "user_inactive"}

// PrincipalBySession returns the current principal of the access token of a session. Faults: Unauthenticated. The code is
// invalid_key if the session is unknown or has ended. Otherwise it is a code of PrincipalByToken.
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
	case p.Token.Status(now) == access.Expired:
		return access.Principal{}, refusedSession.expired()
	case p.Session.ExpiresAt <= now, p.Session.CreatedAt > now+clock.Tolerance.Milliseconds():
		// The session began while the clock was ahead. It would last too long.
		return access.Principal{}, refusedSession.invalid()
	}
	return p.Principal, nil
}

// CreateSession begins a session that acts as the access token of p. p must have a token.
func (d *Directory) CreateSession(ctx context.Context, p access.Principal, by access.Actor, c access.Credential) (access.Session, error) {
	return returning(ctx, d, workFor(p.Home.RowID), func(t *sqlite.Tx) (access.Session, error) {
		made := access.Session{ID: publicid.New(access.SessionID), CreatedAt: t.Now(), ExpiresAt: t.Now() + sessionLife.Milliseconds()}
		if expires := p.Token.ExpiresAt; expires != nil {
			made.ExpiresAt = min(made.ExpiresAt, *expires)
		}
		digest := c.Digest()
		row, err := t.Insert("INSERT INTO sessions (public_id, token_id, digest, created_at, expires_at) VALUES (?, ?, ?, ?, ?)",
			made.ID, p.Token.RowID, digest[:], made.CreatedAt, made.ExpiresAt)
		if err != nil {
			return made, err
		}
		made.RowID = row
		return made, d.hooks.Audit(t, by, p.Home.RowID, access.SessionStarted, Target{Type: "session", ID: made.ID}, map[string]any{
			"user_id": p.User.ID, "access_token_id": p.Token.ID, "expires_at": timeText(&made.ExpiresAt),
		})
	})
}

// EndSession ends the session of p for all requests that begin after EndSession has returned. The operation is idempotent.
func (d *Directory) EndSession(ctx context.Context, p access.Principal, by access.Actor) error {
	return d.change(ctx, urgentFor(p.Home.RowID), func(t *sqlite.Tx) error {
		n, err := t.Affected("DELETE FROM sessions WHERE public_id = ?", p.Session.ID)
		if err != nil || n == 0 {
			return err
		}
		d.outdatePrincipals(t)
		return d.hooks.Audit(t, by, p.Home.RowID, access.SessionEnded, Target{Type: "session", ID: p.Session.ID}, map[string]any{
			"user_id": p.User.ID, "access_token_id": p.Token.ID,
		})
	})
}

// DropSessions deletes a batch of the sessions that have expired at the time now. It reads before it writes: usually there
// are none. The owner of the file calls it from time to time.
func (d *Directory) DropSessions(ctx context.Context, now int64) error {
	var ended bool
	if err := d.get(ctx, &ended, "SELECT EXISTS (SELECT 1 FROM sessions WHERE expires_at <= ?)", now); err != nil || !ended {
		return err
	}
	return d.change(ctx, sqlite.Work{}, func(t *sqlite.Tx) error { return dropEndedSessions(t, now) })
}

func dropEndedSessions(t *sqlite.Tx, now int64) error {
	_, err := t.Exec("DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE expires_at <= ? LIMIT ?)", now, sessionBatch)
	return err
}
