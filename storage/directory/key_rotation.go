package directory

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// RotateKey puts a new API key in the place of another one of the organization that by acts in: with its name, its rate
// window and its end. The other one is revoked by this or, where there is a grace, ends after it at the latest.
//
// The new key belongs to by's user, not to whom the other one belonged: whoever reads a key acts as its creator, and
// nobody may lend the name of somebody else. Its scope is the other's, narrowed to what that user's role grants and
// by's credential holds at this moment. So a rotation never hands out more than a creation by the
// same caller would, and a key that rotates itself keeps what it could do.
//
// A key is rotated once. From then on the new one is the one to rotate: two successors of a key would be two keys where
// there was one. Faults: NotFound; Conflict where the key has been rotated, is revoked or has expired, or where the user
// is no member; Forbidden where the plan lacks API keys; Invalid where nothing of the scope can be granted;
// Unauthenticated where by's own credential has been refused meanwhile.
func (d *Directory) RotateKey(ctx context.Context, by access.Principal, actor access.Actor, id string, credential access.Credential, grace time.Duration) (access.RotatedKey, error) {
	return returning(ctx, d, urgentFor(by.Organization.RowID), func(t *sqlite.Tx) (rotated access.RotatedKey, err error) {
		var old access.Key
		if err := t.Get(&old, selectKeys+" WHERE k.public_id = ? AND k.organization_id = ?", id, by.Organization.RowID); err != nil {
			return rotated, sqlite.Missing(err, "API key")
		}
		held, err := grantableBy(t, by)
		if err != nil {
			return rotated, err
		}
		if err := rotatable(old, t.Now()); err != nil {
			return rotated, err
		}
		if grace > 0 {
			if err := requireRoomForGrace(t, by.Organization.RowID); err != nil {
				return rotated, err
			}
		}
		if err := d.hooks.RequireStorage(t, by.Organization.RowID); err != nil {
			return rotated, err
		}
		granted, err := intersect(old.Scope, held)
		if err != nil {
			return rotated, err
		}
		rotated.NotGranted = old.Scope.Minus(granted)
		wanted := access.NewKey{Credential: credential, Name: old.Name, ExpiresAt: old.ExpiresAt}
		row, err := insertKey(t, by, wanted, granted, ancestry{&old.RowID, &old.Window})
		if err != nil {
			return rotated, err
		}
		if err := retire(t, old, grace); err != nil {
			return rotated, err
		}
		d.outdatePrincipals(t)
		if err := t.Get(&rotated.Key, selectKeys+" WHERE k.id = ?", row); err != nil {
			return rotated, err
		}
		return rotated, d.hooks.Audit(t, actor, by.Organization.RowID, access.KeyRotated, Target{Type: "api_key", ID: id}, map[string]any{
			"name": old.Name, "new_key_id": rotated.ID, "grace_seconds": int64(grace / time.Second),
			"scope": granted.String(), "scope_not_granted": rotated.NotGranted.String(), "expires_at": timeText(rotated.ExpiresAt),
		})
	})
}

// rotatable refuses a key that has a successor, or that has ended.
func rotatable(k access.Key, now int64) error {
	if k.RotatedTo != nil {
		return fault.New(fault.Conflict, "already_rotated", "This API key has been rotated into %s; rotate that one.", *k.RotatedTo)
	}
	switch k.Status(now) {
	case access.Revoked:
		return fault.New(fault.Conflict, "key_not_active", "This API key has been revoked; create a new one.")
	case access.Expired:
		return fault.New(fault.Conflict, "key_not_active", "This API key has expired; create a new one.")
	}
	return nil
}

// retire ends a key: now, or after the grace where it does not end before.
func retire(t *sqlite.Tx, k access.Key, grace time.Duration) error {
	if grace <= 0 {
		_, err := t.Exec("UPDATE api_keys SET revoked_at = ? WHERE id = ?", t.Now(), k.RowID)
		return err
	}
	_, err := t.Exec("UPDATE api_keys SET expires_at = min(?1, coalesce(expires_at, ?1)) WHERE id = ?2", t.Now()+grace.Milliseconds(), k.RowID)
	return err
}
