package pending

import (
	"context"

	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// backlogCounts is the row of selectBacklog.
type backlogCounts struct {
	HealthyLanes   int64 `db:"healthy_lanes"`
	HealthyPending int64 `db:"healthy_pending"`
	FailingLanes   int64 `db:"failing_lanes"`
	FailingPending int64 `db:"failing_pending"`
	ClosedLanes    int64 `db:"closed_lanes"`
	ClosedPending  int64 `db:"closed_pending"`
	OldestDue      int64 `db:"oldest_due"`
}

// selectBacklog counts lanes and pending deliveries in one pass. Deliveries that wait for a rate limit, or behind others of an
// ordered subscription, are not late.
var selectBacklog = `
	SELECT count(*) FILTER (WHERE state = 'healthy') AS healthy_lanes,
	       coalesce(sum(pending) FILTER (WHERE state = 'healthy'), 0) AS healthy_pending,
	       count(*) FILTER (WHERE state = 'failing') AS failing_lanes,
	       coalesce(sum(pending) FILTER (WHERE state = 'failing'), 0) AS failing_pending,
	       count(*) FILTER (WHERE state = 'disabled') AS closed_lanes,
	       coalesce(sum(pending) FILTER (WHERE state = 'disabled'), 0) AS closed_pending,
	       coalesce(min(due_at) FILTER (WHERE state <> 'disabled' AND NOT paced), 0) AS oldest_due
	FROM (
		SELECT j.value AS pending,
		       iif(` + delivery.Why + ` = '', s.status, 'disabled') AS state,
		       s.rate_limit_per_second IS NOT NULL OR s.ordered AS paced,
		       max(s.probe_at, ` + delivery.FirstDue("s.id") + `) AS due_at
		FROM json_each(?) j
		JOIN subscriptions s ON s.id = CAST(j.key AS INTEGER)
		JOIN organizations o ON o.id = s.organization_id JOIN plans p ON p.id = o.plan_id)`

// Backlog counts the pending deliveries by the state of their subscriptions. It costs as much as Lanes.
func (s *Survey) Backlog(ctx context.Context) (webhook.Backlog, error) {
	var c backlogCounts
	err := s.all.Get(ctx, &c, selectBacklog, sqlite.RowCounts(s.count.All()))
	held := s.hold() != nil
	switch {
	case held:
		c.OldestDue = 0
	case c.OldestDue != 0:
		c.OldestDue = max(c.OldestDue, s.releasedAt())
	}
	return webhook.Backlog{
		Healthy:   webhook.Waiting{Lanes: c.HealthyLanes, Deliveries: c.HealthyPending},
		Failing:   webhook.Waiting{Lanes: c.FailingLanes, Deliveries: c.FailingPending},
		Closed:    webhook.Waiting{Lanes: c.ClosedLanes, Deliveries: c.ClosedPending},
		OldestDue: c.OldestDue,
		Held:      held,
	}, err
}
