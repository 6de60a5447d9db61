package directory

import (
	"context"
	"slices"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
)

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
