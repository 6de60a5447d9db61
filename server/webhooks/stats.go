package webhooks

import (
	"fmt"
	"strconv"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

const (
	defaultPeriod = time.Hour
	minute        = int64(time.Minute / time.Millisecond)
)

// The most points of a series: one day in steps of a minute, and a little more.
const (
	maxPoints        = 1500
	maxDefaultPoints = 300 // if the query has no step
)

// period is a time span of whole steps, in milliseconds since the epoch.
type period struct {
	since, until, step int64
}

// newPeriod returns the whole steps that cover the times.
func newPeriod(since, until, step int64) period {
	return period{since - since%step, until + (step-until%step)%step, step}
}

func (p period) points() int64 { return (p.until - p.since) / p.step }

// readPeriod reads since, until and step. A handler reads them last, because this reports all problems of the query. Without a step
// it chooses one that keeps the limit.
func readPeriod(x *exchange.Exchange) (period, error) {
	q := &x.Query
	since, until := q.RecentPeriod(x.Began, defaultPeriod)
	step := readStep(q)
	if err := q.Err(); err != nil {
		return period{}, err
	}
	steps := []int64{1, 5, 15, 60, 6 * 60, 24 * 60}
	if step > 0 {
		steps = []int64{step}
	}
	var p period
	for _, minutes := range steps {
		if p = newPeriod(since, until, minutes*minute); p.points() <= maxDefaultPoints {
			break
		}
	}
	switch {
	case p.points() > maxPoints && step > 0:
		q.Refuse("step", fmt.Sprintf("is too small for this period: it makes %d points, and at most %d are allowed", p.points(), maxPoints))
	case p.points() > maxPoints:
		q.Refuse("since", fmt.Sprintf("and until are too far apart: at most %d days are allowed", maxPoints))
	}
	return p, q.Err()
}

// readStep reads a number of seconds that is a whole number of minutes, and returns the minutes; 0 if the query has no step.
func readStep(q *form.Query) int64 {
	value, present := q.Value("step")
	n, err := strconv.ParseInt(value, 10, 64)
	if present && (err != nil || n <= 0 || n%60 != 0 || n > 24*60*60) {
		q.Refuse("step", "must be a number of seconds, a multiple of 60 up to 86400")
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
	organization := x.ListOrganization()
	named := readSubscription(&x.Query)
	x.RefuseForAll("subscription_id")
	p, err := readPeriod(x)
	if err != nil {
		return err
	}
	subscription, err := h.resolveSubscription(x, named)
	if err != nil {
		return err
	}
	found, err := h.Store.Series(x.Request.Context(), organization, subscription, p.since/minute, p.until/minute, p.step/minute)
	if err != nil {
		return err
	}
	body := statsBody{
		Since: exchange.Time(p.since), Until: exchange.Time(p.until), Step: p.step / 1000, BoundsMS: webhook.DurationBounds[:],
		Data: make([]pointBody, 0, p.points()),
	}
	var totals webhook.AttemptCounts
	for at := p.since; at < p.until; at += p.step {
		var t webhook.AttemptCounts
		if len(found) > 0 && found[0].Minute*minute == at {
			t, found = found[0].AttemptCounts, found[1:]
		}
		totals.Merge(t)
		body.Data = append(body.Data, pointBody{exchange.Time(at), newCountsBody(t)})
	}
	body.Totals = newCountsBody(totals)
	return x.OK(body)
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
		body.Blocked = append(body.Blocked, blockedBody{
			access.NullIfEmpty(string(b.By)), b.Subscriptions, b.Deliveries, access.NullIfEmpty(exchange.Time(b.OldestDue)),
		})
	}
	body.OldestDueAt = access.NullIfEmpty(exchange.Time(oldest))
	return body
}

// ReadBacklog says how many deliveries wait, and why.
func (h Endpoints) ReadBacklog(x *exchange.Exchange) error {
	organization := x.ListOrganization()
	if err := x.Query.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, newBacklogBody)(h.Store.PendingSummary(x.Request.Context(), organization))
}
