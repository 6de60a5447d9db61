package storage

import (
	"context"
	"database/sql"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/webhook"
)

const (
	previewEvents = 200 // the newest of an organization that a preview reads
	previewSample = 10  // of those that pass
)

// PreviewFilter says which of the newest events of an organization a subscription with these types and this filter would get. Faults:
// Unavailable if too many reads of the organization are running.
func (q *Queue) PreviewFilter(ctx context.Context, organization int64, types webhook.Types, f filter.Filter, withoutAudit bool) (p webhook.Preview, err error) {
	end, err := q.beginReplayRead(ctx, organization)
	if err != nil {
		return p, err
	}
	defer end()
	exact, prefix := patternLists(types.Patterns())
	var events []struct {
		ID     int64 `db:"id"`
		At     int64 `db:"created_at"`
		Passes bool  `db:"passes"`
	}
	err = q.replays.Pool.List(ctx, &events, `
		SELECT e.id, e.created_at, :filter = '' OR passes(:filter, e.body) AS passes
		FROM (SELECT id FROM events INDEXED BY events_by_organization WHERE organization_id = :organization ORDER BY id DESC LIMIT :most) newest
		CROSS JOIN events e ON e.id = newest.id
		WHERE `+wantedType+` AND `+delivery.NotTest+` ORDER BY e.id DESC`,
		sql.Named("organization", organization), sql.Named("filter", f.Text()), sql.Named("most", previewEvents),
		sql.Named("exact", exact), sql.Named("prefix", prefix), sql.Named("excluded", history.HiddenTypes(withoutAudit)))
	for _, e := range events {
		p.Examined++
		if e.Passes {
			p.Matched++
			if len(p.Sample) < previewSample {
				p.Sample = append(p.Sample, q.ids.ID(access.EventID, e.ID, e.At))
			}
		}
	}
	return p, err
}
