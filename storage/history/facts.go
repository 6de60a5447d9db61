package history

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// EventFacts returns what is stored about an event. Faults: NotFound; Unavailable if too many reads of the organization's logs are running.
func (h *History) EventFacts(ctx context.Context, organization int64, id string) (webhook.EventFacts, error) {
	row, at, ok := h.o.IDs.Row(access.EventID, id)
	if !ok {
		return webhook.EventFacts{}, fault.Missing("event")
	}
	isOld, hold := at < h.oldBefore(), h.o.Hold()
	mayExpire := isOld && hold == nil // while the queue is held, retention deletes nothing
	e, err := sqlite.One[webhook.EventFacts](h.o.Logs.InTurn(ctx, organization), "event", selectEventFacts, row, at, organization, mayExpire)
	e.Hold, e.Kept = hold, h.EventRetention()
	return e, missingEvent(err, isOld)
}

const selectEventFacts = `
	SELECT e.id, e.type, e.created_at, coalesce(e.about, 0) AS about, coalesce(about.url, '') AS about_url, p.name AS plan,
	       ` + delivery.IsTest + ` AS is_test,
	       e.held IS NULL AS plan_lacked, CASE WHEN ?4 THEN NOT ` + delivery.EventWaits + ` ELSE 0 END AS expired,
	       coalesce((SELECT w.name FROM plans w WHERE w.webhooks AND w.api_keys >= p.api_keys ORDER BY w.id LIMIT 1), '') AS webhook_plan
	FROM events e
	CROSS JOIN organizations o ON o.id = e.organization_id CROSS JOIN plans p ON p.id = o.plan_id
	LEFT JOIN subscriptions about ON about.id = e.about
	WHERE e.id = ?1 AND e.created_at = ?2 AND e.organization_id = ?3`

// missingEvent says that retention deletes events as old as the id, if the event was not found. The id tells its age, so this
// reveals nothing about events of others.
func missingEvent(err error, isOld bool) error {
	if !isOld || fault.KindOf(err) != fault.NotFound {
		return err
	}
	return fault.New(fault.NotFound, "not_found",
		"There is no such event. This id is older than storage.retention_events, and older events are deleted.")
}

type receiverRow struct {
	webhook.ReceiverFacts
	DeliveriesJSON string  `db:"deliveries"` // an array of webhook.DeliveryFacts, without the ids of the attempts
	FrontJSON      *string `db:"front"`      // a webhook.FrontFacts, without the id of the event
}

// receiverColumns has one snapshot of everything about a subscription and the event ?5. Only redeliveries and replays create
// more than one delivery, and twenty tell enough. They are those that came furthest, because these decide the verdict.
var receiverColumns = SubscriptionColumns + `, s.birth, s.deleted_at, ` + firstColumn + `, (
	SELECT json_group_array(json_object('RowID', own.id, 'State', iif(own.state >= ` + delivery.Sending + `, ` + delivery.Pending + `, own.state), 'Sending', ` + isSending("own") + `,
		'Cause', own.cause, 'Attempts', own.attempts, 'DueAt', own.due_at, 'OutOfOrder', json(iif(own.sequence = 0, 'true', 'false')), 'Last', json((
		SELECT json_object('RowID', a.id, 'Number', a.attempt_number, 'Outcome', a.outcome, 'ResponseStatus', a.response_status, 'Error', a.error, 'AttemptedAt', a.attempted_at,
			'DurationMS', a.duration_ms)
		FROM attempts a WHERE ` + delivery.Attempts("own.id", "own.id") + ` ORDER BY a.id DESC LIMIT 1))))
	FROM (SELECT id, state, cause, attempts, due_at, sequence FROM deliveries d WHERE event_id = ?5 AND subscription_id = s.id
		ORDER BY ` + delivery.Progress + ` DESC, id DESC LIMIT 20) own) AS deliveries,
	` + frontColumn

// isSending returns an SQL expression of a JSON value: whether an attempt of a delivery is in progress.
func isSending(alias string) string {
	return `json(iif(` + alias + `.state >= ` + delivery.Sending + `, 'true', 'false'))`
}

// ReceiverPage returns what is stored about an event and the subscriptions of its organization. Faults: NotFound if the filter
// names an unknown subscription; Unavailable if too many reads of the organization's logs are running.
func (h *History) ReceiverPage(ctx context.Context, organization int64, e webhook.EventFacts, f webhook.ReceiverFilter) (page access.Page[webhook.ReceiverFacts], err error) {
	var found access.Page[receiverRow]
	if f.ID != "" {
		found.Rows = make([]receiverRow, 1)
		found.Rows[0], err = sqlite.One[receiverRow](h.o.Logs.InTurn(ctx, organization), "subscription",
			selectReceiver, organization, f.ID, nil, nil, e.RowID)
	} else {
		list := scan.List[receiverRow]{
			Logs: h.o.Logs, Table: "subscriptions s", Index: "subscriptions_by_organization", Columns: receiverColumns,
			Joins: SubscriptionJoins, Where: "(s.deleted_at IS NULL OR s.deleted_at >= ?6)",
		}
		found, err = list.Page(ctx, scan.Query{
			Organization: organization, Before: f.Before, Limit: f.Limit, Args: []any{e.RowID, e.At},
			Filtered: true, // deleted subscriptions add up, as a log does
		})
	}
	if err != nil {
		return page, err
	}
	page = access.Page[webhook.ReceiverFacts]{Rows: make([]webhook.ReceiverFacts, len(found.Rows)), Next: found.Next}
	for i, row := range found.Rows {
		if page.Rows[i], err = h.receiverFacts(row, e); err != nil {
			return page, err
		}
	}
	return page, h.setMissed(ctx, organization, e, page.Rows)
}

// setMissed evaluates the filters of the subscriptions that have no delivery of the event, or whose filter has changed since.
func (h *History) setMissed(ctx context.Context, organization int64, e webhook.EventFacts, receivers []webhook.ReceiverFacts) error {
	var d *filter.Document
	for i := range receivers {
		r := &receivers[i]
		if len(r.Filter) == 0 || len(r.Deliveries) > 0 && (r.FilterChangedAt == nil || *r.FilterChangedAt < e.At) {
			continue
		}
		if d == nil {
			end, err := h.o.Logs.Take(ctx, organization)
			if err != nil {
				return err
			}
			defer end() // after the evaluations, because they take time too
			var body []byte
			if err = h.o.Logs.Get(ctx, &body, "SELECT body FROM events WHERE id = ?", e.RowID); err != nil {
				return sqlite.Missing(err, "event")
			}
			d = filter.DocumentOfBody(body)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		r.Missed = r.Filter.Miss(d)
	}
	return nil
}

// selectReceiver is a page of one subscription. It has its event in ?5, because receiverColumns is also a part of a list.
var selectReceiver = "SELECT " + receiverColumns + " FROM subscriptions s" + SubscriptionJoins + `
	WHERE s.organization_id = ?1 AND s.public_id = ?2`

func (h *History) receiverFacts(row receiverRow, e webhook.EventFacts) (webhook.ReceiverFacts, error) {
	f := row.ReceiverFacts
	h.Complete(&f.Subscription, e.Hold)
	if err := json.Unmarshal([]byte(row.DeliveriesJSON), &f.Deliveries); err != nil {
		return f, fmt.Errorf("read deliveries: %w", err)
	}
	for _, d := range f.Deliveries {
		if d.Last != nil {
			d.Last.ID = h.o.IDs.ID(access.AttemptID, d.Last.RowID, d.Last.AttemptedAt)
		}
	}
	if row.FrontJSON != nil {
		if err := json.Unmarshal([]byte(*row.FrontJSON), &f.Front); err != nil {
			return f, fmt.Errorf("read the first delivery: %w", err)
		}
		f.Front.EventID = h.o.IDs.ID(access.EventID, f.Front.Event, f.Front.EventAt)
	}
	return f, nil
}

// frontColumn is ReceiverFacts.Front of a subscription s, in JSON.
var frontColumn = `iif(s.ordered, (
	SELECT json_object('Event', front.event_id, 'EventAt', e.created_at, 'SharesAt', json(iif((
		SELECT next.created_at FROM deliveries d INDEXED BY deliveries_ordered CROSS JOIN events next ON next.id = d.event_id
		WHERE d.subscription_id = s.id AND d.state = ` + delivery.Pending + ` AND d.sequence > front.event_id ORDER BY d.sequence LIMIT 1) <= e.created_at, 'true', 'false')),
		'Sending', ` + isSending("front") + `, 'Attempts', front.attempts, 'DueAt', front.due_at)
	FROM deliveries front CROSS JOIN events e ON e.id = front.event_id WHERE front.id = coalesce((
		SELECT d.id FROM deliveries d INDEXED BY deliveries_sending
		WHERE d.subscription_id = s.id AND d.state >= ` + delivery.Sending + ` AND d.cause <> ` + delivery.CauseTest + ` LIMIT 1), (` + delivery.FirstInOrder("s.id") + `))), NULL) AS front`
