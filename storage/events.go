package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

const (
	eventColumns = `
	e.id, o.public_id AS organization_public_id, o.name AS organization_name, e.type, e.created_at`
	eventJoins = "CROSS JOIN organizations o ON o.id = e.organization_id"
)

// publishedDeliveries counts the deliveries that an event had when it was published.
const publishedDeliveries = "SELECT count(*) FROM deliveries d WHERE d.event_id = e.id AND d.cause = " + causeEvent

// completeEvents sets the public ids and the numbers of deliveries of the events of a page. Events of many subscriptions have many
// deliveries. So the page ends after the event at which the counts have read as many rows as a search may read.
func (s *Store) completeEvents(ctx context.Context, organization int64, page *webhook.EventPage) error {
	end, err := s.logs.Take(ctx, organization)
	if err != nil {
		return err
	}
	defer end()
	rest, most, counted := page.Events, 1, 0
	for len(rest) > 0 {
		if counted >= s.logs.Limits.Rows {
			page.Events = page.Events[:len(page.Events)-len(rest)]
			page.Next = page.Events[len(page.Events)-1].RowID
			return nil
		}
		batch := rest[:min(most, len(rest))]
		began := time.Now()
		deliveries, err := s.countDeliveries(ctx, batch)
		if err != nil {
			return err
		}
		counted += deliveries
		rest = rest[len(batch):]
		if deliveries < deliveriesPerCount {
			most = min(2*most, eventsPerCount)
			continue
		}
		most = max(1, len(batch)*deliveriesPerCount/deliveries)
		if err := scan.Pause(ctx, time.Since(began)); err != nil {
			return err
		}
	}
	return nil
}

const (
	eventsPerCount     = 10    // events whose deliveries one read counts, at most
	deliveriesPerCount = 2_500 // the aim for events with many deliveries: 5 ms
)

// countDeliveries sets the numbers of deliveries and the public id of each event. Of several deliveries to a subscription, the
// one that came furthest decides its state. It returns how many deliveries it has read.
func (s *Store) countDeliveries(ctx context.Context, events []webhook.Event) (deliveries int, err error) {
	index := make(map[int64]int, len(events))
	for i, e := range events {
		index[e.RowID] = i
		events[i].ID = s.ids.ID(access.EventID, e.RowID, e.At)
	}
	var counts []struct {
		Event  int64  `db:"id"`
		Counts string `db:"counts"` // a JSON array, because a subquery has one column
	}
	err = s.logs.List(ctx, &counts, `
		SELECT e.value AS id, (
			SELECT json_array(coalesce(sum(published), 0), coalesce(sum(rank = 3), 0), coalesce(sum(rank = 2), 0), coalesce(sum(rank = 1), 0), coalesce(sum(rank = 0), 0),
			                  coalesce(sum(deliveries), 0))
			FROM (
				SELECT count(*) AS deliveries, sum(d.cause = `+causeEvent+`) AS published,
				       max(CASE d.state WHEN `+stateDelivered+` THEN 3 WHEN `+stateExhausted+` THEN 1 WHEN `+stateDropped+` THEN 0 ELSE 2 END) AS rank
				FROM deliveries d WHERE d.event_id = e.value GROUP BY d.subscription_id
			)
		) AS counts FROM json_each(?) e`, rowList(maps.Keys(index)))
	if err != nil {
		return 0, err
	}
	for _, c := range counts {
		e, read := &events[index[c.Event]], 0
		into := []any{&e.Deliveries, &e.States.Delivered, &e.States.Pending, &e.States.Exhausted, &e.States.Dropped, &read}
		if err := json.Unmarshal([]byte(c.Counts), &into); err != nil {
			return 0, fmt.Errorf("read the counts of deliveries: %w", err)
		}
		deliveries += read
	}
	return deliveries, nil
}

// maxEventDeliveries limits the deliveries in the response for one event. Publishing creates no more, but redeliveries
// add to them.
const maxEventDeliveries = 10_000

// Event returns an event of an organization and the states of its deliveries, at most maxEventDeliveries of them.
// Faults: NotFound; Unavailable if too many reads of the organization's logs are running.
func (s *Store) Event(ctx context.Context, organization int64, id string) (webhook.Event, []webhook.Delivery, error) {
	var e webhook.Event
	row, at, ok := s.ids.Row(access.EventID, id)
	if !ok {
		return e, nil, fault.Missing("event")
	}
	end, err := s.logs.Take(ctx, organization)
	if err != nil {
		return e, nil, err
	}
	defer end()
	err = s.logs.Get(ctx, &e, `
		SELECT `+eventColumns+`, (`+publishedDeliveries+`) AS deliveries, e.body, e.idempotency_key
		FROM events e JOIN organizations o ON o.id = e.organization_id
		WHERE e.id = ? AND e.created_at = ? AND e.organization_id = ?`, row, at, organization)
	if err != nil {
		return e, nil, sqlite.Missing(err, "event")
	}
	e.ID = id
	deliveries := []webhook.Delivery{}
	err = s.logs.List(ctx, &deliveries, `
		SELECT s.public_id AS subscription_public_id, d.attempts, d.due_at,
		       CASE
		           WHEN d.state IN (`+statePending+`, `+stateSending+`) THEN CASE WHEN s.deleted_at IS NULL THEN `+statePending+` ELSE `+stateDropped+` END
		           WHEN d.state = `+stateSendingLast+` THEN `+endOfLast+`
		           ELSE d.state
		       END AS state
		FROM deliveries d JOIN subscriptions s ON s.id = d.subscription_id
		WHERE d.event_id = ? ORDER BY d.subscription_id, d.id LIMIT ?`, row, maxEventDeliveries)
	return e, deliveries, err
}
