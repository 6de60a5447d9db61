package server

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

// usageStore is the part of the store that the usage endpoints use.
type usageStore interface {
	// LiveKeys and LiveSubscriptions count what counts against the plan of an organization.
	LiveKeys(ctx context.Context, organization, now int64) (int64, error)
	LiveSubscriptions(ctx context.Context, organization int64) (int64, error)
	// KeyUsage and OrganizationUsage list usage; organization access.AllOrganizations lists that of all organizations.
	KeyUsage(ctx context.Context, organization int64, f access.UsageFilter) (access.UsagePage, error)
	OrganizationUsage(ctx context.Context, organization int64, f access.UsageFilter) (access.UsagePage, error)
}

// usage are the endpoints that say how much of its plan an organization uses, and what keys and organizations have used.
type usage struct {
	store usageStore
	keys  keyStore
}

// usageBody counts what the plan limits with max_api_keys and max_subscriptions.
type usageBody struct {
	APIKeys       int64 `json:"api_keys"`
	Subscriptions int64 `json:"subscriptions"`
}

func (h usage) read(x *exchange.Exchange) (err error) {
	var body usageBody
	if body.APIKeys, err = h.store.LiveKeys(x.Request.Context(), x.Organization(), time.Now().UnixMilli()); err != nil {
		return err
	}
	if body.Subscriptions, err = h.store.LiveSubscriptions(x.Request.Context(), x.Organization()); err != nil {
		return err
	}
	return x.OK(body)
}

// keyUsageBody is the usage of an API key in one period. Its fields are the columns of the CSV.
type keyUsageBody struct {
	KeyID                  string  `json:"key_id"`
	Name                   string  `json:"name"`
	OrganizationID         string  `json:"organization_id"`
	OrganizationExternalID *string `json:"organization_external_id"`
	Period                 string  `json:"period"`
	Allowed                int64   `json:"allowed"`
	RateLimited            int64   `json:"rate_limited"`
	Forbidden              int64   `json:"forbidden"`
}

func newKeyUsageBody(u access.Usage, period string) keyUsageBody {
	return keyUsageBody{u.ID, u.Name, u.OrganizationID, u.OrganizationExternalID, period, u.Allowed, u.RateLimited, u.Forbidden}
}

// organizationUsageBody is the usage of an organization in one period. Its fields are the columns of the CSV.
type organizationUsageBody struct {
	OrganizationID         string  `json:"organization_id"`
	OrganizationExternalID *string `json:"organization_external_id"`
	Name                   string  `json:"name"`
	Period                 string  `json:"period"`
	Events                 int64   `json:"events"`
	DeliveriesSucceeded    int64   `json:"deliveries_succeeded"`
	DeliveriesFailed       int64   `json:"deliveries_failed"`
	StoredBytes            int64   `json:"stored_bytes"`
}

func newOrganizationUsageBody(u access.Usage, period string) organizationUsageBody {
	return organizationUsageBody{u.OrganizationID, u.OrganizationExternalID, u.Name, period, u.Events, u.Succeeded, u.Failed, u.StoredBytes}
}

// usageLister lists usage; see usageStore.
type usageLister func(ctx context.Context, organization int64, f access.UsageFilter) (access.UsagePage, error)

func (h usage) ofKeys(x *exchange.Exchange) error {
	named := x.Query.Matching("key_id", "must be the id or the external id of an API key", access.KeyID.MayName)
	if named != "" && x.ListsAll() {
		x.Query.Refuse("key_id", "cannot be combined with organization=all; name its organization in the header "+credential.OrganizationHeader)
	}
	return listUsage(x, h.store.KeyUsage, newKeyUsageBody, func() (int64, error) {
		if named == "" {
			return 0, nil
		}
		id, err := x.ResolveID(named, access.KeyID, aKey, h.keys.KeyID)
		if err != nil {
			return 0, err
		}
		key, err := h.keys.Key(x.Request.Context(), x.Organization(), id)
		return key.RowID, err
	})
}

func (h usage) ofOrganizations(x *exchange.Exchange) error {
	return listUsage(x, h.store.OrganizationUsage, newOrganizationUsageBody, func() (int64, error) { return 0, nil })
}

// listUsage responds with a page of usage, or with all of it as CSV. key returns the row id of the only key, or 0.
func listUsage[B any](x *exchange.Exchange, list usageLister, body func(u access.Usage, period string) B, key func() (int64, error)) error {
	organization, err := x.ListOrganization()
	if err != nil {
		return err
	}
	f, asCSV := readUsageFilter(x), x.WantsCSV()
	p, err := x.Page()
	if err != nil {
		return err
	}
	if f.Key, err = key(); err != nil {
		return err
	}
	row := func(u access.Usage) B { return body(u, periodText(u, f)) }
	if asCSV {
		ctx, cancel := x.LongContext(longestCSV)
		defer cancel()
		return exchange.WriteCSV(x, allUsage(ctx, organization, f, list, row))
	}
	f.After, f.Limit = access.Usage{Row: p.After.Row, Day: p.After.At}, p.More()
	page, err := list(x.Request.Context(), organization, f)
	if err != nil {
		return err
	}
	p.Ended = form.Position{Row: page.Next}
	return exchange.WritePage(x, p, page.Rows, row, func(u access.Usage) form.Position { return form.Position{Row: u.Row, At: u.Day} })
}

const (
	longestCSV = 10 * time.Minute
	csvPage    = 500 // rows that are read at once
)

// allUsage reads page after page.
func allUsage[B any](ctx context.Context, organization int64, f access.UsageFilter, list usageLister, row func(access.Usage) B) iter.Seq2[B, error] {
	return func(yield func(B, error) bool) {
		f.Limit = csvPage
		for {
			page, err := list(ctx, organization, f)
			if err != nil {
				yield(*new(B), err)
				return
			}
			for _, u := range page.Rows {
				if !yield(row(u), nil) {
					return
				}
			}
			switch n := len(page.Rows); {
			case n == f.Limit:
				f.After = page.Rows[n-1]
			case page.Next > 0:
				f.After = access.Usage{Row: page.Next}
			default:
				return
			}
		}
	}
}

const (
	byDay, byMonth = "day", "month"
	usagePeriod    = 30 * usageDay
	usageDay       = int64(24 * time.Hour / time.Millisecond)
)

// readUsageFilter reads since, until and step, and returns the whole days or months that cover the period.
func readUsageFilter(x *exchange.Exchange) access.UsageFilter {
	q := &x.Query
	f := access.UsageFilter{ByMonth: q.Choice("step", byDay, byDay, byMonth) == byMonth}
	since, until := q.Period()
	if until == 0 {
		until = max(x.Began.UnixMilli(), since+1)
	}
	if since == 0 {
		since = max(until-usagePeriod, 0)
	}
	f.Since, f.Until = since/usageDay, (until-1)/usageDay+1
	switch {
	case !q.Valid():
	case since >= until:
		q.Refuse("until", "must be after since")
	case f.Until-f.Since > access.KeepUsage+1: // the present day is not complete
		q.Refuse("since", fmt.Sprintf("must be at most %d days before until, because usage is kept so long", access.KeepUsage))
	}
	if f.ByMonth {
		first, last := dayTime(f.Since), dayTime(f.Until-1)
		f.Since -= int64(first.Day() - 1)
		f.Until += int64(last.AddDate(0, 1, -last.Day()).Day() - last.Day())
	}
	return f
}

func dayTime(day int64) time.Time { return time.UnixMilli(day * usageDay).UTC() }

// periodText names the period of usage: 2026-11-23 or 2026-11.
func periodText(u access.Usage, f access.UsageFilter) string {
	if f.ByMonth {
		return dayTime(u.Day).Format("2006-01")
	}
	return dayTime(u.Day).Format(time.DateOnly)
}
