package directory

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// sessionLife is how long a session lasts, unless its access token expires earlier.
const sessionLife = 12 * time.Hour

// sessionBatch is how many ended sessions one transaction deletes.
const sessionBatch = 500

// newSession is a session to start.
type newSession struct {
	access.Session
	User         int64  `db:"user_id"` // row ids
	Organization int64  `db:"organization_id"`
	Token        *int64 `db:"token_id"`
	Limit        *int64 `db:"role_id"`
}

// CreateSession starts a session that acts as the access token of p. p must have a token.
func (d *Directory) CreateSession(ctx context.Context, p access.Principal, by access.Actor, c access.Credential) (access.Session, error) {
	return sqlite.Returning(ctx, d.file, workFor(p.Home.RowID), func(t *sqlite.Tx) (access.Session, error) {
		return d.startSession(t, p, by, c, newSession{
			Session: access.Session{Kind: access.TokenSession}, User: p.User.RowID, Organization: p.Home.RowID, Token: &p.Token.RowID,
		})
	})
}

// CreateIdentitySession starts a session of p, which is the PrincipalToSignIn of an identity. If the issuer has named the organization, the
// session may not switch to another.
func (d *Directory) CreateIdentitySession(ctx context.Context, p access.Principal, i access.Identity, by access.Actor, c access.Credential) (access.Session, error) {
	return sqlite.Returning(ctx, d.file, workFor(p.Home.RowID), func(t *sqlite.Tx) (access.Session, error) {
		return d.startSession(t, p, by, c, newSession{
			Session: access.Session{Kind: access.OIDCSession, MaySwitch: i.Organization == ""}, User: p.User.RowID, Organization: p.Home.RowID,
		})
	})
}

// startSession inserts a session of p and audits it.
func (d *Directory) startSession(t *sqlite.Tx, p access.Principal, by access.Actor, c access.Credential, s newSession) (made access.Session, err error) {
	made = s.Session
	made.ID, made.CreatedAt, made.ExpiresAt = publicid.New(access.SessionID), t.Now(), t.Now()+sessionLife.Milliseconds()
	if p.Session != nil {
		made.Role = p.Session.Role
	}
	if p.Token != nil && p.Token.ExpiresAt != nil {
		made.ExpiresAt = min(made.ExpiresAt, *p.Token.ExpiresAt)
	}
	digest := c.Digest()
	if made.RowID, err = t.Insert(`
		INSERT INTO sessions (public_id, kind, user_id, organization_id, may_switch, token_id, role_id, return_url, link_id, digest, created_at, expires_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		made.ID, made.Kind, s.User, s.Organization, made.MaySwitch, s.Token, s.Limit, made.ReturnURL, made.LinkID, digest[:],
		made.CreatedAt, made.ExpiresAt); err != nil {
		return made, err
	}
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
	return d.file.Write(ctx, urgentFor(p.Home.RowID), func(t *sqlite.Tx) error {
		var organizations []int64 // of the session; p may act in another
		if err := t.ExecList(&organizations, "DELETE FROM sessions WHERE public_id = ? RETURNING organization_id", p.Session.ID); err != nil || len(organizations) == 0 {
			return err
		}
		d.OutdatePrincipals(t)
		return d.hooks.Audit(t, by, organizations[0], access.SessionEnded, Target{Type: "session", ID: p.Session.ID}, sessionDetails(p))
	})
}

// DropSessions deletes a batch of the sessions and of the sign-in links that have expired at the time now. It reads before it
// writes: usually there are none. The owner of the file calls it from time to time.
func (d *Directory) DropSessions(ctx context.Context, now int64) error {
	var ended bool
	if err := d.reads.In(ctx).Get(&ended, `
		SELECT EXISTS (SELECT 1 FROM sessions WHERE expires_at <= ?1) OR EXISTS (SELECT 1 FROM sign_in_links WHERE expires_at <= ?1)`,
		now); err != nil || !ended {
		return err
	}
	return d.file.Write(ctx, sqlite.Work{}, func(t *sqlite.Tx) error {
		for _, table := range []string{"sessions", "sign_in_links"} {
			if err := t.Exec("DELETE FROM "+table+" WHERE id IN (SELECT id FROM "+table+" WHERE expires_at <= ? LIMIT ?)", now, sessionBatch); err != nil {
				return err
			}
		}
		return nil
	})
}
