package directory

import (
	"context"
	"slices"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/scan"
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

// expiringBatch is how many credentials that end soon are read at a time.
const expiringBatch = 100

// AnnounceExpiry writes an audit event for each API key and access token that ends within one of the notices after now, in milliseconds.
// A key that was rotated ends with its grace, which needs no announcement.
// There is one event for each credential and notice, also over restarts. A notice that a clock has given which was ahead is given again.
// A notice that had begun when the credential was created does not count. When several begin while no process runs, the last of them counts.
func (d *Directory) AnnounceExpiry(ctx context.Context, now int64, notices []time.Duration) error {
	for _, notice := range slices.Sorted(slices.Values(notices)) { // the shortest first, so that a longer one is not told after it
		for _, kind := range []credentialKind{apiKeys, accessTokens} {
			if err := scan.Batches(ctx, 0, func() (more bool, err error) {
				var found []issued
				err = d.reads.In(ctx).List(&found, `
					SELECT c.id, c.organization_id, c.expires_at
					FROM `+kind.table+" c INDEXED BY "+kind.table+"_by_expiry"+`
					WHERE c.revoked_at IS NULL AND c.expires_at > ?1 AND c.expires_at <= ?1 + ?2 AND c.created_at < c.expires_at - ?2
					  AND (coalesce(c.expiry_notice, ?2 + 1) > ?2 OR c.noticed_at > ?1)`+kind.unlessRotated+`
					ORDER BY c.expires_at, c.id LIMIT ?3`, now, notice.Milliseconds(), expiringBatch)
				for _, c := range found {
					if err == nil {
						err = d.announce(ctx, c, now, notice.Milliseconds(), kind)
					}
				}
				return len(found) == expiringBatch, err
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// announce writes the audit event of one credential, unless its end has changed meanwhile.
func (d *Directory) announce(ctx context.Context, c issued, now, notice int64, kind credentialKind) error {
	return d.file.Write(ctx, d.audited(workFor(c.Organization), kind.expiring), func(t *sqlite.Tx) error {
		var told []issued
		if err := t.ExecList(&told, "UPDATE "+kind.table+` SET expiry_notice = ?1, noticed_at = ?4 WHERE id = ?2 AND expires_at = ?3 AND revoked_at IS NULL
			RETURNING public_id, name, last_used_at, (SELECT u.public_id FROM users u WHERE u.id = user_id) AS user_public_id`, notice, c.RowID, c.ExpiresAt, now); err != nil || len(told) == 0 {
			return err
		}
		details := map[string]any{"name": told[0].Name, "expires_at": timeText(c.ExpiresAt), "last_used_at": timeText(told[0].LastUsedAt)}
		if kind == accessTokens {
			details["user_id"] = told[0].User // so that the erasure of the user finds the name
		}
		return d.hooks.Audit(t, access.System(c.Organization), c.Organization, kind.expiring, Target{Type: kind.target, ID: told[0].ID}, details)
	})
}
