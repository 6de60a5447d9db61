package queue

import (
	"cmp"
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Redeliver creates a new delivery of the event of an attempt.
//
// Faults: NotFound; Forbidden if it is an audit event and the actor lacks audit:read; Conflict if the subscription no
// longer receives audit events.
func (q *Queue) Redeliver(ctx context.Context, by access.Actor, organization int64, id, attempt string) error {
	row, at, ok := q.o.Memory.IDs.Row(access.AttemptID, attempt)
	if !ok {
		return fault.Missing("attempt")
	}
	return q.change(ctx, sqlite.Work{Payer: organization}, func(t *tx) error {
		sub, err := q.receiver(t, organization, id)
		if err != nil {
			return err
		}
		job, err := t.jobOfAttempt(sub.RowID, row, at)
		if err != nil {
			return err
		}
		if access.IsAuditType(job.EventType) {
			canRead, err := principal.MayReadAudit(t.Tx, by.Authority)
			if err != nil {
				return err
			}
			if err := audit.CheckRedelivery(canRead, sub); err != nil {
				return err
			}
		}
		if err := cmp.Or(t.Quotas.RequireWebhooks(t.Tx, organization), t.Quotas.Require(t.Tx, organization, quota.PerChange)); err != nil {
			return err
		}
		t.lastDelivery++
		job.Delivery, job.Organization, job.DueAt, job.Cause = t.lastDelivery, organization, t.Now(), webhook.ByHand
		// For an ordered subscription, it is outside the order: somebody wants this event now, and its failures must not stop the others.
		if err := t.Exec(`
			INSERT INTO deliveries (id, event_id, subscription_id, state, cause, attempts, due_at, sequence)
			VALUES (?, ?, ?, `+delivery.Pending+`, ?, 0, ?, iif(?, 0, NULL))`,
			job.Delivery, job.Event, job.Subscription, job.Cause, job.DueAt, sub.Ordered); err != nil {
			return err
		}
		t.Quotas.Count(t.Tx, organization, quota.PerDelivery)
		t.announceDeliveries([]webhook.Job{job})
		return t.audit(by, organization, access.Redelivered, audit.Subscription(id, sub.RowID), map[string]any{"url_host": webhook.URLHost(sub.URL), "event_id": job.EventID})
	})
}

// jobOfAttempt returns a job with the event of an attempt. Faults: NotFound.
func (t *tx) jobOfAttempt(subscription, attempt, at int64) (job webhook.Job, err error) {
	job, err = sqlite.One[webhook.Job](t, "attempt", `
		SELECT d.subscription_id, d.event_id, e.type AS event_type, e.created_at AS event_at, e.body
		FROM deliveries d JOIN events e ON e.id = d.event_id
		WHERE d.id = ?1 >> 8 AND d.subscription_id = ?3 AND (
			EXISTS (SELECT 1 FROM attempts a WHERE a.id = ?1 AND a.attempted_at = ?2)
			OR d.state >= `+delivery.Sending+` AND d.attempts + 1 = ?1 & 255 AND d.due_at = ?2)`, attempt, at, subscription)
	job.EventID = t.IDs.ID(access.EventID, job.Event, job.EventAt)
	return job, err
}
