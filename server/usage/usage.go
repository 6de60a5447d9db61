// Package usage owns the endpoints that say how much of its plan an organization uses, and what API keys and organizations have used by
// day and month. It knows no SQL, and does not count.
package usage

import (
	"context"
	"iter"
	"strconv"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

// Store is the part of the store that the endpoints use.
type Store interface {
	// LiveKeys and LiveSubscriptions count what counts against the plan of an organization.
	LiveKeys(ctx context.Context, organization, now int64) (int64, error)
	LiveSubscriptions(ctx context.Context, organization int64) (int64, error)
	KeyUsage(ctx context.Context, organization int64, f access.UsageFilter) (access.UsagePage, error)
	OrganizationUsage(ctx context.Context, organization int64, f access.UsageFilter) (access.UsagePage, error)
	Key(ctx context.Context, organization int64, id string) (access.Key, error)
	// KeyID returns the id of the active key with an external id, or NotFound.
	KeyID(ctx context.Context, organization int64, externalID string) (string, error)
}

// Endpoints are the endpoints. Store is required.
type Endpoints struct{ Store Store }

// planBody counts what the plan limits with max_api_keys and max_subscriptions.
type planBody struct {
	APIKeys       int64 `json:"api_keys"`
	Subscriptions int64 `json:"subscriptions"`
}

// OfPlan responds with what counts against the plan of the organization.
func (h Endpoints) OfPlan(x *exchange.Exchange) (err error) {
	var body planBody
	if body.APIKeys, err = h.Store.LiveKeys(x.Request.Context(), x.Organization(), time.Now().UnixMilli()); err != nil {
		return err
	}
	if body.Subscriptions, err = h.Store.LiveSubscriptions(x.Request.Context(), x.Organization()); err != nil {
		return err
	}
	return x.OK(body)
}

// keyBody is the usage of an API key in one period. Its fields are the columns of the CSV.
type keyBody struct {
	KeyID                  string  `json:"key_id"`
	Name                   string  `json:"name"`
	OrganizationID         string  `json:"organization_id"`
	OrganizationExternalID *string `json:"organization_external_id"`
	Period                 string  `json:"period"`
	Allowed                int64   `json:"allowed"`
	RateLimited            int64   `json:"rate_limited"`
	Forbidden              int64   `json:"forbidden"`
}

// organizationBody is the usage of an organization in one period. Its fields are the columns of the CSV.
type organizationBody struct {
	OrganizationID         string  `json:"organization_id"`
	OrganizationExternalID *string `json:"organization_external_id"`
	Name                   string  `json:"name"`
	Period                 string  `json:"period"`
	Events                 int64   `json:"events"`
	DeliveriesSucceeded    int64   `json:"deliveries_succeeded"`
	DeliveriesFailed       int64   `json:"deliveries_failed"`
	StoredBytes            int64   `json:"stored_bytes"`
}

// OfKeys lists the usage of API keys.
func (h Endpoints) OfKeys(x *exchange.Exchange) error {
	named := x.Query.Matching("key_id", "must be the id or the external id of an API key", access.KeyID.MayName)
	x.RefuseForAll("key_id")
	r, err := readRequest(x)
	if err == nil && named != "" {
		r.filter.Key, err = h.key(x, named)
	}
	if err != nil {
		return err
	}
	return respond(x, r, h.Store.KeyUsage, func(u access.Usage) keyBody {
		return keyBody{u.ID, u.Name, u.OrganizationID, u.OrganizationExternalID, r.period(u), u.Allowed, u.RateLimited, u.Forbidden}
	})
}

func (h Endpoints) key(x *exchange.Exchange, named string) (int64, error) {
	id, err := x.ResolveID(named, access.KeyID, h.Store.KeyID)
	if err != nil {
		return 0, err
	}
	key, err := h.Store.Key(x.Request.Context(), x.Organization(), id)
	return key.RowID, err
}

// OfOrganizations lists the usage of organizations.
func (h Endpoints) OfOrganizations(x *exchange.Exchange) error {
	r, err := readRequest(x)
	if err != nil {
		return err
	}
	return respond(x, r, h.Store.OrganizationUsage, func(u access.Usage) organizationBody {
		return organizationBody{u.OrganizationID, u.OrganizationExternalID, u.Name, r.period(u), u.Events, u.Succeeded, u.Failed, u.StoredBytes}
	})
}

type request struct {
	organization int64
	filter       access.UsageFilter
	page         form.Page
	asCSV        bool
}

const (
	day           = int64(24 * time.Hour / time.Millisecond)
	defaultPeriod = 30 * 24 * time.Hour
)

// readRequest reads a request. The list has the whole days or months that cover the period.
func readRequest(x *exchange.Exchange) (r request, err error) {
	r.organization = x.ListOrganization()
	q, f := &x.Query, &r.filter
	f.ByMonth = q.Choice("step", "day", "day", "month") == "month"
	since, until := q.RecentPeriod(x.Began, defaultPeriod)
	f.Since, f.Until = since/day, (until-1)/day+1
	if q.Valid() && f.Until-f.Since > access.KeepUsage+1 { // the present day is not complete
		q.Refuse("since", "must be at most "+strconv.Itoa(access.KeepUsage)+" days before until, because usage is kept so long")
	}
	if f.ByMonth {
		first, last := dayTime(f.Since), dayTime(f.Until-1)
		f.Since -= int64(first.Day() - 1)
		f.Until += int64(last.AddDate(0, 1, -last.Day()).Day() - last.Day())
	}
	r.asCSV = x.WantsCSV()
	r.page, err = x.Page()
	return r, err
}

func dayTime(days int64) time.Time { return time.UnixMilli(days * day).UTC() }

func (r request) period(u access.Usage) string {
	if r.filter.ByMonth {
		return dayTime(u.Day).Format("2006-01")
	}
	return dayTime(u.Day).Format(time.DateOnly)
}

type lister func(ctx context.Context, organization int64, f access.UsageFilter) (access.UsagePage, error)

const (
	longestCSV = 10 * time.Minute
	csvPage    = 500 // rows that are read at once
)

func respond[B any](x *exchange.Exchange, r request, list lister, body func(access.Usage) B) error {
	if r.asCSV {
		ctx, cancel := x.LongContext(longestCSV)
		defer cancel()
		r.filter.Limit = csvPage
		return exchange.WriteCSV(x, all(ctx, x, r, list, body))
	}
	after := r.page.After
	r.filter.After, r.filter.Limit = access.UsagePosition{Row: after.Row, Day: after.At}, r.page.Limit
	page, err := list(x.Request.Context(), r.organization, r.filter)
	if err != nil {
		return err
	}
	r.page.Ended = form.Position{Row: page.Next.Row, At: page.Next.Day}
	return x.OK(exchange.NewList(r.page, page.Rows, body, nil)) // the page has no extra row
}

// all reads page after page. Before each one it checks the credential again, because a slow reader takes minutes.
func all[B any](ctx context.Context, x *exchange.Exchange, r request, list lister, body func(access.Usage) B) iter.Seq2[B, error] {
	return func(yield func(B, error) bool) {
		for more := true; more; {
			err := x.Caller.Recheck()
			if err == nil && r.organization == access.AllOrganizations {
				err = x.Principal.Permit(access.NewScope(access.PlatformRead))
			}
			var page access.UsagePage
			if err == nil {
				page, err = list(ctx, r.organization, r.filter)
			}
			if err != nil {
				yield(*new(B), err)
				return
			}
			for _, u := range page.Rows {
				if !yield(body(u), nil) {
					return
				}
			}
			r.filter.After, more = page.Next, page.Next.Row > 0
		}
	}
}
