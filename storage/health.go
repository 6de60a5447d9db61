package storage

import (
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// stepHealth takes the subscription's health one attempt further. It returns the health as it is then and the status as
// it was. A removed subscription keeps its health.
func (s *Store) stepHealth(t *tx, r webhook.Result) (next webhook.Health, before webhook.Status, err error) {
	var sub struct {
		webhook.Health
		ID           string `db:"public_id"`
		Organization int64  `db:"organization_id"`
	}
	// One statement notes the time and reads the health: for a healthy endpoint there is nothing more to write.
	note := "UPDATE subscriptions SET last_success_at = ?"
	if !r.Succeeded {
		note = "UPDATE subscriptions SET last_failure_at = ?"
	}
	if err := t.update(&sub, note+` WHERE id = ?
		RETURNING status, consecutive_failures, last_error, epoch, probe_at, public_id, organization_id`, t.now, r.Subscription); err != nil {
		return next, before, err
	}
	if r.Succeeded {
		next = sub.Succeed(r.Epoch)
	} else {
		next = sub.Fail(r.Epoch, r.Error, r.ProbeAt, s.policy)
	}
	if next == sub.Health {
		return next, sub.Status, nil
	}
	if err := writeHealth(t, r.Subscription, next); err != nil {
		return next, before, err
	}
	if next.Status == sub.Status || next.Status == webhook.Healthy {
		return next, sub.Status, nil
	}
	return next, sub.Status, s.auditHealth(t, access.System(sub.Organization), sub.Organization, r.Subscription, sub.ID, next)
}

// writeHealth writes a health, and with it when the subscription was disabled.
func writeHealth(t *tx, subscription int64, h webhook.Health) error {
	_, err := t.exec(`
		UPDATE subscriptions SET status = ?1, consecutive_failures = ?2, last_error = ?3, epoch = ?4, probe_at = ?5,
			disabled_at = CASE WHEN ?1 <> 'disabled' THEN NULL ELSE coalesce(disabled_at, ?6) END
		WHERE id = ?7`, h.Status, h.ConsecutiveFailures, h.LastError, h.Epoch, h.ProbeAt, t.now, subscription)
	return err
}

// auditHealth tells that a subscription has become failing or disabled.
func (s *Store) auditHealth(t *tx, by access.Actor, organization, row int64, id string, h webhook.Health) error {
	eventType := access.SubscriptionFailing
	if h.Status == webhook.Disabled {
		eventType = access.SubscriptionDisabled
	}
	return s.audit(t, by, organization, eventType, target{"subscription", id, row}, map[string]any{
		"consecutive_failures": h.ConsecutiveFailures, "last_error": h.LastError,
	})
}
