package history

import (
	"context"
	"strconv"
	"strings"

	"github.com/keyhook/keyhook/storage/webhook"
)

const minutesPerRead = 10_000 // one read adds them up in about 20 ms

// Series counts the attempts of an organization, or of one of its subscriptions, from since until until. For access.AllOrganizations it
// counts those of all. It returns one point for each step with attempts, in order. since, until and step are in minutes, and steps start at
// multiples of step since the epoch. The attempts of a deleted subscription count until retention deletes them. Faults: NotFound;
// Unavailable if too many reads of the organization's logs are running.
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
		var next int64 // the minute to continue from
		if err := h.o.Logs.Get(ctx, &next, `
			SELECT coalesce((
				SELECT minute FROM attempt_minutes
				WHERE organization_id = ?1 AND subscription_id = ?2 AND minute >= ?3 AND minute < ?4 ORDER BY minute LIMIT 1 OFFSET ?5), ?4)`,
			organization, row, since, until, minutesPerRead-1); err != nil {
			return nil, err
		}
		next = min((next/step+1)*step, until)
		var batch []webhook.MinuteCounts
		if err := h.o.Logs.List(ctx, &batch, `
			SELECT minute / ?1 * ?1 AS minute, sum(succeeded) AS succeeded, sum(failed) AS failed, sum(expired) AS expired, json_array(`+durationSums+`) AS took
			FROM attempt_minutes
			WHERE organization_id = ?2 AND subscription_id = ?3 AND minute >= ?4 AND minute < ?5
			GROUP BY 1 ORDER BY 1`, step, organization, row, since, next); err != nil {
			return nil, err
		}
		points, since = append(points, batch...), next
	}
	return points, nil
}

// DurationColumns are the columns of attempt_minutes for webhook.AttemptCounts.Took.
var DurationColumns = func() (names []string) {
	for _, bound := range webhook.DurationBounds {
		names = append(names, "within_"+strconv.FormatInt(bound, 10))
	}
	return append(names, "longer")
}()

var durationSums = "sum(" + strings.Join(DurationColumns, "), sum(") + ")"
