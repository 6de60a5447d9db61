package history

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

const (
	eventColumns = `
	e.id, o.public_id AS organization_public_id, o.external_id AS organization_external_id, o.name AS organization_name, e.type, e.created_at, ` + delivery.IsTest + ` AS test`
	eventJoins = "CROSS JOIN organizations o ON o.id = e.organization_id"
)

// CountDeliveries sets the public ids and the numbers of deliveries of events of an organization, until it has read limit deliveries. It
// returns how many events it has counted, at least one if there are any. After many deliveries it pauses, so that others have their turn.
// Faults: Unavailable if too many reads of the organization's logs are running.
func (h *History) CountDeliveries(ctx context.Context, organization int64, events []webhook.Event, limit int) (counted int, err error) {
	end, err := h.o.Logs.Take(ctx, organization)
	if err != nil {
		return 0, err
	}
	defer end()
	for most, read := 1, 0; counted < len(events) && read < limit; {
		batch := events[counted:min(counted+most, len(events))]
		began := time.Now()
		deliveries, err := h.countDeliveries(ctx, batch)
		if err != nil {
			return counted, err
		}
		counted += len(batch)
		read += deliveries
		if deliveries < deliveriesPerCount {
			most = min(2*most, eventsPerCount)
			continue
		}
		most = max(1, len(batch)*deliveriesPerCount/deliveries)
		if err := scan.Pause(ctx, time.Since(began)); err != nil {
			return counted, err
		}
	}
	return counted, nil
}

const (
	eventsPerCount     = 10    // events whose deliveries one read counts, at most
	deliveriesPerCount = 2_500 // the aim for events with many deliveries: 5 ms
)

// countDeliveries sets the numbers of deliveries and the public id of each event. Of several deliveries to a subscription, the
// one that came furthest decides its state. It returns how many deliveries it has read.
func (h *History) countDeliveries(ctx context.Context, events []webhook.Event) (deliveries int, err error) {
	index := make(map[int64]int, len(events))
	for i, e := range events {
		index[e.RowID] = i
		events[i].ID = h.o.IDs.ID(access.EventID, e.RowID, e.At)
	}
	var counts []struct {
		Event  int64  `db:"id"`
		Counts string `db:"counts"` // a JSON array, because a subquery has one column
	}
	err = h.o.Logs.List(ctx, &counts, `
		SELECT e.value AS id, (
			SELECT json_array(coalesce(sum(published), 0), coalesce(sum(rank = 3), 0), coalesce(sum(rank = 2), 0), coalesce(sum(rank = 1), 0), coalesce(sum(rank = 0), 0),
			                  coalesce(sum(rank = 2 AND (SELECT s.status = '`+string(webhook.Disabled)+`' FROM subscriptions s WHERE s.id = subscription_id)), 0),
			                  coalesce(sum(deliveries), 0))
			FROM (
				SELECT d.subscription_id, count(*) AS deliveries, sum(d.cause = `+delivery.CauseEvent+`) AS published,
				       max(`+delivery.Progress+`) AS rank
				FROM deliveries d WHERE d.event_id = e.value GROUP BY d.subscription_id
			)
		) AS counts FROM json_each(?) e`, sqlite.RowList(maps.Keys(index)))
	if err != nil {
		return 0, err
	}
	for _, c := range counts {
		e, read := &events[index[c.Event]], 0
		into := []any{&e.Deliveries, &e.States.Delivered, &e.States.Pending, &e.States.Exhausted, &e.States.Dropped, &e.States.Held, &read}
		if err := json.Unmarshal([]byte(c.Counts), &into); err != nil {
			return 0, fmt.Errorf("read the counts of deliveries: %w", err)
		}
		deliveries += read
	}
	return deliveries, nil
}

// maxEventDeliveries limits the deliveries in the response for one event. Publishing creates no more, but redeliveries add to them.
const maxEventDeliveries = 10_000

// Event returns an event of an organization and the states of its deliveries, at most maxEventDeliveries of them.
// Faults: NotFound; Unavailable if too many reads of the organization's logs are running.
func (h *History) Event(ctx context.Context, organization int64, id string) (webhook.Event, []webhook.Delivery, error) {
	var e webhook.Event
	row, at, ok := h.o.IDs.Row(access.EventID, id)
	if !ok {
		return e, nil, fault.Missing("event")
	}
	end, err := h.o.Logs.Take(ctx, organization)
	if err != nil {
		return e, nil, err
	}
	defer end()
	err = h.o.Logs.Get(ctx, &e, `
		SELECT `+eventColumns+`, (SELECT count(*) FROM deliveries d WHERE d.event_id = e.id AND d.cause = `+delivery.CauseEvent+`) AS deliveries,
		       e.body, e.idempotency_key
		FROM events e JOIN organizations o ON o.id = e.organization_id
		WHERE e.id = ? AND e.created_at = ? AND e.organization_id = ?`, row, at, organization)
	if err != nil {
		return e, nil, sqlite.Missing(err, "event")
	}
	e.ID = id
	deliveries := []webhook.Delivery{}
	err = h.o.Logs.List(ctx, &deliveries, `
		SELECT d.id, s.public_id AS subscription_public_id, d.attempts, d.due_at, `+delivery.State+` AS state
		FROM deliveries d JOIN subscriptions s ON s.id = d.subscription_id
		WHERE d.event_id = ? ORDER BY d.subscription_id, d.id LIMIT ?`, row, maxEventDeliveries)
	return e, deliveries, err
}

const (
	countedEvents = 3000 // reading their types takes about 5 ms
	maxEventTypes = 100  // that are not in the catalogue
)

// EventTypes lists the types of the newest events of an organization, the most frequent first, and then the other types of the
// catalogue. If only is not empty, the list has no other type. Tests do not count, and without audit events their types are left out.
// Faults: Unavailable if too many reads of the organization's logs are running.
func (h *History) EventTypes(ctx context.Context, organization int64, only string, withoutAudit bool) ([]webhook.EventType, error) {
	return sqlite.All[webhook.EventType](h.o.Logs.InTurn(ctx, organization), `
		SELECT coalesce(seen.type, c.type) AS type, coalesce(c.description, '') AS description, coalesce(c.event_group, '') AS event_group,
		       c.example, c.schema, seen.last_seen_at
		FROM (
			SELECT newest.type, max(newest.created_at) AS last_seen_at, row_number() OVER (ORDER BY count(*) DESC, newest.type) AS place
			FROM (SELECT e.type, e.created_at, `+delivery.IsTest+` AS is_test FROM events e INDEXED BY events_by_organization
			      WHERE e.organization_id = ?1 ORDER BY e.id DESC LIMIT ?2) newest
			WHERE NOT newest.is_test AND newest.type NOT IN (SELECT value FROM json_each(?3)) GROUP BY newest.type) seen
		FULL JOIN event_types c ON c.type = seen.type
		WHERE ?4 IN ('', seen.type, c.type) AND (seen.place <= ?5 OR c.type IS NOT NULL OR ?4 <> '')
		ORDER BY seen.place IS NULL, seen.place, c.type`, organization, countedEvents, HiddenTypes(withoutAudit), only, maxEventTypes)
}
