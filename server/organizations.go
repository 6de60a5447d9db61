package server

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

// organizationStore is the part of the store that the organization endpoints use.
type organizationStore interface {
	// OrganizationPage lists those that begin with a text, newest first, with row ids below before; 0 starts at the newest. If next
	// is not 0, the search ended early.
	OrganizationPage(ctx context.Context, beginning string, before int64, limit int) (page []access.Organization, next int64, err error)
	Organization(ctx context.Context, id string) (access.Organization, error)
	CreateOrganization(ctx context.Context, actor access.Actor, o access.Organization) (access.Organization, error)
	// PutOrganization creates or changes the organization with an external id.
	PutOrganization(ctx context.Context, actor access.Actor, id, name, plan string) (access.Put[access.Organization], error)
	UpdateOrganization(ctx context.Context, actor access.Actor, id string, c access.OrganizationChange) (access.Organization, error)
	DeleteOrganization(ctx context.Context, actor access.Actor, id string) error
}

// organizations are the organization endpoints.
type organizations struct {
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

func (h organizations) create(x *exchange.Exchange) error {
	f, err := x.Form()
	if err != nil {
		return err
	}
	f.Require("name", "plan")
	name, plan, external := f.Label("name"), h.lookup.Plan(x.Request.Context(), f, "plan"), f.ExternalID("external_id")
	if err := f.Err(); err != nil {
		return err
	}
	created := access.Organization{Name: *name, Plan: *plan}
	if external != nil {
		created.ExternalID = exchange.NullIfEmpty(*external)
	}
	organization, err := h.store.CreateOrganization(x.Request.Context(), x.Actor(), created)
	if err != nil {
		return err
	}
	return x.Created("/api/v1/organizations/"+organization.ID+"/", newOrganizationBody(organization))
}

func (h organizations) list(x *exchange.Exchange) error {
	return listBeginning(x, h.store.OrganizationPage, newOrganizationBody, func(o access.Organization) int64 { return o.RowID })
}

// listBeginning responds with a page of a list that may have only items that begin with the parameter search.
func listBeginning[R, B any](x *exchange.Exchange, list func(ctx context.Context, beginning string, before int64, limit int) ([]R, int64, error),
	body func(R) B, row func(R) int64) error {
	beginning := x.Query.Matching("search", fmt.Sprintf("may have at most %d characters", access.MaxExternalID),
		func(text string) bool { return utf8.RuneCountInString(text) <= access.MaxExternalID })
	return exchange.SearchRows(x, func(ctx context.Context, before int64, limit int) ([]R, int64, error) {
		return list(ctx, beginning, before, limit)
	}, body, row)
}

// find returns the organization in the path.
func (h organizations) find(x *exchange.Exchange) (found access.Organization, err error) {
	return h.store.Organization(x.Request.Context(), x.Path.Value("id"))
}

func (h organizations) read(x *exchange.Exchange) error {
	return exchange.Show(x, h.find, newOrganizationBody)
}

func (h organizations) update(x *exchange.Exchange) error {
	id := x.Path.Value("id")
	f, err := x.Form()
	if err != nil {
		return err
	}
	change := access.OrganizationChange{
		Name: f.Label("name"), Plan: h.lookup.Plan(x.Request.Context(), f, "plan"), ExternalID: f.ExternalID("external_id"),
	}
	if err := f.Err(); err != nil {
		return err
	}
	organization, err := h.store.UpdateOrganization(x.Request.Context(), x.Actor(), id, change)
	if err != nil {
		return err
	}
	return x.OK(newOrganizationBody(organization))
}

// put creates or changes the organization with the external id in the path. A change by the id works too.
func (h organizations) put(x *exchange.Exchange) error {
	f, err := x.Form()
	if err != nil {
		return err
	}
	id, err := putReference(x, f, access.OrganizationID, anOrg)
	if err != nil {
		return err
	}
	f.Require("name", "plan")
	name, plan := f.Label("name"), h.lookup.Plan(x.Request.Context(), f, "plan")
	if err := f.Err(); err != nil {
		return err
	}
	organization, err := h.store.PutOrganization(x.Request.Context(), x.Actor(), id, *name, *plan)
	if err != nil {
		return err
	}
	return x.Put("/api/v1/organizations/"+organization.Is.ID+"/", organization.Created, newOrganizationBody(organization.Is))
}

func (h organizations) remove(x *exchange.Exchange) error {
	id := x.Path.Value("id")
	if err := h.store.DeleteOrganization(x.Request.Context(), x.Actor(), id); err != nil {
		return err
	}
	return x.NoContent()
}

// memberStore is the part of the store that the member endpoints use.
type memberStore interface {
	// Members lists them, newest user first, with row ids below before; 0 starts at the newest.
	Members(ctx context.Context, organization string, before int64, limit int) ([]access.Member, error)
	// SetMember gives a user a role. It adds the user if it is not a member yet.
	SetMember(ctx context.Context, actor access.Actor, organization, user, role string) (access.Member, error)
	RemoveMember(ctx context.Context, actor access.Actor, organization, user string) error
	Organization(ctx context.Context, id string) (access.Organization, error)
	User(ctx context.Context, id string) (access.User, error)
}

// members are the member endpoints.
type members struct {
	store  memberStore
	lookup form.Lookup
}

type memberBody struct {
	UserID string  `json:"user_id"`
	Email  *string `json:"email"`
	Name   string  `json:"name"`
	Role   string  `json:"role"`
	Kind   string  `json:"kind"`
}

func newMemberBody(m access.Member) memberBody {
	return memberBody{m.UserID, exchange.NullIfEmpty(m.Email), m.Name, m.Role, kindOf(m.IsService)}
}

func (h members) list(x *exchange.Exchange) error {
	id := x.Path.Value("id")
	list := func(ctx context.Context, before int64, limit int) ([]access.Member, error) {
		return h.store.Members(ctx, id, before, limit)
	}
	return exchange.ListRows(x, list, newMemberBody, func(m access.Member) int64 { return m.UserRow })
}

func (h members) set(x *exchange.Exchange) error {
	id, user := memberIDs(x)
	f, err := x.Form()
	if err != nil {
		return err
	}
	f.Require("role")
	role := h.lookup.Role(x.Request.Context(), f, "role")
	if err := f.Err(); err != nil {
		return err
	}
	member, err := h.store.SetMember(x.Request.Context(), x.Actor(), id, user, *role)
	if err != nil {
		return err
	}
	return x.OK(newMemberBody(member))
}

func (h members) remove(x *exchange.Exchange) error {
	id, user := memberIDs(x)
	if err := h.store.RemoveMember(x.Request.Context(), x.Actor(), id, user); err != nil {
		return err
	}
	return x.NoContent()
}

// find checks that the organization and the user exist. The user need not be a member.
func (h members) find(x *exchange.Exchange) error {
	id, user := memberIDs(x)
	if _, err := h.store.Organization(x.Request.Context(), id); err != nil {
		return err
	}
	_, err := h.store.User(x.Request.Context(), user)
	return err
}

// memberIDs reads the organization and the user of a member from the path.
func memberIDs(x *exchange.Exchange) (organization, user string) {
	return x.Path.Value("id"), x.Path.Value("user_id")
}
