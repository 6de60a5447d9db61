package directory

import (
	"cmp"
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
)

const selectTokens = `
	SELECT a.id, a.public_id, u.public_id AS user_public_id, a.organization_id, o.public_id AS organization_public_id,
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
	return tokenNamed(d.reads.In(ctx), user, id)
}

func tokenNamed(from sqlite.Reader, user, id string) (access.AccessToken, error) {
	return sqlite.One[access.AccessToken](from, "access token", selectTokens+`
		WHERE a.public_id = ? AND a.user_id = (SELECT id FROM users`+publicid.WhereNamed(access.UserID, user)+")", id, user)
}

// CreateToken creates an access token of a user for an organization. With a nil expiresAt it does not expire. Faults: NotFound
// for the user; Invalid if the organization is unknown, and for a service account; Conflict if the user is not a member of it; Forbidden if the token
// would have more permissions than by.
func (d *Directory) CreateToken(ctx context.Context, by access.Actor, user, organization string, c access.Credential, name string, expiresAt *int64) (access.AccessToken, error) {
	return sqlite.Returning(ctx, d.file, workFor(by.Organization), func(t *sqlite.Tx) (made access.AccessToken, err error) {
		holder, err1 := changeableUser(t, user)
		in, err2 := openOrganization(t, organization)
		if err := cmp.Or(err1, maySignIn(holder), unknownField(err2, "organization_id", "organization")); err != nil {
			return made, err
		}
		granted, err := grantedTo(t, holder.RowID, in.RowID)
		if err := cmp.Or(err, mayGrant(t, by, granted, in.RowID != by.Authority.Home)); err != nil {
			return made, err
		}
		return d.makeToken(t, by, holder.RowID, in.RowID, c, name, expiresAt)
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

// RevokeToken revokes an access token for all requests that begin after RevokeToken has returned. The operation is
// idempotent. Faults: NotFound.
func (d *Directory) RevokeToken(ctx context.Context, by access.Actor, user, id string) error {
	return d.file.Write(ctx, urgentFor(by.Organization), func(t *sqlite.Tx) error {
		found, err := tokenNamed(t, user, id)
		if err != nil {
			return err
		}
		return d.revoke(t, by, accessTokens, issued{Issued: found.Issued, User: found.UserID}, map[string]any{})
	})
}
