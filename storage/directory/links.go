package directory

import (
	"cmp"
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/sqlite"
)

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
	for _, key := range role.Permissions.Keys() {
		if access.IsPlatform(key) {
			return role, fault.InField("role", "role_not_allowed",
				"This role has the permission %s, which no customer may have; name a role without permissions that begin with platform:.", key)
		}
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
