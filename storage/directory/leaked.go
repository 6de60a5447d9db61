package directory

import (
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

type leaked struct {
	IsKey        bool   `db:"is_key"`
	Row          int64  `db:"id"`
	ID           string `db:"public_id"`
	Organization int64  `db:"organization_id"`
}

const selectLeaked = `
	SELECT 1 AS is_key, id, public_id, organization_id FROM api_keys WHERE digest = ?1 AND revoked_at IS NULL
	UNION ALL SELECT 0, id, public_id, organization_id FROM access_tokens WHERE digest = ?1 AND revoked_at IS NULL`

// RevokeLeaked revokes the API key or the access token with a digest, because whoever holds it reports it as leaked. It does nothing
// if there is none, or if it is revoked already. The credential is refused for all requests that begin after RevokeLeaked has returned.
// An alert tells the operator, and the audit log has the client.
func (d *Directory) RevokeLeaked(ctx context.Context, digest access.Digest, ip, requestID string) error {
	// Anybody may ask, so only a credential that exists takes the time of the writer.
	found, err := sqlite.One[leaked](d.reads.In(ctx), "credential", selectLeaked, digest[:])
	if fault.KindOf(err) == fault.NotFound {
		return nil
	} else if err != nil {
		return err
	}
	w, by := urgentFor(found.Organization), access.System(found.Organization)
	by.IP, by.RequestID = ip, requestID
	if found.IsKey {
		return d.file.Write(ctx, d.audited(w, access.KeyRevoked), func(t *sqlite.Tx) error {
			if err := t.Exec("UPDATE api_keys SET leaked_at = ? WHERE id = ? AND revoked_at IS NULL", t.Now(), found.Row); err != nil {
				return err
			}
			return d.revokeKey(t, by, found.Organization, found.ID, leakedDetails())
		})
	}
	return d.file.Write(ctx, d.audited(w, access.AccessTokenRevoked), func(t *sqlite.Tx) error {
		token, err := sqlite.One[tokenToRevoke](t, "access token", selectTokenToRevoke+" WHERE a.id = ?", found.Row)
		if err != nil || token.Revoked {
			return err
		}
		if err := t.Exec("UPDATE access_tokens SET leaked_at = ? WHERE id = ?", t.Now(), found.Row); err != nil {
			return err
		}
		return d.revokeToken(t, by, token, leakedDetails())
	})
}

// leakedDetails are the details with which the audit log tells such a revocation from others.
func leakedDetails() map[string]any { return map[string]any{"reason": "leaked"} }
