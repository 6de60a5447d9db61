package storage

import (
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

const selectTokens = `
	SELECT a.id, a.public_id, u.public_id AS user_public_id, o.public_id AS organization_public_id, a.name, a.token_prefix,
	       a.created_at, a.expires_at, a.last_used_at, a.revoked_at
	FROM access_tokens a JOIN users u ON u.id = a.user_id JOIN organizations o ON o.id = a.organization_id`

// Tokens lists the access tokens of a user, newest first, whatever their status. Faults: NotFound.
func (s *Store) Tokens(ctx context.Context, user string, before int64, limit int) ([]access.AccessToken, error) {
	u, err := s.User(ctx, user)
	if err != nil {
		return nil, err
	}
	tokens := []access.AccessToken{}
	err = s.list(ctx, &tokens, selectTokens+" WHERE a.user_id = ? AND a.id < ? ORDER BY a.id DESC LIMIT ?", u.RowID, from(before), limit)
	return tokens, err
}

// Token returns an access token of a user. Faults: NotFound.
func (s *Store) Token(ctx context.Context, user, id string) (access.AccessToken, error) {
	var a access.AccessToken
	err := s.get(ctx, &a, selectTokens+" WHERE a.public_id = ? AND u.public_id = ?", id, user)
	return a, missing(err, "access token")
}

// CreateToken keeps an access token of a user for an organization. A nil expiresAt means that it does not expire.
// Faults: NotFound for the user, Invalid where the organization is unknown, Conflict where the user is no member of it.
func (s *Store) CreateToken(ctx context.Context, by access.Actor, user, organization string, c access.Credential, name string, expiresAt *int64) (access.AccessToken, error) {
	return returning(ctx, s.of(by.Organization), func(t *tx) (made access.AccessToken, err error) {
		u, err := userRow(t, user)
		if err != nil {
			return made, err
		}
		o, err := organizationRow(t, organization)
		if err != nil {
			return made, unknown(err, "organization_id", "organization")
		}
		if err := refuseIf(t, notMember("The user"),
			"SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM memberships WHERE organization_id = ? AND user_id = ?)", o, u); err != nil {
			return made, err
		}
		row, err := insertToken(t, u, o, c, name, expiresAt)
		if err != nil {
			return made, err
		}
		if err := t.get(&made, selectTokens+" WHERE a.id = ?", row); err != nil {
			return made, err
		}
		return made, s.audit(t, by, o, access.AccessTokenCreated, target{Type: "access_token", ID: made.ID}, map[string]any{
			"user_id": user, "name": name, "expires_at": timeText(expiresAt),
		})
	})
}

// notMember says that somebody belongs to the organization only once an operator has seen to it.
func notMember(who string) error {
	return fault.New(fault.Conflict, "not_a_member", "%s is not a member of the organization; "+
		"an operator can change that with PUT /api/v1/organizations/{id}/members/{user_id}/.", who)
}

// RevokeToken revokes an access token, for all requests that begin after it has returned. Doing so again changes
// nothing. Faults: NotFound.
func (s *Store) RevokeToken(ctx context.Context, by access.Actor, user, id string) error {
	return s.of(by.Organization).first().change(ctx, func(t *tx) error {
		var found struct {
			Row          int64  `db:"id"`
			Organization int64  `db:"organization_id"`
			Name         string `db:"name"`
			Revoked      bool   `db:"revoked"`
		}
		if err := t.get(&found, `
			SELECT a.id, a.organization_id, a.name, a.revoked_at IS NOT NULL AS revoked
			FROM access_tokens a JOIN users u ON u.id = a.user_id
			WHERE a.public_id = ? AND u.public_id = ?`, id, user); err != nil {
			return missing(err, "access token")
		}
		if found.Revoked {
			return nil
		}
		if _, err := t.exec("UPDATE access_tokens SET revoked_at = ? WHERE id = ?", t.now, found.Row); err != nil {
			return err
		}
		s.outdatePrincipals(t)
		return s.audit(t, by, found.Organization, access.AccessTokenRevoked, target{Type: "access_token", ID: id},
			map[string]any{"user_id": user, "name": found.Name})
	})
}

func insertToken(t *tx, user, organization int64, c access.Credential, name string, expiresAt *int64) (int64, error) {
	digest := c.Digest()
	return t.insert(`
		INSERT INTO access_tokens (public_id, user_id, organization_id, name, digest, token_prefix, created_at, expires_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`, newID(tokenID), user, organization, name, digest[:], c.Display(), t.now, expiresAt)
}
