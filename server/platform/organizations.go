package platform

import (
	"context"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

// organizationStore is the part of the store that the organization endpoints use.
type organizationStore interface {
	// OrganizationPage lists those that begin with a text, in an order. If next is not 0, the search ended early.
	OrganizationPage(ctx context.Context, f access.OrganizationFilter) (page []access.ListedOrganization, next int64, err error)
	Organization(ctx context.Context, id string) (access.Organization, error)
	CreateOrganization(ctx context.Context, actor access.Actor, o access.Organization) (access.Organization, error)
	// PutOrganization creates or changes the organization with an external id. A creation needs the name and the plan.
	PutOrganization(ctx context.Context, actor access.Actor, id string, c access.OrganizationChange) (access.Put[access.Organization], error)
	UpdateOrganization(ctx context.Context, actor access.Actor, id string, c access.OrganizationChange) (access.Organization, error)
	DeleteOrganization(ctx context.Context, actor access.Actor, id string) error
}

// Organizations are the organization endpoints.
type Organizations struct {
	resource[access.Organization, organizationBody]
	store  organizationStore
	lookup form.Lookup
}

type organizationBody struct {
	ID         string         `json:"id"`
	Name       string         `json:"name"`
	Plan       string         `json:"plan"`
	ExternalID *string        `json:"external_id"`
	ClosedAt   *exchange.Time `json:"closed_at"`
}

func newOrganizationBody(o access.Organization) organizationBody {
	return organizationBody{o.ID, o.Name, o.Plan, o.ExternalID, (*exchange.Time)(o.ClosedAt)}
}

// Create creates an organization.
func (h Organizations) Create(x *exchange.Exchange) error {
	f := x.Form()
	f.Require("name", "plan")
	name, plan, external := f.Label("name"), h.lookup.Plan(x.Request.Context(), f, "plan"), f.ExternalID("external_id")
	if err := f.Err(); err != nil {
		return err
	}
	created := access.Organization{Name: *name, Plan: *plan, ExternalID: exchange.NullIfEmpty(form.Or(external, ""))}
	organization, err := h.store.CreateOrganization(x.Request.Context(), x.Actor(), created)
	if err != nil {
		return suggestPut(err, organizationsPath)
	}
	return x.Created(organizationsPath+organization.ID+"/", newOrganizationBody(organization))
}

// listedOrganizationBody is an organization in a list.
type listedOrganizationBody struct {
	organizationBody
	InTrouble   int64          `json:"subscriptions_in_trouble"`
	Pending     int64          `json:"pending_deliveries"`
	LastEventAt *exchange.Time `json:"last_event_at"`
	Events      int64          `json:"events_last_30_days"`
}

// List lists organizations.
func (h Organizations) List(x *exchange.Exchange) error {
	filter := access.OrganizationFilter{Beginning: readBeginning(x)}
	filter.Sort = access.OrganizationSort(x.Query.Choice("sort", "", string(access.ByTrouble), string(access.ByPending), string(access.ByLastEvent)))
	p, err := x.Page()
	if err != nil {
		return err
	}
	filter.Before, filter.Figure, filter.Limit = p.After.Row, p.After.At, p.More()
	found, next, err := h.store.OrganizationPage(x.Request.Context(), filter)
	if err != nil {
		return err
	}
	p.Ended = form.Position{Row: next}
	body := func(o access.ListedOrganization) listedOrganizationBody {
		return listedOrganizationBody{newOrganizationBody(o.Organization), o.InTrouble, o.Pending, (*exchange.Time)(o.Organization.LastEventAt), o.Events}
	}
	return exchange.WritePage(x, p, found, body, func(o access.ListedOrganization) form.Position {
		return form.Position{Row: o.Organization.RowID, At: filter.Sort.Of(o.OrganizationFigures)}
	})
}

// readBeginning reads the parameter search.
func readBeginning(x *exchange.Exchange) string {
	return x.Query.Matching("search", fmt.Sprintf("may have at most %d characters", access.MaxExternalID),
		func(text string) bool { return utf8.RuneCountInString(text) <= access.MaxExternalID })
}

// listBeginning responds with a page of a list that may have only items that begin with the parameter search.
func listBeginning[R, B any](x *exchange.Exchange, list func(ctx context.Context, beginning string, before int64, limit int) ([]R, int64, error),
	body func(R) B, row func(R) int64) error {
	beginning := readBeginning(x)
	return exchange.SearchRows(x, func(ctx context.Context, before int64, limit int) ([]R, int64, error) {
		return list(ctx, beginning, before, limit)
	}, body, row)
}

// Update changes an organization.
func (h Organizations) Update(x *exchange.Exchange) error {
	f := x.Form()
	change := access.OrganizationChange{
		Name: f.Label("name"), Plan: h.lookup.Plan(x.Request.Context(), f, "plan"), ExternalID: f.ExternalID("external_id"),
	}
	if err := f.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, newOrganizationBody)(h.store.UpdateOrganization(x.Request.Context(), x.Actor(), x.Path.Value("id"), change))
}

// Put creates or changes the organization with the external id in the path. A change by the id works too. A field that the body leaves
// out stays as it is.
func (h Organizations) Put(x *exchange.Exchange) error {
	f := x.Form()
	id, err := putReference(x, f, access.OrganizationID, anOrganization)
	if err != nil {
		return err
	}
	change := access.OrganizationChange{Name: f.Label("name"), Plan: h.lookup.Plan(x.Request.Context(), f, "plan")}
	if err := f.Err(); err != nil {
		return err
	}
	organization, err := h.store.PutOrganization(x.Request.Context(), x.Actor(), id, change)
	if err != nil {
		return notCreated(err, anOrganization)
	}
	return x.Put(organizationsPath+organization.Is.ID+"/", organization.Created, newOrganizationBody(organization.Is))
}

// portalStore is the part of the store that the portal link endpoint uses.
type portalStore interface {
	CreatePortalLink(ctx context.Context, actor access.Actor, organization string, l access.NewPortalLink) (access.SignInLink, error)
}

// Portals are the endpoint for links to the customer portal: the console of one organization.
type Portals struct {
	store  portalStore
	lookup form.Lookup
	url    string // where browsers reach the server
}

// The life of a portal link, in seconds.
const (
	minPortalLife     = int64(access.MinPortalLife / time.Second)
	maxPortalLife     = int64(access.MaxPortalLife / time.Second)
	defaultPortalLife = 3600
)

// portalLinkBody is the only response that shows the secret of a link.
type portalLinkBody struct {
	URL       string        `json:"url"`
	ExpiresAt exchange.Time `json:"expires_at"`
}

// Create creates a link. No other response shows its secret.
func (h Portals) Create(x *exchange.Exchange) error {
	f := x.OptionalForm()
	role, life, back := h.lookup.Role(x.Request.Context(), f, "role"), f.Integer("expires_in", minPortalLife, maxPortalLife), f.WebURL("return_url")
	if err := f.Err(); err != nil {
		return err
	}
	wanted := access.NewPortalLink{
		Credential: access.Mint(access.LinkPrefix), Role: form.Or(role, access.RoleCustomer), ReturnURL: back,
		Life: time.Duration(form.Or(life, defaultPortalLife)) * time.Second,
	}
	link, err := h.store.CreatePortalLink(x.Request.Context(), x.Actor(), x.Path.Value("id"), wanted)
	if err != nil {
		return err
	}
	x.NoStore()
	return x.Respond(http.StatusCreated, portalLinkBody{console.SignInURL(h.url, wanted.Credential.Reveal()), exchange.Time(link.ExpiresAt)})
}
