package storage

import (
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// The counts stand in the transaction that adds one more, so no number of parallel requests passes a limit.
const (
	countSubscriptions = `
		SELECT count(*) FROM subscriptions INDEXED BY subscriptions_live WHERE organization_id = ? AND deleted_at IS NULL`
	countKeys = `
		SELECT (SELECT count(*) FROM api_keys INDEXED BY api_keys_live
		        WHERE organization_id = ?1 AND revoked_at IS NULL AND expires_at IS NULL)
		     + (SELECT count(*) FROM api_keys INDEXED BY api_keys_live
		        WHERE organization_id = ?1 AND revoked_at IS NULL AND expires_at > ?2)`
	// A rotated key has an end, because its grace has one.
	countRotated = `
		SELECT count(*) FROM api_keys k INDEXED BY api_keys_live
		WHERE k.organization_id = ?1 AND k.revoked_at IS NULL AND k.expires_at > ?2
		  AND EXISTS (SELECT 1 FROM api_keys successor WHERE successor.replaces = k.id)`
)

// requireRoomForSubscription refuses one subscription more than the plan allows. Removed ones do not count. Faults:
// Conflict.
func requireRoomForSubscription(t *tx, organization int64) error {
	plan, err := planOf(t, organization)
	if err != nil {
		return err
	}
	var count int64
	if err := t.Get(&count, countSubscriptions, organization); err != nil {
		return err
	}
	limit := planLimit{plan.Name, "max_subscriptions", "subscriptions", "Delete", plan.MaxSubscriptions, access.MostSubscriptions}
	return limit.check(count)
}

// requireRoomForKey refuses one API key more than the plan allows. Keys that are revoked or expired do not count. Nor do
// those that were rotated and still have their grace, so that an organization at its limit can rotate and go on. Faults:
// Conflict.
func requireRoomForKey(t *tx, organization int64) error {
	plan, err := planOf(t, organization)
	if err != nil {
		return err
	}
	limit := planLimit{plan.Name, "max_api_keys", "live API keys", "Revoke", plan.MaxAPIKeys, access.MostAPIKeys}
	var count, rotated int64
	if err := t.Get(&count, countKeys, organization, t.Now()); err != nil || limit.check(count) == nil {
		return err
	}
	if err := t.Get(&rotated, countRotated, organization, t.Now()); err != nil {
		return err
	}
	return limit.check(count - rotated)
}

// minRotatedLimit is how many rotated API keys any organization may keep alive at a time.
const minRotatedLimit = 10

// requireRoomForGrace refuses to keep one more rotated key alive where as many have their grace as the plan allows keys,
// or as the organization has keys beside them. So rotation makes at most twice as many keys as were created. Faults:
// Conflict.
func requireRoomForGrace(t *tx, organization int64) error {
	plan, err := planOf(t, organization)
	if err != nil {
		return err
	}
	limit := int64(access.MostAPIKeys)
	if plan.MaxAPIKeys != nil {
		limit = max(*plan.MaxAPIKeys, minRotatedLimit)
	}
	var count, rotated int64
	if err := t.Get(&count, countKeys, organization, t.Now()); err != nil || count <= limit {
		return err // the key to be rotated is one of them, so fewer than most are rotated
	}
	if err := t.Get(&rotated, countRotated, organization, t.Now()); err != nil || rotated < max(limit, count-rotated) {
		return err
	}
	return fault.New(fault.Conflict, "limit_reached",
		"The organization has %d rotated API keys that still have their grace, and the plan %q (max_api_keys) allows no more of them. "+
			"Rotate with grace_seconds 0, or revoke rotated keys that are no longer used.", rotated, plan.Name)
}

// planLimit is how many of a sort a plan allows.
type planLimit struct {
	plan, field, noun, remove string
	limit                     *int64 // nil is most
	max                       int64
}

// check refuses one more than allowed where there are so many.
func (b planLimit) check(count int64) error {
	switch {
	case b.limit != nil && count >= *b.limit:
		return fault.New(fault.Conflict, "limit_reached",
			"The plan %q allows %d %s (%s), and the organization has %d. %sAsk an operator for a higher %s (at most %d) or another plan.",
			b.plan, *b.limit, b.noun, b.field, count, b.advice(count), b.field, b.max)
	case count >= b.max:
		return fault.New(fault.Conflict, "limit_reached",
			"The plan %q sets no %s, so the limit is %d %s, which no plan can raise, and the organization has %d. %s some that are no longer used.",
			b.plan, b.field, b.max, b.noun, count, b.remove)
	}
	return nil
}

// advice says how to make room, if that is possible.
func (b planLimit) advice(count int64) string {
	if count == 0 {
		return ""
	}
	return fmt.Sprintf("%s some that are no longer used. ", b.remove)
}

// planOf returns the plan of an organization. Faults: NotFound for the organization.
func planOf(t *tx, organization int64) (p access.Plan, err error) {
	err = t.Get(&p, "SELECT "+planColumns+" FROM plans WHERE id = (SELECT plan_id FROM organizations WHERE id = ?)", organization)
	return p, missing(err, "organization")
}
