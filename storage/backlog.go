package storage

import (
	"context"
	"strconv"

	"github.com/keyhook/keyhook/storage/webhook"
)

// Backlog tells what waits to be sent, by the state of the subscription that it waits for. Its cost is that of Lanes.
func (s *Store) Backlog(ctx context.Context) (webhook.Backlog, error) {
	var row struct {
		HealthyLanes   int64 `db:"healthy_lanes"`
		HealthyPending int64 `db:"healthy_pending"`
		FailingLanes   int64 `db:"failing_lanes"`
		FailingPending int64 `db:"failing_pending"`
		ClosedLanes    int64 `db:"closed_lanes"`
		ClosedPending  int64 `db:"closed_pending"`
		OldestDue      int64 `db:"oldest_due"`
	}
	err := s.surveys.Get(ctx, &row, `
		SELECT count(*) FILTER (WHERE state = 'healthy') AS healthy_lanes,
		       coalesce(sum(pending) FILTER (WHERE state = 'healthy'), 0) AS healthy_pending,
		       count(*) FILTER (WHERE state = 'failing') AS failing_lanes,
		       coalesce(sum(pending) FILTER (WHERE state = 'failing'), 0) AS failing_pending,
		       count(*) FILTER (WHERE state = 'disabled') AS closed_lanes,
		       coalesce(sum(pending) FILTER (WHERE state = 'disabled'), 0) AS closed_pending,
		       coalesce(min(due_at) FILTER (WHERE state <> 'disabled' AND NOT paced), 0) AS oldest_due
		FROM (
			SELECT j.value AS pending,
			       CASE WHEN p.webhooks AND s.deleted_at IS NULL THEN s.status ELSE 'disabled' END AS state,
			       s.rate_limit_per_second IS NOT NULL AS paced, -- what waits for that is not late
			       max(s.probe_at, first.due_at) AS due_at
			FROM json_each(?) j
			JOIN subscriptions s ON s.id = CAST(j.key AS INTEGER)
			LEFT JOIN deliveries first ON first.id = (`+firstPending("s.id")+`)
			JOIN organizations o ON o.id = s.organization_id JOIN plans p ON p.id = o.plan_id)`, rowCounts(s.pending.all()))
	held := s.Held() != nil
	switch {
	case held:
		row.OldestDue = 0
	case row.OldestDue != 0:
		row.OldestDue = max(row.OldestDue, s.releasedAt.Load())
	}
	return webhook.Backlog{
		Healthy:   webhook.Waiting{Lanes: row.HealthyLanes, Deliveries: row.HealthyPending},
		Failing:   webhook.Waiting{Lanes: row.FailingLanes, Deliveries: row.FailingPending},
		Closed:    webhook.Waiting{Lanes: row.ClosedLanes, Deliveries: row.ClosedPending},
		OldestDue: row.OldestDue,
		Held:      held,
	}, err
}

// rowCounts writes the numbers as a JSON object, for json_each.
func rowCounts(counts map[int64]int64) string {
	b := []byte{'{'}
	for row, n := range counts {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = strconv.AppendInt(b, row, 10)
		b = append(b, `":`...)
		b = strconv.AppendInt(b, n, 10)
	}
	return string(append(b, '}'))
}
