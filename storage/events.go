package storage

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// PublishEvents stores events of an organization and their deliveries in one transaction, all or nothing. A repeated
// idempotency key gets the first answer again. Faults: Invalid where a key comes back with another event, and where the
// events would make more than maxDeliveries; Limited where they are beyond the plan's bytes of the day; Unavailable where the deliveries of a repeated event cannot be counted, though
// what is new has been stored.
func (s *Store) PublishEvents(ctx context.Context, organization int64, events []webhook.NewEvent) ([]webhook.Published, error) {
	published := make([]webhook.Published, len(events))
	w := s.of(organization).rows(usualCost + len(events)).measured(func(t *tx) (int, error) {
		return publishCost(t, organization, events)
	})
	err := w.change(ctx, func(t *tx) error {
		o, err := t.organization(organization)
		if err != nil {
			return err
		}
		// All is checked before anything is written: a refusal then costs the other writes of the batch nothing.
		if err := s.repeated(t, organization, events, published); err != nil {
			return err
		}
		if err := boundDeliveries(t, organization, events, published); err != nil {
			return err
		}
		if err := requireStorageForEvents(t, organization, events, published); err != nil {
			return err
		}
		for i, e := range events {
			if published[i].Replayed {
				continue
			}
			if published[i], err = s.publish(t, organization, o, e, 0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.observer.Published(accepted(published))
	return published, s.countRepeated(ctx, organization, published)
}

// countRepeated fills in how many deliveries the repeated events had when they were published. Each may have thousands, so
// they are counted as logs are read, and not in the transaction, for which others wait.
func (s *Store) countRepeated(ctx context.Context, organization int64, published []webhook.Published) error {
	var repeated []webhook.Event
	for _, p := range published {
		if p.Replayed {
			row, at, _ := s.ids.row(access.EventID, p.ID)
			repeated = append(repeated, webhook.Event{RowID: row, At: at})
		}
	}
	if len(repeated) == 0 {
		return nil
	}
	end, err := s.logs.take(ctx, organization)
	if err != nil {
		return err
	}
	defer end()
	for some := range slices.Chunk(repeated, countedEvents) {
		if err := s.countDeliveries(ctx, some); err != nil {
			return fmt.Errorf("count deliveries: %w", err)
		}
	}
	for i := range published {
		if published[i].Replayed {
			published[i].Deliveries, repeated = repeated[0].Deliveries, repeated[1:]
		}
	}
	return nil
}

// repeated fills in the answers to the events that are there already, under their idempotency keys, but for the number of
// their deliveries.
func (s *Store) repeated(t *tx, organization int64, events []webhook.NewEvent, published []webhook.Published) error {
	var wrong []fault.Field
	for i, e := range events {
		published[i] = webhook.Published{}
		if e.IdempotencyKey == "" {
			continue
		}
		var first struct {
			RowID  int64  `db:"id"`
			Type   string `db:"type"`
			At     int64  `db:"created_at"`
			Digest []byte `db:"request_digest"`
		}
		err := t.get(&first, `
			SELECT id, type, created_at, request_digest FROM events
			WHERE organization_id = ? AND idempotency_key = ?`, organization, e.IdempotencyKey)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			continue
		case err != nil:
			return fmt.Errorf("look for idempotency key: %w", err)
		case string(first.Digest) != string(e.Digest[:]):
			wrong = append(wrong, fault.Field{
				Field: fieldOf(i, len(events), "idempotency_key"), Code: "idempotency_key_reused",
				Message: "This key belongs to another event; use a new one.",
			})
			continue
		}
		published[i] = webhook.Published{
			ID: s.ids.id(access.EventID, first.RowID, first.At), Type: first.Type, At: first.At, Replayed: true,
		}
	}
	return fault.Fields(wrong)
}

// fieldOf names a field of the i-th of n events as its publisher wrote it: alone, or in a batch.
func fieldOf(i, n int, name string) string {
	if n == 1 {
		return name
	}
	return fmt.Sprintf("events.%d.%s", i, name)
}

// publish inserts one event and its deliveries. A subscription never receives an event about itself, so a failing endpoint
// cannot cause more failing deliveries: about is the row id of that subscription, 0 where there is none. See newsReceivers
// for news about health.
func (s *Store) publish(t *tx, organization int64, organizationID string, e webhook.NewEvent, about int64) (webhook.Published, error) {
	to, err := receivers(t, organization, about, e.Type)
	if err != nil {
		return webhook.Published{}, err
	}
	if about != 0 && access.HealthNews(e.Type) {
		if to, err = s.newsReceivers(t, organization, about, to); err != nil {
			return webhook.Published{}, err
		}
	}
	row, id, body, err := s.insertEvent(t, organization, organizationID, e, about)
	if err != nil {
		return webhook.Published{}, err
	}
	jobs, err := fanOut(t, row, to)
	if err != nil {
		return webhook.Published{}, err
	}
	t.store(organization, len(jobs)*storedPerDelivery)
	for i := range jobs {
		jobs[i].Event, jobs[i].EventID, jobs[i].EventType, jobs[i].EventAt = row, id, e.Type, t.now
		jobs[i].Body, jobs[i].DueAt, jobs[i].Organization = body, t.now, organization
	}
	s.handOver(t, jobs)
	return webhook.Published{ID: id, Type: e.Type, At: t.now, Deliveries: len(jobs)}, nil
}

// insertEvent stores the event with the bytes that will be sent. They hold its public id, which is computed from its row
// id; so the row id is chosen here rather than by SQLite.
func (s *Store) insertEvent(t *tx, organization int64, organizationID string, e webhook.NewEvent, about int64) (row int64, id string, body []byte, err error) {
	s.lastEvent++
	row = s.lastEvent
	id = s.ids.id(access.EventID, row, t.now)
	body = webhook.AppendEnvelope(make([]byte, 0, len(e.Data)+200), id, e.Type, t.now, organizationID, e.Data)
	var key sql.NullString
	var digest []byte
	if e.IdempotencyKey != "" {
		key, digest = sql.NullString{String: e.IdempotencyKey, Valid: true}, e.Digest[:]
	}
	if _, err := t.exec(`
		INSERT INTO events (id, organization_id, type, created_at, about, body, idempotency_key, request_digest)
		VALUES (?, ?, ?, ?, nullif(?, 0), ?, ?, ?)`, row, organization, e.Type, t.now, about, body, key, digest); err != nil {
		return 0, "", nil, fmt.Errorf("insert event: %w", err)
	}
	t.rows += len(body) / pageSize
	t.store(organization, storedSize(e, 0))
	return row, id, body, nil
}

// fanOut inserts a delivery for each of the receivers of an event.
func fanOut(t *tx, event int64, receivers []int64) ([]webhook.Job, error) {
	jobs := make([]webhook.Job, len(receivers))
	for i, row := range receivers {
		jobs[i].Subscription = row
	}
	for rest := jobs; len(rest) > 0; {
		n := deliveriesAtOnce(len(rest))
		if err := insertDeliveries(t, event, rest[:n]); err != nil {
			return nil, fmt.Errorf("fan out: %w", err)
		}
		rest = rest[n:]
	}
	return jobs, nil
}

// receivers returns the open subscriptions that want an event of the type, if the plan has webhooks. An audit event goes
// only to those with audit_events.
func receivers(t *tx, organization, about int64, eventType string) ([]int64, error) {
	wanting, err := t.wanting(organization, eventType)
	if err != nil {
		return nil, err
	}
	isAudit := access.IsAuditType(eventType)
	open := make([]int64, 0, len(wanting))
	for _, row := range wanting {
		sub, err := t.subscriber(row)
		if err != nil {
			return nil, err
		}
		if sub.open() && row != about && (sub.AuditEvents || !isAudit) {
			open = append(open, row)
		}
	}
	return open, nil
}

// insertDeliveryOf are the statements that insert deliveries of one event, by how many. The parameters are the event, the
// time, and the subscriptions.
var insertDeliveryOf = map[int]string{1: insertStatement(1), 8: insertStatement(8), 64: insertStatement(64)}

func insertStatement(n int) string {
	var b strings.Builder
	b.WriteString("INSERT INTO deliveries (event_id, due_at, subscription_id, state, cause, attempts) VALUES ")
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "(?1, ?2, ?%d, 0, 0, 0)", i+3)
	}
	return b.String()
}

// deliveriesAtOnce returns how many of n deliveries the next statement inserts. A delivery costs a third in a statement of
// 64 of what it costs in one of its own.
func deliveriesAtOnce(n int) int {
	switch {
	case n >= 64:
		return 64
	case n >= 8:
		return 8
	}
	return 1
}

// insertDeliveries inserts so many deliveries of an event as deliveriesAtOnce has returned, and fills in their row ids:
// SQLite numbers the rows of a statement one after the other.
func insertDeliveries(t *tx, event int64, jobs []webhook.Job) error {
	args := make([]any, 0, 2+len(jobs))
	args = append(args, event, t.now)
	for i := range jobs {
		args = append(args, jobs[i].Subscription)
	}
	last, err := t.insert(insertDeliveryOf[len(jobs)], args...)
	for i := range jobs {
		jobs[i].Delivery = last - int64(len(jobs)-1-i)
	}
	return err
}

// handOver counts new pending deliveries and shows them to the dispatcher once they are committed.
func (s *Store) handOver(t *tx, jobs []webhook.Job) {
	if len(jobs) == 0 {
		return
	}
	t.onCommit(func() {
		for _, j := range jobs {
			s.pending.add(j.Subscription, 1)
		}
		if w := s.watcher.Load(); w != nil {
			(*w).Fresh(jobs)
		}
	})
}

// changed tells the dispatcher, once it is committed, that these subscriptions are not what they were. None named means
// any.
func (s *Store) changed(t *tx, subscriptions ...int64) {
	t.known.forget(subscriptions...)
	t.onCommit(func() {
		if w := s.watcher.Load(); w != nil {
			(*w).Changed(subscriptions...)
		}
	})
}

const eventColumns = `
	e.id, o.public_id AS organization_public_id, e.type, e.created_at`

// publishedDeliveries counts the deliveries that an event had when it was published.
const publishedDeliveries = "SELECT count(*) FROM deliveries d WHERE d.event_id = e.id AND d.cause = 0"

// Events lists the events of an organization, newest first, without their bodies. Faults: Unavailable where too many reads
// of its logs are under way.
func (s *Store) Events(ctx context.Context, organization, before int64, limit int) ([]webhook.Event, error) {
	end, err := s.logs.take(ctx, organization)
	if err != nil {
		return nil, err
	}
	defer end()
	events := []webhook.Event{}
	if err := s.logs.list(ctx, &events, `
		SELECT `+eventColumns+`
		FROM events e JOIN organizations o ON o.id = e.organization_id
		WHERE e.organization_id = ? AND e.id < ?
		ORDER BY e.id DESC LIMIT ?`, organization, from(before), limit); err != nil {
		return nil, err
	}
	return events, s.completeEvents(ctx, events)
}

// completeEvents fills in the public ids of events and the numbers of their deliveries.
func (s *Store) completeEvents(ctx context.Context, events []webhook.Event) error {
	for some := range slices.Chunk(events, countedEvents) {
		if err := s.countDeliveries(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// eventSlice is how many events one read of EventsWithoutAudit looks at. A slice takes a few milliseconds, so a long
// stretch of the audit log holds up neither other readers nor checkpoints.
const eventSlice = 2_000

// EventsWithoutAudit is Events without those of the audit log. It looks at slices of the history until it has found enough.
// Faults: Unavailable where that takes too long.
func (s *Store) EventsWithoutAudit(ctx context.Context, organization, before int64, limit int) ([]webhook.Event, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, logLimit, errLateRead)
	defer cancel()
	end, err := s.logs.take(ctx, organization)
	if err != nil {
		return nil, err
	}
	defer end()
	types, err := json.Marshal(access.AuditTypes())
	if err != nil {
		return nil, err
	}
	before = from(before)
	events := []webhook.Event{}
	for more := true; more && len(events) < limit; {
		var first int64 // row id of the oldest event of the slice
		err := s.logs.get(ctx, &first, `
			SELECT id FROM events INDEXED BY events_by_organization
			WHERE organization_id = ? AND id < ? ORDER BY id DESC LIMIT 1 OFFSET ?`, organization, before, eventSlice-1)
		if more = !errors.Is(err, sql.ErrNoRows); more && err != nil {
			return nil, err
		}
		slice := []webhook.Event{}
		if err := s.logs.list(ctx, &slice, `
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

// countedEvents is how many events' deliveries one read counts: each may have thousands.
const countedEvents = 10

// countDeliveries fills in the number of deliveries and the public id of events.
func (s *Store) countDeliveries(ctx context.Context, events []webhook.Event) error {
	place := make(map[int64]int, len(events))
	for i, e := range events {
		place[e.RowID] = i
		events[i].ID = s.ids.id(access.EventID, e.RowID, e.At)
	}
	var counts []struct {
		Event      int64 `db:"id"`
		Deliveries int   `db:"deliveries"`
	}
	err := s.logs.list(ctx, &counts, "SELECT e.id, ("+publishedDeliveries+") AS deliveries FROM (SELECT value AS id FROM json_each(?)) e", rowList(maps.Keys(place)))
	for _, c := range counts {
		events[place[c.Event]].Deliveries = c.Deliveries
	}
	return err
}

// maxEventDeliveries bounds what is shown of one event: a publication makes no more, but redeliveries add up.
const maxEventDeliveries = 10_000

// Event returns an event of an organization and where its deliveries stand, at most maxEventDeliveries of them. Faults:
// NotFound; Unavailable where too many reads of the organization's logs are under way.
func (s *Store) Event(ctx context.Context, organization int64, id string) (webhook.Event, []webhook.Delivery, error) {
	var e webhook.Event
	row, at, ok := s.ids.row(access.EventID, id)
	if !ok {
		return e, nil, fault.Missing("event")
	}
	end, err := s.logs.take(ctx, organization)
	if err != nil {
		return e, nil, err
	}
	defer end()
	err = s.logs.get(ctx, &e, `
		SELECT `+eventColumns+`, (`+publishedDeliveries+`) AS deliveries, e.body
		FROM events e JOIN organizations o ON o.id = e.organization_id
		WHERE e.id = ? AND e.created_at = ? AND e.organization_id = ?`, row, at, organization)
	if err != nil {
		return e, nil, missing(err, "event")
	}
	e.ID = id
	deliveries := []webhook.Delivery{}
	err = s.logs.list(ctx, &deliveries, `
		SELECT s.public_id AS subscription_public_id, d.attempts, d.due_at,
		       CASE WHEN d.state = 0 AND s.deleted_at IS NOT NULL THEN 3 ELSE d.state END AS state
		FROM deliveries d JOIN subscriptions s ON s.id = d.subscription_id
		WHERE d.event_id = ? ORDER BY d.subscription_id, d.id LIMIT ?`, row, maxEventDeliveries)
	return e, deliveries, err
}
