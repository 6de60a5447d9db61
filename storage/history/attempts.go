package history

import (
	"context"
	"database/sql"
	"math"
	"slices"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Attempts that have ended, in SQL.
const (
	attemptColumns = `
		a.id AS id, s.public_id AS subscription_public_id, d.event_id, e.type AS event_type, e.created_at AS event_at,
		a.attempt_number, a.cause, a.outcome, a.response_status, a.response_body, a.response_headers, a.duration_ms, a.error, a.attempted_at,
		iif(d.state = ` + delivery.Pending + ` AND d.attempts = a.attempt_number, min(a.next_attempt_at, d.due_at), NULL) AS next_attempt_at`

	attemptJoins = `
		CROSS JOIN deliveries d ON d.id = a.delivery_id
		CROSS JOIN events e ON e.id = d.event_id
		CROSS JOIN subscriptions s ON s.id = a.subscription_id` // SQLite reads the attempts first, whatever the filters are
)

// Attempts in progress, with the same columns. Only their deliveries are in the file. A statement that reads both kinds
// sees each attempt once, even if it ends at that time.
const (
	sendingColumns = delivery.AttemptRow + ` AS id, s.public_id AS subscription_public_id, d.event_id, e.type AS event_type, e.created_at AS event_at,
		d.attempts + 1 AS attempt_number, ` + delivery.AttemptCause + ` AS cause, ` + delivery.OutcomeSending + ` AS outcome, NULL AS response_status,
		'' AS response_body, '' AS response_headers, 0 AS duration_ms, '' AS error, d.due_at AS attempted_at, NULL AS next_attempt_at`

	sendingJoins = `
		CROSS JOIN events e ON e.id = d.event_id
		CROSS JOIN subscriptions s ON s.id = d.subscription_id`
)

// AttemptPage lists the attempts of a subscription, newest first. The log of a deleted subscription stays readable
// until retention deletes it. Faults: NotFound; Unavailable if too many reads of the organization's logs are running.
func (h *History) AttemptPage(ctx context.Context, organization int64, id string, f webhook.AttemptFilter) (webhook.AttemptPage, error) {
	page := webhook.AttemptPage{Attempts: []webhook.Attempt{}}
	row, err := h.LoggedSubscription(ctx, organization, id)
	if err != nil {
		return page, err
	}
	end, err := h.o.Logs.Take(ctx, organization)
	if err != nil {
		return page, err
	}
	defer end()
	q, ok, err := h.attemptQuery(ctx, row, f)
	if err != nil || !ok {
		return page, err
	}
	q.attempts = &page.Attempts
	high := scan.Position{At: f.BeforeAt, Row: f.Before}
	if f.Before == 0 {
		high = scan.Position{At: math.MaxInt64, Row: math.MaxInt64}
	}
	if f.Until != 0 && f.Until <= high.At {
		high = scan.Position{At: f.Until}
	}
	var next scan.Position
	if q.filtered {
		next, err = h.o.Logs.Walk(ctx, high, q, 0)
	} else {
		err = h.o.Logs.ReadAll(ctx, high, q)
	}
	for i := range page.Attempts {
		h.setAttemptIDs(&page.Attempts[i])
	}
	page.NextAt, page.Next = next.At, next.Row
	return page, err
}

// LoggedSubscription returns the row id of a subscription that has a log. It may be deleted. Faults: NotFound.
func (h *History) LoggedSubscription(ctx context.Context, organization int64, id string) (int64, error) {
	return sqlite.One[int64](h.o.Reads.In(ctx), "subscription", "SELECT id FROM subscriptions WHERE public_id = ? AND organization_id = ?", id, organization)
}

// maxDeliveryLookups is how many deliveries of one event to one subscription are looked up one by one. Only replays and
// redeliveries create more than one.
const maxDeliveryLookups = 100

type attemptQuery struct {
	logs     *scan.Reader
	attempts *[]webhook.Attempt
	source   string // the index of ended attempts to read; empty to read attempts in progress only
	where    string // its condition
	filters  string // conditions of ended attempts and of those in progress, each with AND in front
	args     []any  // the named parameters of where and of the filters
	since    int64
	limit    int
	filtered bool // a filter leaves out some rows of the index
}

// attemptQuery chooses the index for a filter. An event has its deliveries, and failures have an index.
// Other filters read the log of the subscription. ok is false if the filter can match nothing.
func (h *History) attemptQuery(ctx context.Context, subscription int64, f webhook.AttemptFilter) (q attemptQuery, ok bool, err error) {
	q = attemptQuery{
		logs: h.o.Logs, source: "attempts a INDEXED BY attempts_by_subscription", where: "a.subscription_id = :subscription",
		args: []any{sql.Named("subscription", subscription)}, since: f.Since, limit: f.Limit,
	}
	q.filter(f.EventType != "", "e.type = :type", sql.Named("type", f.EventType))
	q.filter(f.Outcome != nil, "outcome = :outcome", sql.Named("outcome", f.Outcome))
	switch {
	case f.EventID != "":
		event, _, ok := h.o.IDs.Row(access.EventID, f.EventID)
		if !ok {
			return q, false, nil
		}
		q.filter(true, "d.event_id = :event", sql.Named("event", event))
		var deliveries int
		if err := h.o.Logs.Get(ctx, &deliveries, `
			SELECT count(*) FROM (SELECT 1 FROM deliveries d WHERE d.event_id = ? AND d.subscription_id = ? LIMIT ?)`,
			event, subscription, maxDeliveryLookups+1); err != nil {
			return q, false, err
		}
		if deliveries <= maxDeliveryLookups {
			q.source = "deliveries own CROSS JOIN attempts a ON " + delivery.Attempts("own.id", "own.id")
			q.where, q.filtered = "own.event_id = :event AND own.subscription_id = :subscription", false
		}
	case f.Outcome == nil:
	case *f.Outcome == webhook.Sending: // only as many rows as attempts are running
		q.source, q.filtered = "", false
	case *f.Outcome == webhook.Failed || *f.Outcome == webhook.Interrupted:
		q.source = "attempts a INDEXED BY attempts_in_trouble"
		q.where += " AND a.outcome IN (" + delivery.OutcomeFailed + ", " + delivery.OutcomeInterrupted + ")"
	}
	return q, true, nil
}

// filter adds a condition with its parameter if the filter is set. The condition holds for ended attempts and for those in progress, so
// it names a column of both results, such as response_status, or of the tables of both: d, e and s.
func (q *attemptQuery) filter(set bool, condition string, parameter sql.NamedArg) {
	if set {
		q.filters, q.args, q.filtered = q.filters+" AND "+condition, append(q.args, parameter), true
	}
}

// Bound implements scan.Search.
func (q attemptQuery) Bound(ctx context.Context, high scan.Position, rows int) (low scan.Position, err error) {
	args := append(slices.Clone(q.args), sql.Named("since", q.since),
		sql.Named("high_at", high.At), sql.Named("high_row", high.Row), sql.Named("offset", rows-1))
	err = q.logs.Pool.Get(ctx, &low, "SELECT a.attempted_at, a.id FROM "+q.source+" WHERE "+q.where+`
		AND (a.attempted_at, a.id) >= (:since, 0) AND (a.attempted_at, a.id) < (:high_at, :high_row)
		ORDER BY a.attempted_at DESC, a.id DESC LIMIT 1 OFFSET :offset`, args...)
	return low, err
}

// Read implements scan.Search.
func (q attemptQuery) Read(ctx context.Context, low, high scan.Position) (full bool, err error) {
	if low.At < q.since {
		low = scan.Position{At: q.since}
	}
	statement := selectSendingAttempts + q.filters
	if q.source != "" {
		statement = "SELECT " + attemptColumns + " FROM " + q.source + attemptJoins + " WHERE " + q.where + `
			AND (a.attempted_at, a.id) >= (:low_at, :low_row) AND (a.attempted_at, a.id) < (:high_at, :high_row)` + q.filters + " UNION ALL " + statement
	}
	var batch []webhook.Attempt
	args := append(slices.Clone(q.args), sql.Named("low_at", low.At), sql.Named("low_row", low.Row),
		sql.Named("high_at", high.At), sql.Named("high_row", high.Row), sql.Named("limit", q.limit-len(*q.attempts)))
	err = q.logs.Pool.List(ctx, &batch, statement+" ORDER BY attempted_at DESC, id DESC LIMIT :limit", args...)
	*q.attempts = append(*q.attempts, batch...)
	return len(*q.attempts) >= q.limit, err
}

// selectSendingAttempts selects the attempts in progress, with the parameters of attemptQuery.Read. They are few.
const selectSendingAttempts = "SELECT " + sendingColumns + " FROM deliveries d INDEXED BY deliveries_sending" + sendingJoins + `
	WHERE d.subscription_id = :subscription AND d.state >= ` + delivery.Sending + `
	AND (d.due_at, ` + delivery.AttemptRow + `) >= (:low_at, :low_row) AND (d.due_at, ` + delivery.AttemptRow + `) < (:high_at, :high_row)`

func (h *History) setAttemptIDs(a *webhook.Attempt) {
	a.ID = h.o.IDs.ID(access.AttemptID, a.RowID, a.AttemptedAt)
	a.EventID = h.o.IDs.ID(access.EventID, a.EventRow, a.EventAt)
}

// Attempt returns one attempt by its row id. Faults: NotFound.
func (h *History) Attempt(ctx context.Context, id int64) (webhook.Attempt, error) {
	a, err := sqlite.One[webhook.Attempt](h.o.Reads.In(ctx), "attempt", "SELECT "+attemptColumns+" FROM attempts a"+attemptJoins+` WHERE a.id = ?1
		UNION ALL SELECT `+sendingColumns+" FROM deliveries d"+sendingJoins+" WHERE "+delivery.Running("?1"), id)
	h.setAttemptIDs(&a)
	return a, err
}

// SentAttempt returns an attempt of a subscription with its request. The subscription may be deleted. Faults: NotFound.
func (h *History) SentAttempt(ctx context.Context, organization int64, id, attempt string) (webhook.SentAttempt, error) {
	row, at, ok := h.o.IDs.Row(access.AttemptID, attempt)
	if !ok {
		return webhook.SentAttempt{}, fault.Missing("attempt")
	}
	a, err := h.Attempt(ctx, row)
	if err != nil {
		return webhook.SentAttempt{}, err
	}
	if a.AttemptedAt != at || a.SubscriptionID != id {
		return webhook.SentAttempt{}, fault.Missing("attempt")
	}
	sent, err := sqlite.One[webhook.SentAttempt](h.o.Reads.In(ctx), "attempt", `
		SELECT e.body, s.url, s.url_at, h.names AS header_names, coalesce(h.changed_at, 0) AS headers_at
		FROM subscriptions s CROSS JOIN events e ON e.id = ? LEFT JOIN subscription_headers h ON h.subscription_id = s.id
		WHERE s.public_id = ? AND s.organization_id = ?`, a.EventRow, id, organization)
	sent.Attempt = a
	return sent, err
}
