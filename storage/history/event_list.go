package history

import (
	"context"
	"math"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// EventPage lists the events of an organization, or of access.AllOrganizations, newest first and without their bodies. Faults:
// NotFound for the subscription of the filter, which may be deleted; Unavailable if too many reads of the organization's logs are running.
func (h *History) EventPage(ctx context.Context, organization int64, f webhook.EventFilter) (page access.Page[webhook.Event], err error) {
	query, err := h.eventQuery(ctx, organization, f)
	if err != nil {
		return page, err
	}
	if f.IdempotencyKey != "" {
		page.Rows, err = h.eventsByIdempotencyKey(ctx, query, f)
	} else {
		list := scan.List[webhook.Event]{
			Logs: h.o.Logs, Table: "events e", Index: "events_by_organization", Columns: eventColumns, Joins: eventJoins,
			Where: listedEvents + inState(f),
		}
		page, err = list.Page(ctx, query)
	}
	if err != nil {
		return page, err
	}
	// Events of many subscriptions have many deliveries. So the page ends after the event at which the counts have read as many rows as
	// a search may read.
	counted, err := h.CountDeliveries(ctx, organization, page.Rows, h.o.Logs.Limits.Rows)
	if err == nil && counted < len(page.Rows) {
		page.Rows, page.Next = page.Rows[:counted], page.Rows[counted-1].RowID
	}
	return page, err
}

// EventRows lists the row ids of the events that EventPage lists for a filter without an idempotency key, up to f.Limit of them.
// Faults: as EventPage.
func (h *History) EventRows(ctx context.Context, organization int64, f webhook.EventFilter) (rows []int64, err error) {
	query, err := h.eventQuery(ctx, organization, f)
	if err != nil {
		return nil, err
	}
	list := scan.List[int64]{Logs: h.o.Logs, Table: "events e", Index: "events_by_organization", Columns: "e.id", Where: listedEvents + inState(f)}
	for {
		page, err := list.Page(ctx, query)
		rows = append(rows, page.Rows...)
		if err != nil || page.Next == 0 || len(rows) >= f.Limit {
			return rows, err
		}
		query.Before, query.Limit = page.Next, f.Limit-len(rows)
	}
}

// listedEvents is the condition for the events that a filter selects. Its parameters are Query.Args.
const listedEvents = `
	e.type >= ?5 AND e.type < ?6 AND e.created_at >= ?7 AND e.created_at < ?8 AND e.type NOT IN (SELECT value FROM json_each(?9))`

func (h *History) eventQuery(ctx context.Context, organization int64, f webhook.EventFilter) (q scan.Query, err error) {
	var subscription int64
	if f.Subscription != "" {
		if subscription, err = h.LoggedSubscription(ctx, organization, f.Subscription); err != nil {
			return q, err
		}
	}
	firstType, endType := f.TypeRange()
	until, expiredBefore := scan.UpperBound(f.Until), h.oldBefore()
	if h.o.Hold() != nil { // while the queue is held, retention deletes nothing
		expiredBefore = 0
	}
	q = scan.Query{
		Organization: organization, Before: f.Before, Limit: f.Limit,
		Filtered: f.Type != "" || f.Since != 0 || f.Until != 0 || f.WithoutAudit,
		Args:     []any{firstType, endType, f.Since, until, HiddenTypes(f.WithoutAudit), subscription, expiredBefore},
	}
	if f.State != "" || f.Subscription != "" {
		q.Filtered, q.Slice = true, eventsPerCount
	}
	if f.Since == 0 && f.Until == 0 {
		return q, nil
	}
	period, err := h.EventPeriod(ctx, f.Since, until)
	q.First, q.Before = period.After+1, min(scan.UpperBound(f.Before), period.Last+1)
	return q, err
}

// oldBefore returns the time before which events are too old to be kept; 0 if there is none.
func (h *History) oldBefore() int64 {
	if kept := h.EventRetention(); kept > 0 {
		return time.Now().Add(-kept).UnixMilli()
	}
	return 0
}

// inState is the condition for the events that have a delivery in the state of a filter, without tests. It has the parameters of
// listedEvents.
func inState(f webhook.EventFilter) string {
	if f.State == "" && f.Subscription == "" {
		return ""
	}
	own := "EXISTS (SELECT 1 FROM deliveries d INDEXED BY deliveries_by_event WHERE d.event_id = e.id"
	if f.Subscription != "" {
		own += " AND d.subscription_id = ?10"
	}
	if condition := listedStates[f.State]; condition != "" {
		own += " AND " + condition
	}
	own += ")"
	switch f.State {
	case "":
		return " AND " + own
	case webhook.AnyExpired:
		own = "e.created_at < ?11 AND " + own + " AND NOT " + delivery.EventWaits
	case webhook.ForNobody:
		own = "NOT " + own
	}
	return " AND " + delivery.NotTest + " AND " + own
}

// listedStates are the conditions for the deliveries for which a filter looks. Only a running test is exhausted by delivery.State alone.
var listedStates = map[webhook.EventState]string{
	webhook.AnyDelivered: "d.state = " + delivery.Delivered, webhook.AnyExhausted: "d.state = " + delivery.Exhausted,
	webhook.AnyDropped: delivery.State + " = " + delivery.Dropped,
	webhook.AnyPending: delivery.State + " = " + delivery.Pending, webhook.AnyExpired: delivery.State + " = " + delivery.Pending,
}

// HiddenTypes returns, as a JSON array, the event types that a caller does not see: those of audit events if withoutAudit is true,
// otherwise none.
func HiddenTypes(withoutAudit bool) string {
	if !withoutAudit {
		return "[]"
	}
	return sqlite.TextList(access.AuditTypes())
}

// EventPeriod returns a range with all events of a period. It contains few others, unless the clock was wrong.
func (h *History) EventPeriod(ctx context.Context, since, until int64) (scan.Range, error) {
	var found struct {
		Newest   int64  `db:"newest"`
		Disorder []byte `db:"disorder"`
	}
	if err := h.o.Logs.Get(ctx, &found, `
		SELECT coalesce((SELECT max(id) FROM events), 0) AS newest, (SELECT value FROM instance WHERE name = ?) AS disorder`, scan.DisorderName); err != nil {
		return scan.Range{}, err
	}
	ranges, err := h.o.Logs.Period(ctx, since, until, scan.Range{Last: found.Newest}, scan.DecodeDisorder(found.Disorder))
	if err != nil || len(ranges) == 0 {
		return scan.Range{After: math.MaxInt64 - 1}, err
	}
	return scan.Range{After: ranges[0].After, Last: ranges[len(ranges)-1].Last}, nil
}

// eventsByIdempotencyKey finds the event of each organization with that key. The index finds each of them at once.
func (h *History) eventsByIdempotencyKey(ctx context.Context, q scan.Query, f webhook.EventFilter) ([]webhook.Event, error) {
	organization := "e.organization_id = ?1"
	if q.Organization == access.AllOrganizations {
		organization = "?1 = 0"
	}
	args := append([]any{q.Organization, q.First, scan.UpperBound(q.Before), q.Limit}, append(q.Args, f.IdempotencyKey)...)
	return sqlite.All[webhook.Event](h.o.Logs.InTurn(ctx, q.Organization), `
		SELECT `+eventColumns+` FROM events e INDEXED BY events_by_idempotency_key `+eventJoins+`
		WHERE e.idempotency_key = ?12 AND `+organization+` AND e.id >= ?2 AND e.id < ?3 AND `+listedEvents+inState(f)+`
		ORDER BY e.id DESC LIMIT ?4`, args...)
}
