package storage

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

const eventColumns = `
	e.id, o.public_id AS organization_public_id, e.type, e.created_at`

// publishedDeliveries counts the deliveries that an event had when it was published.
const publishedDeliveries = "SELECT count(*) FROM deliveries d WHERE d.event_id = e.id AND d.cause = " + causeEvent

// Events lists the events of an organization without their bodies, newest first. Faults: Unavailable if too many reads
// of its logs are running.
func (s *Store) Events(ctx context.Context, organization, before int64, limit int) ([]webhook.Event, error) {
	end, err := s.logs.Take(ctx, organization)
	if err != nil {
		return nil, err
	}
	defer end()
	events := []webhook.Event{}
	if err := s.logs.List(ctx, &events, `
		SELECT `+eventColumns+`
		FROM events e JOIN organizations o ON o.id = e.organization_id
		WHERE e.organization_id = ? AND e.id < ?
		ORDER BY e.id DESC LIMIT ?`, organization, scan.UpperBound(before), limit); err != nil {
		return nil, err
	}
	return events, s.completeEvents(ctx, events)
}

// completeEvents sets the public ids and the numbers of deliveries of events.
func (s *Store) completeEvents(ctx context.Context, events []webhook.Event) error {
	for batch := range slices.Chunk(events, eventsPerCount) {
		if err := s.countDeliveries(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// eventsPerSlice is how many events one read of EventsWithoutAudit covers. A slice takes a few milliseconds. So a long
// run of audit events delays neither other readers nor checkpoints.
const eventsPerSlice = 2_000

// EventsWithoutAudit is Events without audit events. It reads slices of the history until it has enough events. Faults:
// Unavailable if that takes too long.
func (s *Store) EventsWithoutAudit(ctx context.Context, organization, before int64, limit int) ([]webhook.Event, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, logLimit, sqlite.ErrLateRead)
	defer cancel()
	end, err := s.logs.Take(ctx, organization)
	if err != nil {
		return nil, err
	}
	defer end()
	types, err := json.Marshal(access.AuditTypes())
	if err != nil {
		return nil, err
	}
	before = scan.UpperBound(before)
	events := []webhook.Event{}
	for more := true; more && len(events) < limit; {
		var first int64 // row id of the oldest event of the slice
		err := s.logs.Get(ctx, &first, `
			SELECT id FROM events INDEXED BY events_by_organization
			WHERE organization_id = ? AND id < ? ORDER BY id DESC LIMIT 1 OFFSET ?`, organization, before, eventsPerSlice-1)
		if more = !errors.Is(err, sql.ErrNoRows); more && err != nil {
			return nil, err
		}
		slice := []webhook.Event{}
		if err := s.logs.List(ctx, &slice, `
			SELECT `+eventColumns+`
			FROM events e INDEXED BY events_by_organization JOIN organizations o ON o.id = e.organization_id
			WHERE e.organization_id = ?1 AND e.id < ?2 AND e.id >= ?3 AND e.type NOT IN (SELECT value FROM json_each(?4))
			ORDER BY e.id DESC LIMIT ?5`, organization, before, first, string(types), limit-len(events)); err != nil {
			return nil, err
		}
		events, before = append(events, slice...), first
	}
	return events, s.completeEvents(ctx, events)
}

// eventsPerCount limits the events whose deliveries one read counts: each event may have thousands.
const eventsPerCount = 10

// countDeliveries sets the number of deliveries and the public id of each event.
func (s *Store) countDeliveries(ctx context.Context, events []webhook.Event) error {
	index := make(map[int64]int, len(events))
	for i, e := range events {
		index[e.RowID] = i
		events[i].ID = s.ids.ID(access.EventID, e.RowID, e.At)
	}
	var counts []struct {
		Event      int64 `db:"id"`
		Deliveries int   `db:"deliveries"`
	}
	err := s.logs.List(ctx, &counts, "SELECT e.id, ("+publishedDeliveries+") AS deliveries FROM (SELECT value AS id FROM json_each(?)) e", rowList(maps.Keys(index)))
	for _, c := range counts {
		events[index[c.Event]].Deliveries = c.Deliveries
	}
	return err
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
		SELECT `+eventColumns+`, (`+publishedDeliveries+`) AS deliveries, e.body
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
