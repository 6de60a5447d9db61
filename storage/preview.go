package storage

import (
	"context"
	"database/sql"
	"math"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/fanout"
	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/webhook"
)

const (
	previewEvents = 200 // the newest of an organization that a preview reads
	previewSample = 10  // of those that pass
)

// PreviewFilter says which of the newest events of an organization a subscription with these types and this filter would get. Faults:
// Unavailable if too many reads of the organization are running.
func (q *Queue) PreviewFilter(ctx context.Context, organization int64, types webhook.Types, f filter.Filter, withoutAudit bool) (p webhook.Preview, err error) {
	exact, prefix := fanout.PatternLists(types.Patterns())
	rows, left, before := scan.CostlySlice, previewEvents, int64(math.MaxInt64)
	_, err = scan.Batches(ctx, feedTime, func() (more bool, err error) {
		var events []struct {
			ID     int64 `db:"id"`
			At     int64 `db:"created_at"`
			Wanted bool  `db:"wanted"`
			Passes bool  `db:"passes"`
		}
		most := min(rows, left)
		rows, err = q.feeds.Slice(ctx, organization, rows, previewEvents, func() error {
			return q.feeds.Pool.List(ctx, &events, `
				SELECT e.id, e.created_at, wanted, wanted AND `+fanout.Passes+` AS passes
				FROM (SELECT e.*, `+fanout.Wanted+` AND `+delivery.NotTest+` AS wanted FROM events e INDEXED BY events_by_organization
				      WHERE e.organization_id = :organization AND e.id < :before ORDER BY e.id DESC LIMIT :most) e ORDER BY e.id DESC`,
				sql.Named("organization", organization), sql.Named("filter", f.Text()), sql.Named("before", before), sql.Named("most", most),
				sql.Named("exact", exact), sql.Named("prefix", prefix), sql.Named("excluded", history.HiddenTypes(withoutAudit)))
		})
		for _, e := range events {
			before = e.ID
			if e.Wanted {
				p.Examined++
			}
			if e.Passes {
				p.Matched++
				if len(p.Sample) < previewSample {
					p.Sample = append(p.Sample, q.ids.ID(access.EventID, e.ID, e.At))
				}
			}
		}
		left -= len(events)
		return left > 0 && len(events) == most, err
	})
	return p, err
}
