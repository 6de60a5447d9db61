package storage

import (
	"context"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// BeginTest makes a test event for one subscription, and the one attempt that carries it. The delivery is never pending:
// a test that is cut off is not made up for. Faults: NotFound, Forbidden where the plan lacks webhooks, Conflict while the
// queue is held.
func (s *Store) BeginTest(ctx context.Context, organization int64, id string) (webhook.Target, webhook.Job, int64, error) {
	begun, err := returning(ctx, s.workFor(organization), func(t *tx) (b begunTest, err error) {
		sub, err := subscriptionRow(t, organization, id)
		if err != nil {
			return b, err
		}
		if err := requireWebhooks(t, organization); err != nil {
			return b, err
		}
		if hold, err := t.hold(); err != nil {
			return b, err
		} else if hold != nil {
			return b, fault.New(fault.Conflict, "queue_held", "The operator of this service holds all sending; test again once it is released.")
		}
		if err := requireStorage(t, organization, storedPerChange); err != nil {
			return b, err
		}
		o, err := t.organization(organization)
		if err != nil {
			return b, err
		}
		row, event, body, err := s.insertEvent(t, organization, o, webhook.NewEvent{
			Type: webhook.TestType, Data: []byte(`{"subscription_id":"` + id + `"}`),
		}, 0)
		if err != nil {
			return b, err
		}
		delivery, err := t.Insert(`
			INSERT INTO deliveries (event_id, subscription_id, state, cause, attempts, due_at) VALUES (?, ?, ?, ?, 0, 0)`,
			row, sub, webhook.Exhausted, webhook.ByTest)
		if err != nil {
			return b, err
		}
		t.countStored(organization, storedPerDelivery)
		b.job = webhook.Job{
			Delivery: delivery, Subscription: sub, Organization: organization, Event: row, EventID: event, EventType: webhook.TestType, EventAt: t.Now(),
			Body: body, Cause: webhook.ByTest,
		}
		b.attempt, err = t.Insert(`
			INSERT INTO attempts (id, subscription_id, cause, outcome, response_body, duration_ms, error, attempted_at)
			VALUES (?, ?, ?, `+outcomeSending+`, '', 0, '', ?)`, attemptRow(delivery, 1), sub, webhook.ByTest, t.Now())
		if err != nil {
			return b, err
		}
		b.target, err = s.target(t.Get, sub)
		return b, err
	})
	return begun.target, begun.job, begun.attempt, err
}

// begunTest is a test delivery whose attempt is on record.
type begunTest struct {
	target  webhook.Target
	job     webhook.Job
	attempt int64
}
