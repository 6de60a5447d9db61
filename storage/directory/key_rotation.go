package directory

import (
	"cmp"
	"context"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// RotateKey replaces an API key of the organization in which by acts. The new key has the name, the rate window, the expiry
// and the metadata of the old key, and takes over its external id. The old key is revoked; with a grace, it expires after the grace at the latest.
//
// The new key belongs to by's user, even if the old key had another creator, because a key acts as its creator. But a key of the
// service account stays one; see ownerAfter. The new
// scope is the old scope, narrowed to the permissions of that user's role and of by's credential. So a rotation never grants
// more than a creation by the same caller, and a key that rotates itself keeps its scope.
//
// A key can be rotated once; then rotate its successor. Otherwise one key would become two. Faults: NotFound; Conflict if the
// key was rotated, is revoked or has expired, or if the user is not a member; Forbidden if the plan lacks API keys; Invalid if
// nothing of the scope can be granted; Unauthenticated if by's own credential was refused meanwhile.
func (d *Directory) RotateKey(ctx context.Context, by access.Principal, actor access.Actor, id string, credential access.Credential, grace time.Duration) (access.RotatedKey, error) {
	w := d.audited(urgentFor(by.Organization.RowID), access.KeyRotated)
	w.Reserve = false // it makes a key, too, and can be repeated without end
	return sqlite.Returning(ctx, d.file, w, func(t *sqlite.Tx) (rotated access.RotatedKey, err error) {
		old, err := keyNamed(t, by.Organization.RowID, id)
		if err != nil {
			return rotated, err
		}
		owner, err := ownerAfter(t, by, old)
		if err != nil {
			return rotated, err
		}
		held, err := grantableBy(t, by, owner)
		if err := cmp.Or(err, rotatable(old, t.Now()), requireRoomForGrace(t, by.Organization.RowID, grace)); err != nil {
			return rotated, err
		}
		granted, err := intersect(old.Scope, held)
		if err != nil {
			return rotated, err
		}
		rotated.NotGranted = old.Scope.Minus(granted)
		if rotated.Key, err = d.addKey(t, by, actor, owner, old.Again(credential), granted, predecessor{&old.RowID, &old.Window}); err != nil {
			return rotated, err
		}
		if err := endKey(t, old, grace); err != nil {
			return rotated, err
		}
		d.OutdatePrincipals(t)
		details := map[string]any{
			"name": old.Name, "new_key_id": rotated.ID, "grace_seconds": int64(grace / time.Second),
			"scope": granted.String(), "scope_not_granted": rotated.NotGranted.String(), "expires_at": timeText(rotated.ExpiresAt),
		}
		nameOwner(details, by, rotated.Key)
		return rotated, d.hooks.Audit(t, actor, by.Organization.RowID, access.KeyRotated, Target{Type: "api_key", ID: id}, details)
	})
}

func rotatable(k access.Key, now int64) error {
	if k.RotatedTo != nil {
		refused := fault.New(fault.Conflict, "already_rotated", "This API key has been rotated into %s; rotate that one.", *k.RotatedTo)
		refused.Existing = *k.RotatedTo
		return refused
	}
	switch k.Status(now) {
	case access.Revoked:
		return fault.New(fault.Conflict, "key_not_active", "This API key has been revoked; create a new one.")
	case access.Expired:
		return fault.New(fault.Conflict, "key_not_active", "This API key has expired; create a new one.")
	}
	return nil
}

// endKey revokes a key; with a grace, the key expires after the grace, or earlier if it would have.
func endKey(t *sqlite.Tx, k access.Key, grace time.Duration) error {
	if grace <= 0 {
		return t.Exec("UPDATE api_keys SET revoked_at = ? WHERE id = ?", t.Now(), k.RowID)
	}
	return t.Exec("UPDATE api_keys SET expires_at = min(?1, coalesce(expires_at, ?1)) WHERE id = ?2", t.Now()+grace.Milliseconds(), k.RowID)
}
