package queue

import (
	"context"

	"github.com/keyhook/keyhook/storage/catalogue"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// BeginTest creates a test event for one subscription, with a single attempt that is in progress. The delivery is
// never pending, so an interrupted test is not repeated. The event has the example of the catalogue for eventType. If that is empty,
// it is of webhook.TestType.
//
// Faults: NotFound; Forbidden if the plan has no webhooks; Conflict while the queue is held; Invalid if there is no example; Limited if
// the plan's bytes of the day do not suffice.
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
