package platform

import (
	"context"
	"net/http"
	"time"

	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

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

func (h *Endpoints) readOrganization(ctx context.Context, f *form.Form) access.Organization {
	f.Require("name", "plan")
	c := h.readOrganizationChange(ctx, f)
	return access.Organization{
		Name: form.Or(c.Name, ""), Plan: form.Or(c.Plan, ""), ExternalID: access.NullIfEmpty(form.Or(c.ExternalID, "")),
	}
}

func (h *Endpoints) readOrganizationChange(ctx context.Context, f *form.Form) access.OrganizationChange {
	c := h.readOrganizationPut(ctx, f)
	c.ExternalID = f.ExternalID(externalID)
	return c
}

func (h *Endpoints) readOrganizationPut(ctx context.Context, f *form.Form) access.OrganizationChange {
	return access.OrganizationChange{Name: f.Label("name"), Plan: h.lookup.Plan(ctx, f, "plan")}
}

type listedOrganizationBody struct {
	organizationBody
	InTrouble   int64          `json:"subscriptions_in_trouble"`
	Pending     int64          `json:"pending_deliveries"`
	LastEventAt *exchange.Time `json:"last_event_at"`
	Events      int64          `json:"events_last_30_days"`
}

// ListOrganizations lists organizations.
func (h *Endpoints) ListOrganizations(x *exchange.Exchange) error {
	filter := access.OrganizationFilter{Beginning: x.Query.Search()}
	filter.Sort = access.OrganizationSort(x.Query.Choice("sort", "", string(access.ByTrouble), string(access.ByPending), string(access.ByLastEvent)))
	list := func(ctx context.Context, after form.Position, limit int) ([]access.ListedOrganization, form.Position, error) {
		filter.Before, filter.Figure, filter.Limit = after.Row, after.At, limit
		found, err := h.Store.OrganizationPage(ctx, filter)
		return found.Rows, form.Position{Row: found.Next}, err
	}
	body := func(o access.ListedOrganization) listedOrganizationBody {
		return listedOrganizationBody{newOrganizationBody(o.Organization), o.InTrouble, o.Pending, (*exchange.Time)(o.Organization.LastEventAt), o.Events}
	}
	return exchange.ListPositions(x, list, body, func(o access.ListedOrganization) form.Position {
		return form.Position{Row: o.Organization.RowID, At: filter.Sort.Of(o.OrganizationFigures)}
	})
}

// listOf responds with a page of what belongs to the thing in the path.
func listOf[R, B any](x *exchange.Exchange, list func(ctx context.Context, owner string, before int64, limit int) ([]R, error),
	body func(R) B, row func(R) int64) error {
	return exchange.ListRows(x, func(ctx context.Context, before int64, limit int) ([]R, error) {
		return list(ctx, x.Path.Value("id"), before, limit)
	}, body, row)
}

const defaultPortalLife = 3600 // seconds

type portalLinkBody struct {
	URL       string        `json:"url"`
	ExpiresAt exchange.Time `json:"expires_at"`
}

// CreatePortalLink creates a link. No other response shows its secret.
func (h *Endpoints) CreatePortalLink(x *exchange.Exchange) error {
	f := x.OptionalForm()
	role := h.lookup.Role(x.Request.Context(), f, "role")
	life := f.Integer("expires_in", int64(access.MinPortalLife/time.Second), int64(access.MaxPortalLife/time.Second))
	back := f.WebURL("return_url")
	if err := f.Err(); err != nil {
		return err
	}
	wanted := access.NewPortalLink{
		Credential: access.Mint(access.LinkPrefix), Role: form.Or(role, access.RoleCustomer), ReturnURL: back,
		Life: time.Duration(form.Or(life, defaultPortalLife)) * time.Second,
	}
	link, err := h.Store.CreatePortalLink(x.Request.Context(), x.Actor(), x.Path.Value("id"), wanted)
	if err != nil {
		return err
	}
	x.NoStore()
	return x.Respond(http.StatusCreated, portalLinkBody{console.SignInURL(h.consoleURL, wanted.Credential.Reveal()), exchange.Time(link.ExpiresAt)})
}

type memberBody struct {
	UserID string  `json:"user_id"`
	Email  *string `json:"email"`
	Name   string  `json:"name"`
	Role   string  `json:"role"`
	Kind   string  `json:"kind"`
}

func newMemberBody(m access.Member) memberBody {
	return memberBody{m.UserID, access.NullIfEmpty(m.Email), m.Name, m.Role, UserKind(m.IsService)}
}

// ListMembers lists the members of an organization, newest user first.
func (h *Endpoints) ListMembers(x *exchange.Exchange) error {
	return listOf(x, h.Store.Members, newMemberBody, func(m access.Member) int64 { return m.UserRow })
}

// SetMember gives a user a role. It adds the user if it is not a member yet.
func (h *Endpoints) SetMember(x *exchange.Exchange) error {
	id, user := x.Path.Value("id"), x.Path.Value("user_id")
	f := x.Form()
	f.Require("role")
	role := h.lookup.Role(x.Request.Context(), f, "role")
	if err := f.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, newMemberBody)(h.Store.SetMember(x.Request.Context(), x.Actor(), id, user, *role))
}

// RemoveMember removes a user from an organization.
func (h *Endpoints) RemoveMember(x *exchange.Exchange) error {
	id, user := x.Path.Value("id"), x.Path.Value("user_id")
	return x.Done(h.Store.RemoveMember(x.Request.Context(), x.Actor(), id, user))
}

// MemberExists checks that the organization and the user exist. The user need not be a member.
func (h *Endpoints) MemberExists(x *exchange.Exchange) error {
	id, user := x.Path.Value("id"), x.Path.Value("user_id")
	if _, err := h.Store.Organization(x.Request.Context(), id); err != nil {
		return err
	}
	_, err := h.Store.User(x.Request.Context(), user)
	return err
}
