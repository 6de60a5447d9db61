package history

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

const minutesPerRead = 10_000 // one read adds them up in about 20 ms

// Series counts the attempts of an organization, or of one of its subscriptions, from since until until. For
// access.AllOrganizations it counts those of all. It returns one point for each step with attempts, in order. since, until and step
// are in minutes, and steps start at multiples of step since the epoch. The attempts of a deleted subscription count until retention
// deletes them.
//
// Faults: NotFound; Unavailable if too many reads of the organization's logs are running.
func (h *History) Series(ctx context.Context, organization int64, subscription string, since, until, step int64) (points []webhook.MinuteCounts, err error) {
	var row int64 // 0 stands for the whole organization
	if subscription != "" {
		if row, err = h.LoggedSubscription(ctx, organization, subscription); err != nil {
			return nil, err
		}
	}
	end, err := h.o.Logs.Take(ctx, organization)
	if err != nil {
		return nil, err
	}
	defer end()
	points = []webhook.MinuteCounts{}
	for since < until {
		var batch []webhook.MinuteCounts
		if batch, since, err = h.seriesSlice(ctx, organization, row, since, until, step); err != nil {
			return nil, err
		}
		points = append(points, batch...)
	}
	return points, nil
}

// seriesSlice returns the points of the next minutesPerRead minutes, and the minute to continue from.
func (h *History) seriesSlice(ctx context.Context, organization, subscription int64, since, until, step int64) (points []webhook.MinuteCounts, next int64, err error) {
	err = h.o.Logs.Get(ctx, &next, `
		SELECT minute FROM attempt_minutes
		WHERE organization_id = ? AND subscription_id = ? AND minute >= ? AND minute < ? ORDER BY minute LIMIT 1 OFFSET ?`,
		organization, subscription, since, until, minutesPerRead-1)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		next = until
	case err != nil:
		return nil, 0, err
	default:
		next = min((next/step+1)*step, until)
	}
	err = h.o.Logs.List(ctx, &points, `
		SELECT minute / ?1 * ?1 AS minute, sum(succeeded) AS succeeded, sum(failed) AS failed, sum(expired) AS expired, json_array(`+durationSums+`) AS took
		FROM attempt_minutes
		WHERE organization_id = ?2 AND subscription_id = ?3 AND minute >= ?4 AND minute < ?5
		GROUP BY 1 ORDER BY 1`, step, organization, subscription, since, next)
	return points, next, err
}

// SubscriptionSeries counts the attempts of subscriptions of an organization, in the order of ids. It leaves out ids that do not
// exist; deleted subscriptions exist until retention deletes their counts. Times are as in Series, and until is a whole number of
// steps after since. Faults: Unavailable if too many reads of the organization's logs are running.
func (h *History) SubscriptionSeries(ctx context.Context, organization int64, ids []string, since, until, step int64) ([]webhook.SubscriptionSeries, error) {
	end, err := h.o.Logs.Take(ctx, organization)
	if err != nil {
		return nil, err
	}
	defer end()
	var found []numberedID
	if err := h.o.Logs.List(ctx, &found, `
		SELECT s.id, s.public_id FROM json_each(?) j CROSS JOIN subscriptions s ON s.public_id = j.value
		WHERE s.organization_id = ?`, sqlite.TextList(ids), organization); err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b numberedID) int { return cmp.Compare(slices.Index(ids, a.ID), slices.Index(ids, b.ID)) })
	series := make([]webhook.SubscriptionSeries, len(found))
	for i, f := range found {
		series[i] = webhook.SubscriptionSeries{
			SubscriptionID: f.ID, Succeeded: make([]int64, (until-since)/step), Failed: make([]int64, (until-since)/step),
		}
		if err := h.fillSeries(ctx, &series[i], organization, f.Row, since, until, step); err != nil {
			return nil, err
		}
	}
	return series, nil
}

type numberedID struct {
	Row int64  `db:"id"`
	ID  string `db:"public_id"`
}

// fillSeries adds the counts of a subscription, a few days at a time.
func (h *History) fillSeries(ctx context.Context, series *webhook.SubscriptionSeries, organization, subscription int64, since, until, step int64) error {
	atOnce := max(minutesPerRead/step, 1) * step
	for from := since; from < until; from += atOnce {
		var points []webhook.MinuteCounts
		if err := h.o.Logs.List(ctx, &points, `
			SELECT minute / ?1 * ?1 AS minute, sum(succeeded) AS succeeded, sum(failed) AS failed FROM attempt_minutes
			WHERE organization_id = ?2 AND subscription_id = ?3 AND minute >= ?4 AND minute < ?5 GROUP BY 1`,
			step, organization, subscription, from, min(from+atOnce, until)); err != nil {
			return err
		}
		for _, p := range points {
			at := (p.Minute - since) / step
			series.Succeeded[at], series.Failed[at] = p.Succeeded, p.Failed
		}
	}
	return nil
}

// DurationColumns are the columns of attempt_minutes for webhook.AttemptCounts.Took.
var DurationColumns = func() (names []string) {
	for _, bound := range webhook.DurationBounds {
		names = append(names, "within_"+strconv.FormatInt(bound, 10))
	}
	return append(names, "longer")
}()

var durationSums = "sum(" + strings.Join(DurationColumns, "), sum(") + ")"
