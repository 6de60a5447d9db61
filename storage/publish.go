package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// PublishEvents stores events of an organization and their deliveries in one transaction, all or none. A repeated
// idempotency key gets the first result again.
//
// Faults: Conflict if the organization is closed; Invalid if a key was used for another event, or if the events need more than maxDeliveries deliveries;
// Limited if the plan's bytes of the day do not suffice; Unavailable if the deliveries of a repeated event cannot be
// counted, although the new events were stored.
func (s *Store) PublishEvents(ctx context.Context, organization int64, events []webhook.NewEvent) ([]webhook.Published, error) {
	published := make([]webhook.Published, len(events))
	w := s.workFor(organization).rows(sqlite.UsualCost + len(events)).estimated(func(t *tx) (int, error) {
		return publishCost(t, organization, events)
	})
	err := w.change(ctx, func(t *tx) error {
		o, err := t.organizationID(organization)
		if err != nil {
			return err
		}
		// All checks come before the first write, so a refusal costs the other writes of the batch nothing.
		if err := s.fillRepeated(t, organization, events, published); err != nil {
			return err
		}
		if err := checkPublishLimits(t, organization, events, published); err != nil {
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
	s.observer.Published(countNew(published))
	return published, s.countRepeated(ctx, organization, published)
}

// countRepeated sets how many deliveries the repeated events had when they were published. Each event may have
// thousands. So a log reader counts them, and not the transaction, for which others wait.
func (s *Store) countRepeated(ctx context.Context, organization int64, published []webhook.Published) error {
	var repeated []webhook.Event
	for _, p := range published {
		if p.Replayed {
			row, at, _ := s.ids.Row(access.EventID, p.ID)
			repeated = append(repeated, webhook.Event{RowID: row, At: at})
		}
	}
	if len(repeated) == 0 {
		return nil
	}
	end, err := s.logs.Take(ctx, organization)
	if err != nil {
		return err
	}
	defer end()
	for batch := range slices.Chunk(repeated, eventsPerCount) {
		if _, err := s.countDeliveries(ctx, batch); err != nil {
			return fmt.Errorf("count deliveries: %w", err)
		}
	}
	for i := range published {
		if published[i].Replayed {
			published[i].Deliveries, repeated = repeated[0].Deliveries, repeated[1:]
			if published[i].Deliveries > 0 {
				published[i].Notice = ""
			}
		}
	}
	return nil
}

// fillRepeated sets the results of events whose idempotency key is already stored, without the number of deliveries.
func (s *Store) fillRepeated(t *tx, organization int64, events []webhook.NewEvent, published []webhook.Published) error {
	var problems []fault.Field
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
			Held   *int   `db:"held"`
		}
		get := t.GetBeside
		if t.hasKey(organization, e.IdempotencyKey) {
			get = t.Get
		}
		err := get(&first, `
			SELECT id, type, created_at, request_digest, held FROM events
			WHERE organization_id = ? AND idempotency_key = ?`, organization, e.IdempotencyKey)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			continue
		case err != nil:
			return fmt.Errorf("look for idempotency key: %w", err)
		case string(first.Digest) != string(e.Digest[:]):
			problems = append(problems, fault.Field{
				Field: fieldOf(i, len(events), "idempotency_key"), Code: "idempotency_key_reused",
				Message: "This key belongs to another event; use a new one.",
			})
			continue
		}
		published[i] = webhook.Published{
			ID: s.ids.ID(access.EventID, first.RowID, first.At), Type: first.Type, At: first.At, Replayed: true,
			Notice: webhook.NoticeOf(0, first.Held != nil), // until countRepeated counts the deliveries
		}
		if first.Held != nil {
			published[i].Held = *first.Held
		}
	}
	return fault.Fields(problems)
}

// fieldOf returns the name of a field of the i-th of n events, as the publisher wrote it.
func fieldOf(i, n int, name string) string {
	if n == 1 {
		return name
	}
	return fmt.Sprintf("events.%d.%s", i, name)
}

// publish inserts one event and its deliveries. about is the subscription that the event is about, by row id, or 0. A
// subscription never receives an event about itself, so a failing endpoint cannot cause more failing deliveries. For
// events about health, see healthEventReceivers.
func (s *Store) publish(t *tx, organization int64, organizationID string, e webhook.NewEvent, about int64) (webhook.Published, error) {
	subscriptions, err := receivers(t, organization, about, e.Type)
	if err != nil {
		return webhook.Published{}, err
	}
	if about != 0 && access.HealthNews(e.Type) {
		if subscriptions, err = s.healthEventReceivers(t, organization, about, subscriptions); err != nil {
			return webhook.Published{}, err
		}
	}
	held, err := countHeld(t, organization, subscriptions)
	if err != nil {
		return webhook.Published{}, err
	}
	row, id, body := s.insertEvent(t, organization, organizationID, e, about, held)
	jobs := make([]webhook.Job, len(subscriptions))
	for i, to := range subscriptions {
		s.lastDelivery++
		jobs[i] = webhook.Job{
			Delivery: s.lastDelivery, Subscription: to, Organization: organization, Event: row, EventID: id, EventType: e.Type, EventAt: t.Now(),
			Body: body, DueAt: t.Now(),
		}
		if err := s.setFirstAttempt(t, &jobs[i]); err != nil {
			return webhook.Published{}, err
		}
	}
	t.delayDeliveries(jobs)
	t.countStored(organization, len(jobs)*storedPerDelivery)
	s.announceDeliveries(t, jobs)
	return webhook.Published{
		ID: id, Type: e.Type, At: t.Now(), Deliveries: len(jobs), Held: int(held.Int64), Notice: webhook.NoticeOf(len(jobs), held.Valid),
	}, nil
}

// countHeld counts the disabled ones of the receivers of an event. The count is NULL if the plan has no webhooks, so that
// there are no receivers.
func countHeld(t *tx, organization int64, receivers []int64) (held sql.NullInt64, err error) {
	if held.Valid = len(receivers) > 0; !held.Valid {
		q, err := t.quota(organization)
		if err != nil {
			return held, err
		}
		held.Valid = q.Webhooks
	}
	for _, row := range receivers {
		sub, err := t.cachedSubscription(row)
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
func (s *Store) insertEvent(t *tx, organization int64, organizationID string, e webhook.NewEvent, about int64, held sql.NullInt64) (row int64, id string, body []byte) {
	s.lastEvent++
	row = s.lastEvent
	id = s.ids.ID(access.EventID, row, t.Now())
	body = webhook.AppendEnvelope(make([]byte, 0, len(e.Data)+200), id, e.Type, t.Now(), organizationID, e.Data)
	t.delayEvent(organization, e, row, about, held, body)
	t.countStored(organization, storedSize(e, 0))
	return row, id, body
}

// place is a place that the dispatcher gave to the first attempt of a new delivery.
type place struct{ organization, subscription int64 }

// setFirstAttempt sets the place of a new delivery in the order of its subscription, and whether its first attempt begins in
// this transaction. Then the delivery is sent after the commit, without a transaction for its beginning.
func (s *Store) setFirstAttempt(t *tx, j *webhook.Job) error {
	sub, err := t.cachedSubscription(j.Subscription)
	if err != nil {
		return err
	}
	if sub.Ordered {
		j.Sequence = j.Event
	}
	if j.Begun, err = s.takePlace(t, sub, j); j.Begun {
		j.Epoch = sub.Epoch
	}
	return err
}

// takePlace asks the dispatcher for a place for the first attempt of a new delivery.
func (s *Store) takePlace(t *tx, sub *cachedSubscription, j *webhook.Job) (bool, error) {
	w := s.watcher.Load()
	if w == nil {
		return false, nil
	}
	if hold, err := t.hold(); err != nil || hold != nil {
		return false, err
	}
	if !sub.open() || sub.Status != webhook.Healthy || sub.Ordered && s.pending.of(j.Subscription) > 0 || !(*w).TakePlace(j.Organization, j.Subscription) {
		return false, nil
	}
	t.Wrote(0) // so that a failure of this write undoes the transaction
	if len(t.places) == 0 {
		t.OnCommit(func() { t.places = t.places[:0] })
	}
	t.places = append(t.places, place{j.Organization, j.Subscription})
	if !sub.Ordered {
		return true, nil
	}
	var first bool
	err := t.Get(&first, nothingInFront, j.Subscription)
	if err == nil && !first {
		t.places = t.places[:len(t.places)-1]
		(*w).ReturnPlace(j.Organization, j.Subscription)
	}
	return first, err
}

// returnPlaces gives the places of a transaction back that was rolled back.
func (s *Store) returnPlaces() {
	for _, p := range s.tx.places {
		(*s.watcher.Load()).ReturnPlace(p.organization, p.subscription)
	}
	s.tx.places = s.tx.places[:0]
}

// receivers returns the subscriptions that get an event of a type: none if the plan has no webhooks. The deliveries of
// disabled ones wait. Only subscriptions with audit_events get audit events.
func receivers(t *tx, organization, about int64, eventType string) ([]int64, error) {
	matching, err := t.matching(organization, eventType)
	if err != nil {
		return nil, err
	}
	isAudit := access.IsAuditType(eventType)
	to := make([]int64, 0, len(matching))
	for _, row := range matching {
		sub, err := t.cachedSubscription(row)
		if err != nil {
			return nil, err
		}
		if sub.receives() && row != about && (sub.AuditEvents || !isAudit) {
			to = append(to, row)
		}
	}
	return to, nil
}

// announceDeliveries passes new pending deliveries to the pending count and to the dispatcher, after the commit.
func (s *Store) announceDeliveries(t *tx, jobs []webhook.Job) {
	if len(jobs) == 0 {
		return
	}
	if t.created == nil {
		created := &createdDeliveries{index: map[int64]int{}}
		t.created = created
		t.OnCommit(func() {
			t.created = nil
			s.announceCreated(created)
		})
	}
	t.created.add(jobs)
}

// createdDeliveries are new deliveries of a transaction, by organization.
type createdDeliveries struct {
	index map[int64]int // of jobs, by organization
	jobs  [][]webhook.Job
}

// add adds deliveries of one organization.
func (c *createdDeliveries) add(jobs []webhook.Job) {
	organization := jobs[0].Organization
	if i, ok := c.index[organization]; ok {
		c.jobs[i] = append(c.jobs[i], jobs...)
		return
	}
	c.index[organization] = len(c.jobs)
	c.jobs = append(c.jobs, jobs)
}

func (s *Store) announceCreated(created *createdDeliveries) {
	w := s.watcher.Load()
	for _, jobs := range created.jobs {
		s.pending.addAll(jobs)
		if w != nil {
			(*w).DeliveriesCreated(jobs)
		}
	}
}

// announceChange tells the dispatcher, after the commit, that these subscriptions have changed. No subscription means
// any.
func (s *Store) announceChange(t *tx, subscriptions ...int64) {
	t.cache.invalidate(subscriptions...)
	t.created = nil // the watcher receives later deliveries after this change
	t.OnCommit(func() {
		if w := s.watcher.Load(); w != nil {
			(*w).SubscriptionsChanged(subscriptions...)
		}
	})
}

const (
	// maxDeliveries limits the deliveries of one request. They take the writer about a tenth of a second, and all
	// other writes wait for it.
	maxDeliveries = 10_000
	// pageSize is the size of a database page in bytes. Writing a page takes about as long as writing a row.
	pageSize = 4096
)

// publishCost returns about how many rows the events will write.
func publishCost(t *tx, organization int64, events []webhook.NewEvent) (int, error) {
	cost, err := estimateDeliveries(t, organization, events)
	for _, e := range events {
		cost += 1 + len(e.Data)/pageSize
	}
	return cost, err
}

// estimateDeliveries returns an upper bound of the deliveries of events. It stops counting above maxDeliveries.
func estimateDeliveries(t *tx, organization int64, events []webhook.NewEvent) (count int, err error) {
	for i := 0; i < len(events) && count <= maxDeliveries; i++ {
		matching, err := t.matching(organization, events[i].Type)
		if err != nil {
			return 0, err
		}
		count += len(matching)
	}
	return count, nil
}

// checkPublishLimits refuses events with too many deliveries, or with more bytes than the plan allows today. It stops
// at the first delivery too many, so a refusal costs no more than an acceptance. Faults: Invalid, Limited; Conflict for a closed
// organization.
func checkPublishLimits(t *tx, organization int64, events []webhook.NewEvent, published []webhook.Published) error {
	estimate, err := estimateDeliveries(t, organization, events)
	if err != nil {
		return err
	}
	q, err := t.quota(organization)
	if err == nil && q.Closed {
		err = directory.ErrClosed
	}
	if err != nil || estimate <= maxDeliveries && q.Limit == nil {
		return err
	}
	deliveries, bytes := 0, 0
	for i, e := range events {
		if published[i].Replayed {
			continue
		}
		subscriptions, err := receivers(t, organization, 0, e.Type)
		if err != nil {
			return err
		}
		if deliveries += len(subscriptions); deliveries > maxDeliveries {
			return tooManyDeliveries(i, deliveries, len(events))
		}
		bytes += storedSize(e, len(subscriptions))
	}
	if bytes == 0 {
		return nil
	}
	return requireStorage(t, organization, bytes)
}

// tooManyDeliveries says how many deliveries the first events of n need, up to the i-th.
func tooManyDeliveries(i, deliveries, n int) error {
	if n == 1 {
		return fault.New(fault.Invalid, "too_many_deliveries",
			"This event needs %d deliveries; one request may create at most %d. Narrow the event_types of your subscriptions.",
			deliveries, maxDeliveries)
	}
	return fault.New(fault.Invalid, "too_many_deliveries",
		"The first %d of these %d events need %d deliveries; one request may create at most %d. "+
			"Nothing was published. Split the batch: send at most %d of these events in a request.",
		i+1, n, deliveries, maxDeliveries, max(i, 1))
}
