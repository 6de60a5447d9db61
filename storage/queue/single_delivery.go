package queue

import (
	"cmp"
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/catalogue"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Redeliver creates a new delivery of the event of an attempt. Faults: NotFound; Forbidden if it is an audit event and the actor lacks
// audit:read; Conflict if the subscription no longer receives audit events.
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
			OR `+delivery.Running("?1")+` AND d.due_at = ?2)`, attempt, at, subscription)
	job.EventID = t.IDs.ID(access.EventID, job.Event, job.EventAt)
	return job, err
}

// BeginTest creates a test event for one subscription, with a single attempt that is in progress. The delivery is never pending, so an
// interrupted test is not repeated. The event has the example of the catalogue for eventType. If that is empty, it is of webhook.TestType.
// Faults: NotFound; Forbidden if the plan has no webhooks; Conflict while the queue is held; Invalid if there is no example; Limited if the
// plan's bytes of the day do not suffice.
func (q *Queue) BeginTest(ctx context.Context, organization int64, id, eventType string) (webhook.Target, webhook.Job, int64, error) {
	test, err := returning(ctx, q, sqlite.Work{Payer: organization}, func(t *tx) (test testDelivery, err error) {
		sub, err := q.receiver(t, organization, id)
		if err != nil {
			return test, err
		}
		if err := t.Quotas.RequireWebhooks(t.Tx, organization); err != nil {
			return test, err
		}
		if hold, err := t.hold(); err != nil {
			return test, err
		} else if hold != nil {
			return test, fault.New(fault.Conflict, "queue_held", "The operator of this service has stopped all sending. Test again after the release.")
		}
		event := webhook.NewEvent{Type: webhook.TestType, Data: []byte(`{"subscription_id":"` + id + `"}`), Mark: webhook.Test}
		if eventType != "" {
			event.Type = eventType
			if event.Data, err = catalogue.Example(t.Tx, eventType); err != nil {
				return test, err
			}
		}
		if test.job, err = t.insertTest(organization, sub.RowID, event); err != nil {
			return test, err
		}
		test.target, err = q.target(t, sub.RowID)
		return test, err
	})
	return test.target, test.job, webhook.AttemptRow(test.job.Delivery, 1), err
}

type testDelivery struct {
	target webhook.Target
	job    webhook.Job
}

// insertTest inserts a test event and its delivery, unless they exceed the storage quota.
func (t *tx) insertTest(organization, subscription int64, e webhook.NewEvent) (job webhook.Job, err error) {
	if err := t.Quotas.Require(t.Tx, organization, max(quota.PerChange, quota.Size(e, 1))); err != nil {
		return job, err
	}
	has, err := t.Quotas.Of(t.Tx, organization)
	if err != nil {
		return job, err
	}
	t.lastDelivery++
	job = t.insertEvent(organization, has, e, 0, 0, 0)
	job.Delivery, job.Subscription, job.Cause = t.lastDelivery, subscription, webhook.ByTest
	if err := t.Exec(`
		INSERT INTO deliveries (id, event_id, subscription_id, state, cause, attempts, due_at)
		VALUES (?, ?, ?, `+delivery.SendingLast+`, `+delivery.CauseTest+`, 0, ?)`, job.Delivery, job.Event, subscription, t.Now()); err != nil {
		return job, err
	}
	t.Quotas.Count(t.Tx, organization, quota.PerDelivery)
	return job, nil
}
