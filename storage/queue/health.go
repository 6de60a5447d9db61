package queue

import (
	"fmt"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/fanout"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

func (t *tx) stepHealth(sub *fanout.Subscription, r webhook.Result) (next webhook.Health, err error) {
	if err := t.saveAttemptTime(r.Subscription, sub, r.Succeeded); err != nil {
		return next, err
	}
	if r.Succeeded {
		next = sub.Succeed(r.Epoch)
	} else {
		next = sub.Fail(r.Epoch, r.Failure.String(), t.Now(), r.ProbeAt, t.policy)
	}
	if next == sub.Health {
		return next, nil
	}
	if err := t.writeHealth(r.Subscription, sub.Health, next); err != nil {
		return next, err
	}
	if sub.Status == webhook.Disabled && next.Status == webhook.Healthy {
		// Upkeep sends again what ended exhausted in the outage, and in an earlier one for which it has not done that yet.
		if err := t.Exec("UPDATE subscriptions SET recover_since = min(coalesce(recover_since, ?1), ?1) WHERE id = ?2",
			sub.FailingSince, r.Subscription); err != nil {
			return next, err
		}
		t.OnCommit(func() { t.mayRecover.Store(true) })
	}
	if next.Status == sub.Status {
		return next, nil
	}
	return next, t.auditHealth(access.System(sub.Organization), sub.Organization, r.Subscription, sub.ID, next)
}

// attemptTimePrecision is how old the stored time of a subscription's last success may be while it has many.
const attemptTimePrecision = time.Second

// saveAttemptTime stores the time of the last success or failure, unless the stored time is precise enough.
func (t *tx) saveAttemptTime(subscription int64, sub *fanout.Subscription, succeeded bool) error {
	savedAt, statement := &sub.SuccessAt, "UPDATE subscriptions SET last_success_at = ? WHERE id = ?"
	if !succeeded {
		savedAt, statement = &sub.FailureAt, "UPDATE subscriptions SET last_failure_at = ? WHERE id = ?"
	}
	if age := t.Now() - *savedAt; age >= 0 && age < attemptTimePrecision.Milliseconds() {
		return nil
	}
	*savedAt = t.Now()
	return t.Exec(statement, t.Now(), subscription)
}

// SetHealth stores the health that a change gave a subscription. before is the stored one. The caller announces the change.
func (q *Queue) SetHealth(now *sqlite.Tx, sub *webhook.Subscription, before webhook.Health) error {
	if sub.Health == before {
		return nil
	}
	t := q.o.Memory.with(now)
	if sub.Status != before.Status {
		sub.DisabledAt = nil
		if sub.Status == webhook.Disabled {
			sub.DisabledAt = new(t.Now()) // a copy, because the time of the transaction changes later
		}
	}
	return t.writeHealth(sub.RowID, before, sub.Health)
}

// writeHealth stores a health, counts the subscription under it, and reports a changed status to the observer after the commit. If the
// subscription becomes disabled, it also stores when.
func (t *tx) writeHealth(subscription int64, before, h webhook.Health) error {
	t.countSubscription(before, -1)
	t.countSubscription(h, 1)
	if before.Status != h.Status {
		t.OnCommit(func() { t.observer.HealthChanged(h.Status) })
	}
	t.Fanout.Invalidate(subscription)
	return t.Exec(`
		UPDATE subscriptions SET status = ?1, consecutive_failures = ?2, last_error = ?3, epoch = ?4, probe_at = ?5, paused = ?8, failing_since = ?9,
			disabled_at = CASE WHEN ?1 <> 'disabled' THEN NULL ELSE coalesce(disabled_at, ?6) END
		WHERE id = ?7`, h.Status, h.ConsecutiveFailures, h.LastError, h.Epoch, h.ProbeAt, t.Now(), subscription, h.Paused, h.FailingSince)
}

// AuditHealth writes the audit event of a subscription that a change has disabled.
func (q *Queue) AuditHealth(now *sqlite.Tx, by access.Actor, organization int64, sub webhook.Subscription) error {
	return q.o.Memory.with(now).auditHealth(by, organization, sub.RowID, sub.ID, sub.Health)
}

// auditHealth writes the audit event of a subscription that became failing or disabled, or that works again.
func (t *tx) auditHealth(by access.Actor, organization, row int64, id string, h webhook.Health) error {
	target := audit.Subscription(id, row)
	var address string
	if err := t.Get(&address, "SELECT url FROM subscriptions WHERE id = ?", row); err != nil {
		return sqlite.Missing(err, "subscription")
	}
	details := map[string]any{"url_host": webhook.URLHost(address)}
	if h.Status == webhook.Healthy {
		return t.audit(by, organization, access.SubscriptionRecovered, target, details)
	}
	eventType := access.SubscriptionFailing
	if h.Status == webhook.Disabled {
		eventType = access.SubscriptionDisabled
	}
	details["consecutive_failures"], details["last_error"], details["mend"] = h.ConsecutiveFailures, h.LastError, h.Action()
	if h.FailingSince != 0 {
		details["failing_since"] = string(webhook.AppendTime(nil, h.FailingSince))
	}
	return t.audit(by, organization, eventType, target, details)
}

// loadSubscriptionCounts counts the subscriptions by status, because counting 100,000 rows at each scrape takes too long. The counts
// are exact: Open loads them once, and the writer updates them after each commit.
func (t *tx) loadSubscriptionCounts() error {
	var counts webhook.SubscriptionCounts
	if err := t.Get(&counts, `
		SELECT count(*) FILTER (WHERE s.status = 'healthy') AS healthy, count(*) FILTER (WHERE s.status = 'failing') AS failing,
		       count(*) FILTER (WHERE s.status = 'disabled') AS disabled, count(*) FILTER (WHERE `+delivery.PausedByPerson+`) AS paused
		FROM subscriptions s WHERE s.deleted_at IS NULL`); err != nil {
		return fmt.Errorf("count subscriptions: %w", err)
	}
	t.subscriptions.Store(&counts)
	return nil
}

// SubscriptionCreated counts a new subscription.
func (q *Queue) SubscriptionCreated(now *sqlite.Tx, h webhook.Health) {
	q.o.Memory.with(now).countSubscription(h, 1)
}

// SubscriptionRemoved forgets a subscription with that health, which the transaction deletes, and its pending deliveries.
func (q *Queue) SubscriptionRemoved(now *sqlite.Tx, row int64, h webhook.Health) {
	t := q.o.Memory.with(now)
	t.countSubscription(h, -1)
	t.OnCommit(func() { t.pending.Remove(row) })
	t.announceChange(row)
}

// countSubscription counts a subscription n times after the commit.
func (t *tx) countSubscription(h webhook.Health, n int64) {
	t.OnCommit(func() {
		counts := *t.subscriptions.Load()
		counts.Add(h, n)
		t.subscriptions.Store(&counts)
	})
}

// SubscriptionCounts returns the numbers of subscriptions by status, of all organizations.
func (s *shared) SubscriptionCounts() webhook.SubscriptionCounts { return *s.subscriptions.Load() }
