package storage

import (
	"context"
	"database/sql"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// PublishEvents stores events of an organization and their deliveries in one transaction, all or none. A repeated
// idempotency key gets the first result again.
//
// Faults: Conflict if the organization is closed; Invalid if a key was used for another event, or if the events need more than
// maxDeliveries deliveries; Limited if the plan's bytes of the day do not suffice; Unavailable if the deliveries of a repeated event
// cannot be counted, although the new events were stored.
func (q *Queue) PublishEvents(ctx context.Context, organization int64, events []webhook.NewEvent) ([]webhook.Published, error) {
	published := make([]webhook.Published, len(events))
	work := sqlite.Work{Payer: organization, Cost: sqlite.UsualCost + len(events), Whole: true, Measure: q.measure(func(t *tx) (int, error) {
		return publishCost(t, organization, events)
	})}
	err := q.change(ctx, work, func(t *tx) error {
		o, err := t.organizationID(organization)
		if err != nil {
			return err
		}
		// All checks come before the first write, so a refusal costs the other writes of the batch nothing.
		if err := t.fillRepeated(organization, events, published); err != nil {
			return err
		}
		if err := checkPublishLimits(t, organization, events, published); err != nil {
			return err
		}
		t.quotas.Add(t.Tx, organization, access.OrganizationUse{Events: int64(countNew(published))})
		for i, e := range events {
			if published[i].Repeated {
				continue
			}
			e.Mark = t.catalogued.Mark(e.Type)
			if published[i], err = t.publish(organization, o, e, 0); err != nil {
				return err
			}
		}
		t.wakeReaders(organization)
		return nil
	})
	if err != nil {
		return nil, err
	}
	q.observer.Published(countNew(published))
	return published, q.countRepeated(ctx, organization, published)
}

// publish inserts one event and its deliveries. about is the subscription that the event is about, by row id, or 0. A
// subscription never receives an event about itself, so a failing endpoint cannot cause more failing deliveries. For
// events about health, see fanout.Cache.HealthNewsReceivers.
func (t *tx) publish(organization int64, organizationID string, e webhook.NewEvent, about int64) (webhook.Published, error) {
	candidates, err := t.fanout.Receivers(t.Tx, organization, about, e.Type)
	if err != nil {
		return webhook.Published{}, err
	}
	wanted := len(candidates)
	subscriptions, feeds, err := t.fanout.Passing(t.Tx, candidates, e.Data)
	if err != nil {
		return webhook.Published{}, err
	}
	filtered := wanted - len(subscriptions) - feeds
	if about != 0 && access.HealthNews(e.Type) {
		if subscriptions, err = t.fanout.HealthNewsReceivers(t.Tx, organization, about, subscriptions); err != nil {
			return webhook.Published{}, err
		}
	}
	held, err := countHeld(t, organization, subscriptions)
	if err != nil {
		return webhook.Published{}, err
	}
	if feeds > 0 && len(subscriptions) == 0 {
		filtered = webhook.OnlyFeeds
	}
	row, id, body := t.insertEvent(organization, organizationID, e, about, held, filtered)
	jobs := make([]webhook.Job, len(subscriptions))
	for i, to := range subscriptions {
		t.lastDelivery++
		jobs[i] = webhook.Job{
			Delivery: t.lastDelivery, Subscription: to, Organization: organization, Event: row, EventID: id, EventType: e.Type, EventAt: t.Now(),
			Body: body, DueAt: t.Now(),
		}
		if err := t.setFirstAttempt(&jobs[i]); err != nil {
			return webhook.Published{}, err
		}
	}
	t.delayDeliveries(jobs)
	t.quotas.Count(t.Tx, organization, len(jobs)*quota.PerDelivery)
	t.announceDeliveries(jobs)
	return webhook.Published{
		ID: id, Type: e.Type, At: t.Now(), Deliveries: len(jobs), Held: int(held.Int64), Mark: e.Mark,
		Notice: webhook.NoticeOf(len(jobs), filtered, held.Valid, e.Mark),
	}, nil
}

// countHeld counts the disabled ones of the receivers of an event. The count is NULL if the plan has no webhooks, so that
// there are no receivers.
func countHeld(t *tx, organization int64, receivers []int64) (held sql.NullInt64, err error) {
	if held.Valid = len(receivers) > 0; !held.Valid {
		q, err := t.quotas.Of(t.Tx, organization)
		if err != nil {
			return held, err
		}
		held.Valid = q.Webhooks
	}
	for _, row := range receivers {
		sub, err := t.fanout.Subscription(t.Tx, row)
		if err != nil {
			return held, err
		}
		if sub.Status == webhook.Disabled {
			held.Int64++
		}
	}
	return held, nil
}

// insertEvent stores the event with the exact bytes to send. They contain the public id, which is computed from the row
// id. So this function chooses the row id, and not SQLite. The row is written later; see newRows.
func (t *tx) insertEvent(organization int64, organizationID string, e webhook.NewEvent, about int64, held sql.NullInt64, filtered int) (row int64, id string, body []byte) {
	t.lastEvent++
	row = t.lastEvent
	id = t.ids.ID(access.EventID, row, t.Now())
	body = webhook.AppendEnvelope(make([]byte, 0, len(e.Data)+200), id, e.Type, t.Now(), organizationID, e.Data, e.Mark)
	t.delayEvent(organization, e, row, about, held, filtered, body)
	t.quotas.Count(t.Tx, organization, quota.Size(e, 0))
	return row, id, body
}
