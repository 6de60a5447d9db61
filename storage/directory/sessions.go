package directory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/scan"
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

// CreateSession starts a session that acts as the access token of p. p must have a token. Faults: Limited if the organization has started
// too many today.
func (d *Directory) CreateSession(ctx context.Context, p access.Principal, by access.Actor, c access.Credential) (access.Session, error) {
	return d.signIn(ctx, p, by, c, newSession{Session: access.Session{Kind: access.TokenSession}, Token: &p.Token.RowID})
}

// CreateIdentitySession starts a session of p, which is the PrincipalToSignIn of an identity. If the issuer has named the organization, the
// session may not switch to another. Faults: as of CreateSession.
func (d *Directory) CreateIdentitySession(ctx context.Context, p access.Principal, i access.Identity, by access.Actor, c access.Credential) (access.Session, error) {
	return d.signIn(ctx, p, by, c, newSession{Session: access.Session{Kind: access.OIDCSession, MaySwitch: i.Organization == ""}})
}

// signIn starts a session of the user of p in its organization.
func (d *Directory) signIn(ctx context.Context, p access.Principal, by access.Actor, c access.Credential, s newSession) (access.Session, error) {
	s.User, s.Organization = p.User.RowID, p.Home.RowID
	return sqlite.Returning(ctx, d.file, workFor(s.Organization), func(t *sqlite.Tx) (access.Session, error) {
		if err := d.quotas.RequireChange(t, s.Organization); err != nil {
			return access.Session{}, err
		}
		return d.startSession(t, p, by, c, s)
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
		if err := t.ExecList(&organizations, "DELETE FROM sessions WHERE public_id = ? RETURNING organization_id",
			p.Session.ID); err != nil || len(organizations) == 0 {
			return err
		}
		d.OutdatePrincipals(t)
		return d.hooks.Audit(t, by, organizations[0], access.SessionEnded, Target{Type: "session", ID: p.Session.ID}, sessionDetails(p))
	})
}

// DropSessions deletes the sessions and the sign-in links that have expired at the time now, in batches, for about a second. It reads
// before it writes: usually there are none. The owner of the file calls it from time to time.
func (d *Directory) DropSessions(ctx context.Context, now int64) error {
	return scan.Batches(ctx, time.Second, func() (more bool, err error) {
		if err := d.reads.In(ctx).Get(&more, `
			SELECT EXISTS (SELECT 1 FROM sessions WHERE expires_at <= ?1) OR EXISTS (SELECT 1 FROM sign_in_links WHERE expires_at <= ?1)`,
			now); err != nil || !more {
			return false, err
		}
		return true, d.file.Write(ctx, sqlite.Work{}, func(t *sqlite.Tx) error {
			for _, table := range []string{"sessions", "sign_in_links"} {
				if err := t.Exec("DELETE FROM "+table+" WHERE id IN (SELECT id FROM "+table+" WHERE expires_at <= ? LIMIT ?)", now, sessionBatch); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// maxLinks is how many unused portal links an organization may have. One more replaces the oldest.
const maxLinks = 1_000

// CreatePortalLink creates a link that signs in once to the console of an organization, as its service account limited to a role. It
// creates the service account if there is none. Faults: NotFound for the organization; Invalid if the role is unknown or has
// permissions about the whole instance; Conflict if the organization is closed or its service account is inactive; Forbidden if the
// session would have more permissions than by.
func (d *Directory) CreatePortalLink(ctx context.Context, by access.Actor, organization string, l access.NewPortalLink) (access.SignInLink, error) {
	return sqlite.Returning(ctx, d.file, workFor(by.Organization), func(t *sqlite.Tx) (made access.SignInLink, err error) {
		o, err1 := openOrganization(t, organization)
		role, err2 := portalRole(t, l.Role)
		if err := cmp.Or(err1, err2); err != nil {
			return made, err
		}
		service, err := serviceOwner(t, o.RowID)
		granted := principal.InPortal(principal.Effective(service.Role), role)
		if err := cmp.Or(err, mayGrant(t, by, granted, o.RowID != by.Authority.Home)); err != nil {
			return made, err
		}
		user, err := d.makeOwner(t, by, o.RowID, service)
		if err != nil {
			return made, err
		}
		if err := t.Exec(`
			DELETE FROM sign_in_links WHERE id IN (
				SELECT id FROM sign_in_links WHERE user_id = ? ORDER BY id DESC LIMIT -1 OFFSET ?)`, user, maxLinks-1); err != nil {
			return made, err
		}
		if made, err = insertLink(t, l.Credential, t.Now()+l.Life.Milliseconds(), newSession{
			Session: access.Session{Kind: access.PortalSession, ReturnURL: l.ReturnURL}, User: user, Organization: o.RowID, Limit: &role.RowID,
		}); err != nil {
			return made, err
		}
		return made, d.hooks.Audit(t, by, o.RowID, access.PortalLinkCreated, Target{Type: "portal_link", ID: made.ID}, map[string]any{
			"organization_id": o.ID, "role": role.Name, "expires_at": timeText(&made.ExpiresAt), "return_url": l.ReturnURL,
		})
	})
}

// portalRole returns the role that limits a portal session. Faults: Invalid.
func portalRole(t *sqlite.Tx, name string) (access.Role, error) {
	role, err := roleNamed(t, name)
	if err != nil {
		return role, unknownField(err, "role", "role")
	}
	keys := role.Permissions.Keys()
	if at := slices.IndexFunc(keys, access.IsPlatform); at >= 0 {
		return role, fault.InField("role", "role_not_allowed",
			"This role has the permission %s, which no customer may have; name a role without permissions that begin with platform:.", keys[at])
	}
	return role, nil
}

// insertLink inserts a link that starts a session.
func insertLink(t *sqlite.Tx, c access.Credential, expiresAt int64, s newSession) (access.SignInLink, error) {
	made, digest := access.SignInLink{ID: publicid.New(access.LinkID), ExpiresAt: expiresAt}, c.Digest()
	_, err := t.Insert(`
		INSERT INTO sign_in_links (public_id, kind, user_id, organization_id, token_id, role_id, return_url, digest, created_at, expires_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		made.ID, s.Kind, s.User, s.Organization, s.Token, s.Limit, s.ReturnURL, digest[:], t.Now(), expiresAt)
	return made, err
}

// UseLink starts the session of a link, and deletes the link. p is its PrincipalByLink. Faults: Unauthenticated with the code
// invalid_key if the link was used meanwhile.
func (d *Directory) UseLink(ctx context.Context, p access.Principal, by access.Actor, link, cookie access.Credential) (access.Session, error) {
	digest := link.Digest()
	return sqlite.Returning(ctx, d.file, workFor(p.Home.RowID), func(t *sqlite.Tx) (made access.Session, err error) {
		found, err := sqlite.One[newSession](t, "link", `
			SELECT kind, user_id, organization_id, token_id, role_id, return_url, public_id AS link_id
			FROM sign_in_links WHERE digest = ? AND expires_at > ?`, digest[:], t.Now())
		if fault.KindOf(err) == fault.NotFound {
			return made, principal.InvalidLink()
		} else if err != nil {
			return made, err
		}
		if err := t.Exec("DELETE FROM sign_in_links WHERE digest = ?", digest[:]); err != nil {
			return made, err
		}
		return d.startSession(t, p, by, cookie, found)
	})
}
