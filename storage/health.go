package storage

import (
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// stepHealth takes the subscription's health one attempt further, and returns it as it is then.
func (s *Store) stepHealth(t *tx, sub *subscriber, r webhook.Result) (next webhook.Health, err error) {
	if err := t.noteEnd(r.Subscription, sub, r.Succeeded); err != nil {
		return next, err
	}
	if r.Succeeded {
		next = sub.Succeed(r.Epoch)
	} else {
		next = sub.Fail(r.Epoch, r.Failure.String(), r.ProbeAt, s.policy)
	}
	if next == sub.Health {
		return next, nil
	}
	if err := writeHealth(t, r.Subscription, next); err != nil {
		return next, err
	}
	s.observeHealth(t, sub.Status, next.Status)
	if next.Status == sub.Status || next.Status == webhook.Healthy {
		return next, nil
	}
	return next, s.auditHealth(t, access.System(sub.Organization), sub.Organization, r.Subscription, sub.ID, next)
}

// noteEnd writes when an attempt last succeeded, or failed.
func (t *tx) noteEnd(subscription int64, sub *subscriber, succeeded bool) error {
	noted, statement := &sub.successAt, "UPDATE subscriptions SET last_success_at = ? WHERE id = ?"
	if !succeeded {
		noted, statement = &sub.failureAt, "UPDATE subscriptions SET last_failure_at = ? WHERE id = ?"
	}
	if *noted == t.Now() {
		return nil
	}
	*noted = t.Now()
	_, err := t.Exec(statement, t.Now(), subscription)
	return err
}

// writeHealth writes a health, and with it when the subscription was disabled.
func writeHealth(t *tx, subscription int64, h webhook.Health) error {
	t.cache.forget(subscription)
	_, err := t.Exec(`
		UPDATE subscriptions SET status = ?1, consecutive_failures = ?2, last_error = ?3, epoch = ?4, probe_at = ?5,
			disabled_at = CASE WHEN ?1 <> 'disabled' THEN NULL ELSE coalesce(disabled_at, ?6) END
		WHERE id = ?7`, h.Status, h.ConsecutiveFailures, h.LastError, h.Epoch, h.ProbeAt, t.Now(), subscription)
	return err
}

// auditHealth tells that a subscription has become failing or disabled.
func (s *Store) auditHealth(t *tx, by access.Actor, organization, row int64, id string, h webhook.Health) error {
	eventType := access.SubscriptionFailing
	if h.Status == webhook.Disabled {
		eventType = access.SubscriptionDisabled
	}
	return s.audit(t, by, organization, eventType, auditTarget{"subscription", id, row}, map[string]any{
		"consecutive_failures": h.ConsecutiveFailures, "last_error": h.LastError,
	})
}
