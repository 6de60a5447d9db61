package directory

import (
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// credentialKind is a kind of issued credentials: its table, the type of the target of its audit events, and their types.
type credentialKind struct {
	table, target, revoked, expiring string
	unlessRotated                    string // a condition for a credential c
}

var (
	apiKeys = credentialKind{
		"api_keys", "api_key", access.KeyRevoked, access.KeyExpiring, " AND NOT EXISTS (SELECT 1 FROM api_keys n WHERE n.replaces = c.id)",
	}
	accessTokens = credentialKind{"access_tokens", "access_token", access.AccessTokenRevoked, access.AccessTokenExpiring, ""}
)

type issued struct {
	access.Issued
	User  string `db:"user_public_id"`
	IsKey bool   `db:"is_key"`
}

// revoke revokes a credential unless it is revoked already, deletes the links to it, and audits it with these details, its name and
// the user of an access token.
func (d *Directory) revoke(t *sqlite.Tx, by access.Actor, kind credentialKind, c issued, details map[string]any) error {
	n, err := t.Affected("UPDATE "+kind.table+" SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", t.Now(), c.RowID)
	if err != nil || n == 0 {
		return err
	}
	if kind == accessTokens {
		if err := t.Exec("DELETE FROM sign_in_links WHERE token_id = ?", c.RowID); err != nil {
			return err
		}
		details["user_id"] = c.User
	}
	d.OutdatePrincipals(t)
	details["name"] = c.Name
	return d.hooks.Audit(t, by, c.Organization, kind.revoked, Target{Type: kind.target, ID: c.ID}, details)
}

const selectLeaked = `
	SELECT 1 AS is_key, id, public_id, organization_id, name, '' AS user_public_id FROM api_keys WHERE digest = ?1 AND revoked_at IS NULL
	UNION ALL SELECT 0, a.id, a.public_id, a.organization_id, a.name, u.public_id
	FROM access_tokens a JOIN users u ON u.id = a.user_id WHERE a.digest = ?1 AND a.revoked_at IS NULL`

// RevokeLeaked revokes the API key or the access token with a digest, because whoever holds it reports it as leaked. It does nothing
// if there is none, or if it is revoked already. The credential is refused for all requests that begin after RevokeLeaked has returned.
// An alert tells the operator, and the audit log has the client, and the reason that tells such a revocation from others.
func (d *Directory) RevokeLeaked(ctx context.Context, digest access.Digest, ip, requestID string) error {
	// Anybody may ask, so only a credential that exists takes the time of the writer.
	found, err := sqlite.One[issued](d.reads.In(ctx), "credential", selectLeaked, digest[:])
	if fault.KindOf(err) == fault.NotFound {
		return nil
	} else if err != nil {
		return err
	}
	kind, by := accessTokens, access.System(found.Organization)
	if found.IsKey {
		kind = apiKeys
	}
	by.IP, by.RequestID = ip, requestID
	return d.file.Write(ctx, d.audited(urgentFor(found.Organization), kind.revoked), func(t *sqlite.Tx) error {
		if err := t.Exec("UPDATE "+kind.table+" SET leaked_at = ? WHERE id = ? AND revoked_at IS NULL", t.Now(), found.RowID); err != nil {
			return err
		}
		return d.revoke(t, by, kind, found, map[string]any{"reason": "leaked"})
	})
}
