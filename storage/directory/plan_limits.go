package directory

import (
	"cmp"
	"context"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// The counts are read in the transaction that adds a key, so parallel requests cannot pass a limit.
const (
	countKeys = `
		SELECT (SELECT count(*) FROM api_keys INDEXED BY api_keys_live
		        WHERE organization_id = ?1 AND revoked_at IS NULL AND expires_at IS NULL)
		     + (SELECT count(*) FROM api_keys INDEXED BY api_keys_live
		        WHERE organization_id = ?1 AND revoked_at IS NULL AND expires_at > ?2)`
	// A rotated key always has an expiry, because its grace ends.
	countRotated = `
		SELECT count(*) FROM api_keys k INDEXED BY api_keys_live
		WHERE k.organization_id = ?1 AND k.revoked_at IS NULL AND k.expires_at > ?2
		  AND EXISTS (SELECT 1 FROM api_keys successor WHERE successor.replaces = k.id)`
)

// requireRoomForKey refuses one API key more than the plan allows. Revoked and expired keys do not count. Rotated keys in their
// grace do not count either, so that an organization at its limit can rotate. Faults: Conflict.
func requireRoomForKey(t *sqlite.Tx, organization int64) error {
	plan, err := PlanOf(t, organization)
	var have, rotated int64
	if err := cmp.Or(err, t.Get(&have, countKeys, organization, t.Now())); err != nil || plan.CheckKeys(have) == nil {
		return err
	}
	if err := t.Get(&rotated, countRotated, organization, t.Now()); err != nil {
		return err
	}
	return plan.CheckKeys(have - rotated)
}

// LiveKeys counts the API keys of an organization that count against its plan at the time now.
func (d *Directory) LiveKeys(ctx context.Context, organization, now int64) (n int64, err error) {
	err = d.reads.In(ctx).Get(&n, "SELECT ("+countKeys+") - ("+countRotated+")", organization, now)
	return n, err
}

// leastRotated is how many rotated API keys may be in their grace under any plan.
const leastRotated = 10

// requireRoomForGrace refuses a grace for one more rotated key. As many rotated keys may be in their grace as the plan allows
// keys, or as the organization has other keys. So rotation at most doubles the number of keys. Faults: Conflict.
func requireRoomForGrace(t *sqlite.Tx, organization int64, grace time.Duration) error {
	if grace <= 0 {
		return nil
	}
	plan, err := PlanOf(t, organization)
	if err != nil {
		return err
	}
	most := int64(access.MostAPIKeys)
	if plan.MaxAPIKeys != nil {
		most = max(*plan.MaxAPIKeys, leastRotated)
	}
	var have, rotated int64
	if err := t.Get(&have, countKeys, organization, t.Now()); err != nil || have <= most {
		return err // the key to be rotated is one of them, so fewer than most are rotated
	}
	if err := t.Get(&rotated, countRotated, organization, t.Now()); err != nil || rotated < max(most, have-rotated) {
		return err
	}
	return fault.New(fault.Conflict, "limit_reached",
		"The organization has %d rotated API keys that still have their grace, and the plan %q (max_api_keys) allows no more of them. "+
			"Rotate with grace_seconds 0, or revoke rotated keys that are no longer used.", rotated, plan.Name)
}

// PlanOf returns the plan of an organization. Faults: NotFound for the organization.
func PlanOf(t *sqlite.Tx, organization int64) (access.Plan, error) {
	return sqlite.One[access.Plan](t, "organization",
		"SELECT "+planColumns+" FROM plans WHERE id = (SELECT plan_id FROM organizations WHERE id = ?)", organization)
}
