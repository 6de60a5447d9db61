package storage

import (
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// The check is part of the transaction that adds a row, so parallel requests cannot exceed a limit.
const (
	countSubscriptions = `
		SELECT count(*) FROM subscriptions INDEXED BY subscriptions_live WHERE organization_id = ? AND deleted_at IS NULL`
	countKeys = `
		SELECT (SELECT count(*) FROM api_keys INDEXED BY api_keys_live
		        WHERE organization_id = ?1 AND revoked_at IS NULL AND expires_at IS NULL)
		     + (SELECT count(*) FROM api_keys INDEXED BY api_keys_live
		        WHERE organization_id = ?1 AND revoked_at IS NULL AND expires_at > ?2)`
	// A rotated key always has an expiry: the end of its grace period.
	countRotated = `
		SELECT count(*) FROM api_keys k INDEXED BY api_keys_live
		WHERE k.organization_id = ?1 AND k.revoked_at IS NULL AND k.expires_at > ?2
		  AND EXISTS (SELECT 1 FROM api_keys successor WHERE successor.replaces = k.id)`
)

// requireRoomForSubscription refuses another subscription if the plan allows no more. Deleted ones do not count.
// Faults: Conflict.
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

// requireRoomForKey refuses another API key if the plan allows no more. Revoked and expired keys do not count. Rotated
// keys in their grace period do not count either, so that an organization at its limit can still rotate. Faults:
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

// minRotatedLimit is how many rotated API keys in their grace period every organization may have.
const minRotatedLimit = 10

// requireRoomForGrace refuses another rotated key with a grace period if too many exist. The limit is the plan's number
// of keys, or the number of other keys if that is greater. So rotation at most doubles the number of keys. Faults:
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
		return err // the key to rotate is one of them, so the rotated ones are below the limit
	}
	if err := t.Get(&rotated, countRotated, organization, t.Now()); err != nil || rotated < max(limit, count-rotated) {
		return err
	}
	return fault.New(fault.Conflict, "limit_reached",
		"The organization has %d rotated API keys in their grace period, and the plan %q (max_api_keys) allows no more. "+
			"Rotate with grace_seconds 0, or revoke rotated keys that are no longer used.", rotated, plan.Name)
}

// planLimit is how many objects of one kind a plan allows.
type planLimit struct {
	plan, field, noun, remove string
	limit                     *int64 // nil means max
	max                       int64
}

// check refuses another object if there are already count.
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

// advice says how to make room, if there is anything to remove.
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
