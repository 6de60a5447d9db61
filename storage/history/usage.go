package history

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/scan"
)

const (
	usageOwner    = ", o.public_id AS organization_public_id, o.external_id AS organization_external_id, u.day"
	usageInPeriod = "u.day >= ?5 AND u.day < ?6 AND "
	newestDay     = ", u.day DESC"
)

// KeyUsage lists the usage of the API keys of an organization, or of access.AllOrganizations. Faults: Unavailable if too many reads of the
// organization's logs are running.
func (h *History) KeyUsage(ctx context.Context, organization int64, f access.UsageFilter) (access.UsagePage, error) {
	return usagePage(ctx, organization, f, scan.List[access.Usage]{
		Logs: h.o.Logs, Table: "api_keys k", Index: "api_keys_by_organization", Then: newestDay,
		Columns: "k.id, k.public_id, k.name" + usageOwner + ", u.allowed, u.rate_limited, u.forbidden",
		Joins:   "CROSS JOIN organizations o ON o.id = k.organization_id CROSS JOIN key_days u ON u.key_id = k.id",
		Where:   usageInPeriod + "(k.id <> ?7 OR u.day < ?8)",
	})
}

// OrganizationUsage lists the usage of an organization, or of access.AllOrganizations. Faults: as of KeyUsage.
func (h *History) OrganizationUsage(ctx context.Context, organization int64, f access.UsageFilter) (access.UsagePage, error) {
	return usagePage(ctx, organization, f, scan.List[access.Usage]{
		Logs: h.o.Logs, Table: "organizations o", Then: newestDay,
		Columns: "o.id, o.public_id, o.name" + usageOwner + ", u.stored_bytes, u.events, u.succeeded, u.failed",
		Joins:   "CROSS JOIN organization_days u ON u.organization_id = o.id",
		Where:   usageInPeriod + "(o.id <> ?7 OR u.day < ?8)",
	})
}

func usagePage(ctx context.Context, organization int64, f access.UsageFilter, list scan.List[access.Usage]) (page access.UsagePage, err error) {
	q := scan.Query{Organization: organization, Limit: f.Limit + 1, Filtered: true, Args: []any{f.Since, f.Until, f.After.Row, f.After.Day}}
	if f.ByMonth {
		q.Limit *= 31 // enough days for so many whole months
	}
	if f.After.Row > 0 {
		q.Before = f.After.Row + 1
	}
	if f.Key > 0 {
		q.First, q.Before = f.Key, f.Key+1
	}
	found, err := list.Page(ctx, q)
	page.Rows, page.Next.Row = found.Rows, found.Next
	if f.ByMonth {
		page.Rows = months(page.Rows)
	}
	if len(page.Rows) > f.Limit {
		page.Rows = page.Rows[:f.Limit]
		last := page.Rows[f.Limit-1]
		page.Next = access.UsagePosition{Row: last.Row, Day: last.Day}
	}
	return page, err
}

// months adds up the days of each month. The days of one key or organization stand together, newest first.
func months(days []access.Usage) []access.Usage {
	months := days[:0]
	for _, u := range days {
		day := time.Unix(u.Day*24*60*60, 0).UTC()
		u.Day -= int64(day.Day() - 1)
		last := len(months) - 1
		if last < 0 || months[last].Row != u.Row || months[last].Day != u.Day {
			months = append(months, u)
			continue
		}
		months[last].KeyUse.Add(u.KeyUse)
		months[last].OrganizationUse.Add(u.OrganizationUse)
	}
	return months
}
