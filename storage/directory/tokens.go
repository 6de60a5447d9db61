package directory

import (
	"context"
	"database/sql"
	"errors"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
)

const selectTokens = `
	SELECT a.id, a.public_id, u.public_id AS user_public_id, o.public_id AS organization_public_id,
	       o.external_id AS organization_external_id, a.name, a.token_prefix,
	       a.created_at, a.expires_at, a.last_used_at, a.revoked_at
	FROM access_tokens a JOIN users u ON u.id = a.user_id JOIN organizations o ON o.id = a.organization_id`

// Tokens lists the access tokens of a user, newest first, in any status. Faults: NotFound.
func (d *Directory) Tokens(ctx context.Context, user string, before int64, limit int) ([]access.AccessToken, error) {
	u, err := d.User(ctx, user)
	if err != nil {
		return nil, err
	}
	return sqlite.All[access.AccessToken](d.reads.In(ctx),
		selectTokens+" WHERE a.user_id = ? AND a.id < ? ORDER BY a.id DESC LIMIT ?", u.RowID, scan.UpperBound(before), limit)
}

// Token returns an access token of a user. Faults: NotFound.
func (d *Directory) Token(ctx context.Context, user, id string) (access.AccessToken, error) {
	return sqlite.One[access.AccessToken](d.reads.In(ctx), "access token",
		selectTokens+" WHERE a.public_id = ? AND a.user_id = "+rowOfUser(user), id, user)
}

// rowOfUser is the row id of the user with an id or an external id, in a statement about something else.
func rowOfUser(id string) string {
	return "(SELECT id FROM users" + publicid.WhereNamed(access.UserID, id) + ")"
}

// CreateToken creates an access token of a user for an organization. With a nil expiresAt it does not expire. Faults: NotFound
// for the user; Invalid if the organization is unknown, and for a service account; Conflict if the user is not a member of it; Forbidden if the token
// would have more permissions than by.
func (d *Directory) CreateToken(ctx context.Context, by access.Actor, user, organization string, c access.Credential, name string, expiresAt *int64) (access.AccessToken, error) {
	return sqlite.Returning(ctx, d.file, workFor(by.Organization), func(t *sqlite.Tx) (made access.AccessToken, err error) {
		holder, err := changeableUser(t, user)
		if err != nil {
			return made, err
		}
		if err := maySignIn(holder); err != nil {
			return made, err
		}
		in, err := openOrganization(t, organization)
		if err != nil {
			return made, unknownField(err, "organization_id", "organization")
		}
		o, u := in.RowID, holder.RowID
		granted, err := grantedTo(t, u, o)
		if errors.Is(err, sql.ErrNoRows) {
			return made, notMember("The user")
		}
		if err != nil {
			return made, err
		}
		if err := mayGrant(t, by, granted, o != by.Authority.Home); err != nil {
			return made, err
		}
		return d.makeToken(t, by, u, o, c, name, expiresAt)
	})
}

// makeToken creates an access token by the row ids of the user and the organization, and audits it.
func (d *Directory) makeToken(t *sqlite.Tx, by access.Actor, user, organization int64, c access.Credential, name string, expiresAt *int64) (made access.AccessToken, err error) {
	digest := c.Digest()
	row, err := t.Insert(`
		INSERT INTO access_tokens (public_id, user_id, organization_id, name, digest, token_prefix, created_at, expires_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`, publicid.New(access.TokenID), user, organization, name, digest[:], c.Display(), t.Now(), expiresAt)
	if err != nil {
		return made, err
	}
	if err := t.Get(&made, selectTokens+" WHERE a.id = ?", row); err != nil {
		return made, err
	}
	return made, d.hooks.Audit(t, by, organization, access.AccessTokenCreated, Target{Type: "access_token", ID: made.ID}, map[string]any{
		"user_id": made.UserID, "name": name, "expires_at": timeText(expiresAt),
	})
}

// notMember refuses a user who is not a member of the organization.
func notMember(who string) error {
	return fault.New(fault.Conflict, "not_a_member", "%s is not a member of the organization.", who)
}

// tokenToRevoke is the part of an access token that its revocation needs.
type tokenToRevoke struct {
	Row          int64  `db:"id"`
	ID           string `db:"public_id"`
	User         string `db:"user_public_id"`
	Organization int64  `db:"organization_id"`
	Name         string `db:"name"`
	Revoked      bool   `db:"revoked"`
}

const selectTokenToRevoke = `
	SELECT a.id, a.public_id, u.public_id AS user_public_id, a.organization_id, a.name, a.revoked_at IS NOT NULL AS revoked
	FROM access_tokens a JOIN users u ON u.id = a.user_id`

// RevokeToken revokes an access token for all requests that begin after RevokeToken has returned. The operation is
// idempotent. Faults: NotFound.
func (d *Directory) RevokeToken(ctx context.Context, by access.Actor, user, id string) error {
	return d.file.Write(ctx, urgentFor(by.Organization), func(t *sqlite.Tx) error {
		found, err := sqlite.One[tokenToRevoke](t, "access token",
			selectTokenToRevoke+" WHERE a.public_id = ? AND a.user_id = "+rowOfUser(user), id, user)
		if err != nil || found.Revoked {
			return err
		}
		return d.revokeToken(t, by, found, map[string]any{})
	})
}

// revokeToken revokes an access token that is not revoked yet, deletes the links to it, and audits it with these details,
// its name and its user.
func (d *Directory) revokeToken(t *sqlite.Tx, by access.Actor, token tokenToRevoke, details map[string]any) error {
	if err := t.Exec("UPDATE access_tokens SET revoked_at = ? WHERE id = ?", t.Now(), token.Row); err != nil {
		return err
	}
	if err := t.Exec("DELETE FROM sign_in_links WHERE token_id = ?", token.Row); err != nil {
		return err
	}
	d.OutdatePrincipals(t)
	details["user_id"], details["name"] = token.User, token.Name
	return d.hooks.Audit(t, by, token.Organization, access.AccessTokenRevoked, Target{Type: "access_token", ID: token.ID}, details)
}
