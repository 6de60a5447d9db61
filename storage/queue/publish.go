package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fanout"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// PublishEvents stores events of an organization and their deliveries in one transaction, all or none. A repeated idempotency key gets the
// first result again. Faults: Conflict if the organization is closed; Invalid if a key was used for another event, or if the events need
// more than maxDeliveries deliveries; Limited if the plan's bytes of the day do not suffice; Unavailable if the deliveries of a repeated
// event cannot be counted, although the new events were stored.
func (q *Queue) PublishEvents(ctx context.Context, organization int64, events []webhook.NewEvent) ([]webhook.Published, error) {
	published := make([]webhook.Published, len(events))
	work := sqlite.Work{Payer: organization, Cost: sqlite.UsualCost + len(events), Whole: true, Measure: func(now *sqlite.Tx) (int, error) {
		return publishCost(q.o.Memory.with(now), organization, events)
	}}
	err := q.change(ctx, work, func(t *tx) (err error) {
		// All checks come before the first write, so a refusal costs the other writes of the batch nothing.
		if err := t.fillRepeated(organization, events, published); err != nil {
			return err
		}
		audiences, err := checkPublishLimits(t, organization, events, published)
		if err != nil {
			return err
		}
		t.Quotas.Add(t.Tx, organization, access.OrganizationUse{Events: int64(countNew(published))})
		for i, e := range events {
			if published[i].Repeated {
				continue
			}
			e.Mark = t.Catalogued.Mark(e.Type)
			if published[i], err = t.publishTo(organization, e, 0, audiences[i]); err != nil {
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
func (t *tx) publish(organization int64, e webhook.NewEvent, about int64) (published webhook.Published, err error) {
	receivers, err := t.receivers(organization, about, e.Type)
	if err != nil {
		return published, err
	}
	to, err := t.audienceOf(receivers, e.Data)
	if err != nil {
		return published, err
	}
	return t.publishTo(organization, e, about, to)
}

// audience are those who want an event.
type audience struct {
	subscriptions []*fanout.Subscription // that get a delivery
	feeds         int                    // that pass, and get none
	filtered      int                    // subscriptions and feeds whose filter the event does not pass
}

// audienceOf evaluates the filters of receivers. It changes the slice.
func (t *tx) audienceOf(receivers []*fanout.Subscription, data []byte) (audience, error) {
	to, feeds, err := t.Fanout.Passing(t.Tx, receivers, data)
	return audience{to, feeds, len(receivers) - len(to) - feeds}, err
}

// publishTo is publish to an audience that is known already.
func (t *tx) publishTo(organization int64, e webhook.NewEvent, about int64, to audience) (published webhook.Published, err error) {
	has, err := t.Quotas.Of(t.Tx, organization)
	if err != nil {
		return published, err
	}
	subscriptions, feeds, filtered := to.subscriptions, to.feeds, to.filtered
	if about != 0 && access.HealthNews(e.Type) {
		if subscriptions, err = t.Fanout.HealthNewsReceivers(t.Tx, organization, about, subscriptions); err != nil {
			return published, err
		}
	}
	if feeds > 0 && len(subscriptions) == 0 {
		filtered = webhook.OnlyFeeds
	}
	held := 0
	for _, sub := range subscriptions {
		if sub.Status == webhook.Disabled {
			held++
		}
	}
	event := t.insertEvent(organization, has, e, about, held, filtered)
	jobs := make([]webhook.Job, len(subscriptions))
	for i, sub := range subscriptions {
		t.lastDelivery++
		jobs[i] = event
		jobs[i].Delivery, jobs[i].Subscription, jobs[i].DueAt = t.lastDelivery, sub.RowID, t.Now()
		if err := t.setFirstAttempt(sub, &jobs[i]); err != nil {
			return published, err
		}
	}
	t.delayDeliveries(jobs)
	t.Quotas.Count(t.Tx, organization, len(jobs)*quota.PerDelivery)
	t.announceDeliveries(jobs)
	return webhook.Published{
		ID: event.EventID, Type: e.Type, At: t.Now(), Deliveries: len(jobs), Held: held, Mark: e.Mark,
		Notice: webhook.NoticeOf(len(jobs), filtered, has.Webhooks, e.Mark),
	}, nil
}

// insertEvent stores the event with the exact bytes to send, and returns what its deliveries have in common. The bytes contain the
// public id, which is computed from the row id. So this function chooses the row id, and not SQLite. The row is written later; see
// newRows. The number of held deliveries is NULL if the plan has no webhooks, so that there are no receivers.
func (t *tx) insertEvent(organization int64, has *quota.Quota, e webhook.NewEvent, about int64, held, filtered int) webhook.Job {
	t.lastEvent++
	j := webhook.Job{
		Organization: organization, Event: t.lastEvent, EventID: t.IDs.ID(access.EventID, t.lastEvent, t.Now()),
		EventType: e.Type, EventAt: t.Now(),
	}
	j.Body = webhook.AppendEnvelope(make([]byte, 0, len(e.Data)+200), j.EventID, e.Type, t.Now(), has.ID, e.Data, e.Mark)
	t.delayEvent(j, e, about, sql.NullInt64{Int64: int64(held), Valid: has.Webhooks}, filtered)
	t.Quotas.Count(t.Tx, organization, quota.Size(e, 0))
	return j
}

// countRepeated sets how many deliveries the repeated events had when they were published. Each event may have
// thousands. So a log reader counts them, and not the transaction, for which others wait.
func (q *Queue) countRepeated(ctx context.Context, organization int64, published []webhook.Published) error {
	var repeated []webhook.Event
	for _, p := range published {
		if p.Repeated {
			row, at, _ := q.o.Memory.IDs.Row(access.EventID, p.ID)
			repeated = append(repeated, webhook.Event{RowID: row, At: at})
		}
	}
	if len(repeated) == 0 {
		return nil
	}
	// Other events of the request are stored, so it waits as long as it may for its turn. A refusal would have them published twice.
	for {
		_, err := q.o.History.CountDeliveries(ctx, organization, repeated, math.MaxInt)
		if err == nil {
			break
		}
		if fault.KindOf(err) != fault.Unavailable || scan.Pause(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("count deliveries: %w", err)
		}
	}
	for i := range published {
		if published[i].Repeated {
			published[i].Deliveries, repeated = repeated[0].Deliveries, repeated[1:]
			if published[i].Deliveries > 0 {
				published[i].Notice = webhook.NoticeOf(published[i].Deliveries, 0, true, published[i].Mark)
			}
		}
	}
	return nil
}

// fillRepeated sets the results of events whose idempotency key is already stored, without the number of deliveries.
func (t *tx) fillRepeated(organization int64, events []webhook.NewEvent, published []webhook.Published) error {
	var problems []fault.Field
	for i, e := range events {
		published[i] = webhook.Published{}
		if e.IdempotencyKey == "" {
			continue
		}
		var first struct {
			RowID    int64        `db:"id"`
			Type     string       `db:"type"`
			At       int64        `db:"created_at"`
			Digest   []byte       `db:"request_digest"`
			Held     *int         `db:"held"`
			Filtered int          `db:"filtered"`
			Mark     webhook.Mark `db:"mark"`
		}
		get := t.GetBeside
		if _, isNew := t.newRows.keys[idempotencyKey{organization, e.IdempotencyKey}]; isNew {
			get = t.Get
		}
		err := get(&first, `
			SELECT id, type, created_at, request_digest, held, coalesce(filtered, 0) AS filtered, coalesce(mark, 0) AS mark FROM events
			WHERE organization_id = ? AND idempotency_key = ?`, organization, e.IdempotencyKey)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			continue
		case err != nil:
			return fmt.Errorf("look for idempotency key: %w", err)
		case string(first.Digest) != string(e.Digest[:]):
			problems = append(problems, fault.Field{
				Field: e.Path + "idempotency_key", Code: "idempotency_key_reused", Message: "This key belongs to another event; use a new one.",
			})
			continue
		}
		published[i] = webhook.Published{
			ID: t.IDs.ID(access.EventID, first.RowID, first.At), Type: first.Type, At: first.At, Mark: first.Mark, Repeated: true,
			Notice: webhook.NoticeOf(0, first.Filtered, first.Held != nil, first.Mark), // until countRepeated counts the deliveries
		}
		access.Set(&published[i].Held, first.Held)
	}
	return fault.Fields(problems)
}

// countNew counts the events that were not repeated.
func countNew(published []webhook.Published) (n int) {
	for i := range published {
		if !published[i].Repeated {
			n++
		}
	}
	return n
}

const (
	// maxDeliveries limits the deliveries of one request. They take the writer about a tenth of a second, and all other writes wait for it.
	maxDeliveries = 10_000
	// pageSize is the size of a database page in bytes. Writing a page takes about as long as writing a row.
	pageSize = 4096
	// parsedPerRow and filtersPerRow are how many bytes of an event can be read, and how many filters be evaluated, while a row is written.
	parsedPerRow, filtersPerRow = 256, 4
	// maxFilters and maxFiltered limit the filters that one request may evaluate, and the bytes of the events that they look into. Each
	// takes the writer about a tenth of a second.
	maxFilters  = 100_000
	maxFiltered = 4 << 20
	// maxWanted limits how often the subscriptions of a batch want its events, feeds included: they make no delivery, but each is looked at.
	maxWanted = 100_000
)

// receivers returns the subscriptions that get an event of a type; see fanout.Cache.Receivers. If the plan has no webhooks, it looks at
// none of them.
func (t *tx) receivers(organization, about int64, eventType string) ([]*fanout.Subscription, error) {
	has, err := t.Quotas.Of(t.Tx, organization)
	if err != nil || !has.Webhooks {
		return nil, err
	}
	return t.Fanout.Receivers(t.Tx, organization, about, eventType)
}

// publishCost returns about how many rows the events will write. To look into an event for a filter takes as long as some rows. It stops
// counting above maxDeliveries: others wait meanwhile, and the events may be refused.
func publishCost(t *tx, organization int64, events []webhook.NewEvent) (cost int, err error) {
	for i := 0; i < len(events) && cost <= maxDeliveries; i++ {
		receivers, err := t.receivers(organization, 0, events[i].Type)
		if err != nil {
			return 0, err
		}
		cost += len(receivers) + 1 + len(events[i].Data)/pageSize
		if n, unread := t.Fanout.Filters(receivers); n > 0 {
			cost += len(events[i].Data)/parsedPerRow + (n+unread*fanout.ReadCost)/filtersPerRow
		}
	}
	return cost, nil
}

// checkPublishLimits refuses events with too many deliveries, or with more bytes than the plan allows today. It stops at the first
// delivery too many, so a refusal costs no more than an acceptance. It returns the audience of each new event, so that each filter is
// evaluated once. Faults: Invalid, Limited; Conflict for a closed organization.
func checkPublishLimits(t *tx, organization int64, events []webhook.NewEvent, published []webhook.Published) ([]audience, error) {
	if _, err := t.Quotas.OfOpen(t.Tx, organization); err != nil {
		return nil, err
	}
	audiences := make([]audience, len(events))
	deliveries, wanted, filters, filtered, bytes := 0, 0, 0, 0, 0
	for i, e := range events {
		if published[i].Repeated {
			continue
		}
		receivers, err := t.receivers(organization, 0, e.Type)
		if err != nil {
			return nil, err
		}
		if n, unread := t.Fanout.Filters(receivers); n > 0 {
			filters, filtered = filters+n, filtered+len(e.Data)
			if i > 0 { // the first event may be the first since the start, and reads all of them
				filters += unread * fanout.ReadCost
			}
		}
		if i > 0 && (filters > maxFilters || filtered > maxFiltered) { // an event alone cannot be split
			return nil, fault.New(fault.Invalid, "too_many_filters", "Subscriptions with filters want these events, and one request may evaluate at most %d filters "+
				"on %d MiB of events. A filter that does not fit into memory counts as %d. Nothing was published. "+
				"Split the batch: send at most %d of these events in a request.", maxFilters, maxFiltered>>20, fanout.ReadCost, i)
		}
		if wanted += len(receivers); i > 0 && wanted > maxWanted {
			return nil, fault.New(fault.Invalid, "too_many_deliveries", "Subscriptions and feeds want the first %d of these %d events %d times in all, and one "+
				"request may have at most %d. Nothing was published. Split the batch: send at most %d of these events in a request.",
				i+1, len(events), wanted, maxWanted, i)
		}
		if audiences[i], err = t.audienceOf(receivers, e.Data); err != nil {
			return nil, err
		}
		to := len(audiences[i].subscriptions)
		if deliveries += to; deliveries > maxDeliveries {
			return nil, tooManyDeliveries(i, deliveries, len(events))
		}
		bytes += quota.Size(e, to)
	}
	if bytes == 0 {
		return audiences, nil
	}
	return audiences, t.Quotas.Require(t.Tx, organization, bytes)
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
