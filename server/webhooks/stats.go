package webhooks

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

const defaultPeriod = time.Hour

type pointLimits struct {
	any         int64
	withoutStep int64 // if the query has no step
}

// seriesLimits allow one day in steps of a minute, and a little more.
var seriesLimits = pointLimits{1500, 300}

// period is a time span of whole steps, in minutes since the epoch.
type period struct {
	since, until, step int64
}

// newPeriod returns the whole steps that cover the times in milliseconds.
func newPeriod(since, until, step int64) period {
	minute := time.Minute.Milliseconds()
	p := period{since / minute, (until + minute - 1) / minute, step}
	p.since -= p.since % step
	p.until += (step - p.until%step) % step
	return p
}

func (p period) points() int64 { return (p.until - p.since) / p.step }

// readPeriod reads since, until and step. A handler reads them last, because this reports all problems of the query. Without a step
// it chooses one that keeps the limit.
func readPeriod(x *exchange.Exchange, limits pointLimits) (period, error) {
	q := &x.Query
	since, until := q.RecentPeriod(x.Began, defaultPeriod)
	if _, present := q.Value("step"); present {
		step := readMinutes(q, "step", 24*time.Hour)
		if err := q.Err(); err != nil {
			return period{}, err
		}
		p := newPeriod(since, until, step)
		if p.points() > limits.any {
			q.Refuse("step", fmt.Sprintf("is too small for this period: it makes %d points, and at most %d are allowed", p.points(), limits.any))
		}
		return p, q.Err()
	}
	if err := q.Err(); err != nil {
		return period{}, err
	}
	for _, step := range []int64{1, 5, 15, 60, 6 * 60} {
		if p := newPeriod(since, until, step); p.points() <= limits.withoutStep {
			return p, nil
		}
	}
	p := newPeriod(since, until, 24*60)
	if p.points() > limits.any {
		q.Refuse("since", fmt.Sprintf("and until are too far apart: at most %d days are allowed", limits.any))
	}
	return p, q.Err()
}

func minuteAt(m int64) exchange.Time { return exchange.Time(m * time.Minute.Milliseconds()) }

// readMinutes reads a number of seconds that is a whole number of minutes, and returns the minutes.
func readMinutes(q *form.Query, name string, most time.Duration) int64 {
	value, _ := q.Value(name)
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n <= 0 || n%60 != 0 || n > int64(most/time.Second) {
		q.Refuse(name, "must be a number of seconds, a multiple of 60 up to "+strconv.Itoa(int(most/time.Second)))
	}
	return n / 60
}

type statsBody struct {
	Since    exchange.Time `json:"since"`
	Until    exchange.Time `json:"until"`
	Step     int64         `json:"step"`               // seconds
	BoundsMS []int64       `json:"duration_bounds_ms"` // of the durations below
	Totals   countsBody    `json:"totals"`
	Data     []pointBody   `json:"data"` // one for each step, oldest first
}

type pointBody struct {
	At exchange.Time `json:"at"`
	countsBody
}

type countsBody struct {
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Expired   int64 `json:"expired"` // pending deliveries that retention deleted
	// The number of attempts up to each bound, and above all bounds.
	Durations webhook.Durations `json:"durations"`
	Quantiles *quantilesBody    `json:"duration_ms"` // estimated; null if nothing was sent
}

type quantilesBody struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

func newCountsBody(t webhook.AttemptCounts) countsBody {
	body := countsBody{Succeeded: t.Succeeded, Failed: t.Failed, Expired: t.Expired, Durations: t.Took}
	if p50, ok := t.Took.Quantile(0.5); ok {
		p95, _ := t.Took.Quantile(0.95)
		p99, _ := t.Took.Quantile(0.99)
		body.Quantiles = &quantilesBody{p50, p95, p99}
	}
	return body
}

// ReadStats responds with the counts of attempts, which are stored per minute, as a series without gaps: a step without attempts is zero.
func (h Endpoints) ReadStats(x *exchange.Exchange) error {
	organization, err := x.ListOrganization()
	if err != nil {
		return err
	}
	named := readSubscription(&x.Query)
	x.RefuseForAll("subscription_id")
	p, err := readPeriod(x, seriesLimits)
	if err != nil {
		return err
	}
	subscription, err := h.resolveSubscription(x, named)
	if err != nil {
		return err
	}
	found, err := h.Store.Series(x.Request.Context(), organization, subscription, p.since, p.until, p.step)
	if err != nil {
		return err
	}
	body := statsBody{
		Since: minuteAt(p.since), Until: minuteAt(p.until), Step: 60 * p.step, BoundsMS: webhook.DurationBounds[:],
		Data: make([]pointBody, 0, p.points()),
	}
	var totals webhook.AttemptCounts
	for m := p.since; m < p.until; m += p.step {
		var t webhook.AttemptCounts
		if len(found) > 0 && found[0].Minute == m {
			t, found = found[0].AttemptCounts, found[1:]
		}
		totals.Merge(t)
		body.Data = append(body.Data, pointBody{minuteAt(m), newCountsBody(t)})
	}
	body.Totals = newCountsBody(totals)
	return x.OK(body)
}

const (
	maxSeries = 200 // subscriptions
	// maxSeriesMinutes is the most minutes of all series together: 200 subscriptions for 2 days, or 50 for 8. If each minute has
	// attempts, the read takes half a second.
	maxSeriesMinutes = maxSeries * 2 * 24 * 60
)

// sparklineLimits allow few points for each subscription, because many subscriptions share a response.
var sparklineLimits = pointLimits{100, 100}

type subscriptionStatsBody struct {
	Since exchange.Time            `json:"since"`
	Until exchange.Time            `json:"until"`
	Step  int64                    `json:"step"` // seconds
	Data  []subscriptionSeriesBody `json:"data"`
}

// subscriptionSeriesBody has one number for each step, oldest first.
type subscriptionSeriesBody struct {
	SubscriptionID string  `json:"subscription_id"`
	Succeeded      []int64 `json:"succeeded"`
	Failed         []int64 `json:"failed"`
}

// ReadSubscriptionStats responds with the series of several subscriptions, so that a list can show a chart in each row.
func (h Endpoints) ReadSubscriptionStats(x *exchange.Exchange) error {
	names := subscriptionNamesIn(&x.Query)
	p, err := readPeriod(x, sparklineLimits)
	if err != nil {
		return err
	}
	ids, err := h.resolveSubscriptions(x, names)
	if err != nil {
		return err
	}
	if minutes := int64(len(ids)) * (p.until - p.since); minutes > maxSeriesMinutes {
		x.Query.Refuse("since", fmt.Sprintf(
			"and until are too far apart for %d subscriptions: at most %d days are allowed", len(ids), maxSeriesMinutes/int64(len(ids))/(24*60)))
		return x.Query.Err()
	}
	found, err := h.Store.SubscriptionSeries(x.Request.Context(), x.Organization(), ids, p.since, p.until, p.step)
	if err != nil {
		return err
	}
	body := subscriptionStatsBody{minuteAt(p.since), minuteAt(p.until), 60 * p.step, []subscriptionSeriesBody{}}
	for _, s := range found {
		body.Data = append(body.Data, subscriptionSeriesBody(s))
	}
	return x.OK(body)
}

func subscriptionNamesIn(q *form.Query) []string {
	text, _ := q.Value("subscription_id")
	names := strings.Split(text, ",")
	isWrong := func(name string) bool { return !access.SubscriptionID.MayName(name) }
	if len(names) > maxSeries || slices.ContainsFunc(names, isWrong) {
		q.Refuse("subscription_id", fmt.Sprintf("must be 1 to %d ids or external ids of subscriptions, separated by commas", maxSeries))
	}
	return names
}

// resolveSubscriptions returns the ids of subscriptions, without repetitions and without subscriptions that do not exist.
func (h Endpoints) resolveSubscriptions(x *exchange.Exchange, names []string) (ids []string, err error) {
	for _, name := range names {
		id, err := h.resolveSubscription(x, name)
		if err != nil && fault.KindOf(err) != fault.NotFound {
			return nil, err
		}
		if err == nil && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

type backlogBody struct {
	Pending     int64          `json:"pending"`
	OldestDueAt *exchange.Time `json:"oldest_due_at"` // null if nothing is pending
	Statuses    statusesBody   `json:"statuses"`
	Blocked     []blockedBody  `json:"blocked"`
}

type statusesBody struct {
	Healthy  int64 `json:"healthy"`
	Failing  int64 `json:"failing"`
	Disabled int64 `json:"disabled"`
	Paused   int64 `json:"paused"` // of the disabled ones: a person stopped them
}

type blockedBody struct {
	BlockedBy     *string        `json:"blocked_by"` // null: they are sent when they are due
	Subscriptions int64          `json:"subscriptions"`
	Pending       int64          `json:"pending"`
	OldestDueAt   *exchange.Time `json:"oldest_due_at"`
}

func newBacklogBody(sum webhook.PendingSummary) backlogBody {
	body := backlogBody{Blocked: []blockedBody{}, Statuses: statusesBody(sum.Statuses)}
	var oldest int64
	for _, b := range sum.Blocked {
		body.Pending += b.Deliveries
		if b.OldestDue != 0 && (oldest == 0 || b.OldestDue < oldest) {
			oldest = b.OldestDue
		}
		body.Blocked = append(body.Blocked, blockedBody{exchange.NullIfEmpty(string(b.By)), b.Subscriptions, b.Deliveries, timeOrNull(b.OldestDue)})
	}
	body.OldestDueAt = timeOrNull(oldest)
	return body
}

// ReadBacklog says how many deliveries wait, and why.
func (h Endpoints) ReadBacklog(x *exchange.Exchange) error {
	organization, err := x.ListOrganization()
	if err != nil {
		return err
	}
	if err := x.Query.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, newBacklogBody)(h.Store.PendingSummary(x.Request.Context(), organization))
}
