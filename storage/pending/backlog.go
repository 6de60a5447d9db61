package pending

import (
	"context"

	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// selectBacklog counts lanes and pending deliveries in one pass. Deliveries that wait for a rate limit, or behind others of an
// ordered subscription, are not late.
var selectBacklog = `
	SELECT count(*) FILTER (WHERE state = 'healthy') AS "healthy.lanes",
	       coalesce(sum(pending) FILTER (WHERE state = 'healthy'), 0) AS "healthy.deliveries",
	       count(*) FILTER (WHERE state = 'failing') AS "failing.lanes",
	       coalesce(sum(pending) FILTER (WHERE state = 'failing'), 0) AS "failing.deliveries",
	       count(*) FILTER (WHERE state = 'disabled') AS "closed.lanes",
	       coalesce(sum(pending) FILTER (WHERE state = 'disabled'), 0) AS "closed.deliveries",
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
	var b webhook.Backlog
	err := s.o.All.Get(ctx, &b, selectBacklog, sqlite.RowCounts(s.o.Count.All()))
	b.Held = s.o.Hold() != nil
	switch {
	case b.Held:
		b.OldestDue = 0
	case b.OldestDue != 0:
		b.OldestDue = max(b.OldestDue, s.o.ReleasedAt())
	}
	return b, err
}
