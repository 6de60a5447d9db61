package platform

import (
	"context"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

type userBody struct {
	ID               string         `json:"id"`
	Email            *string        `json:"email"`
	Name             string         `json:"name"`
	ExternalID       *string        `json:"external_id"`
	IsActive         bool           `json:"is_active"`
	Kind             string         `json:"kind"`
	OrganizationName *string        `json:"organization_name"` // of a service account
	ErasedAt         *exchange.Time `json:"erased_at"`
}

func newUserBody(u access.User) userBody {
	return userBody{u.ID, exchange.NullIfEmpty(u.Email), u.Name, u.ExternalID, u.IsActive, UserKind(u.IsService()), exchange.NullIfEmpty(u.ServiceOfName), (*exchange.Time)(u.ErasedAt)}
}

// UserKind is the kind of a user in a response.
func UserKind(isService bool) string {
	if isService {
		return "service"
	}
	return "person"
}

// CreateUser creates a user. If the request has no name, the e-mail address is the name. So the audit log always has a name.
func (h *Endpoints) CreateUser(x *exchange.Exchange) error {
	f := x.Form()
	f.Require("email")
	change := readUser(f, f.Email("email"))
	if err := f.Err(); err != nil {
		return err
	}
	created := access.User{
		Email: *change.Email, Name: form.Or(change.Name, *change.Email), ExternalID: exchange.NullIfEmpty(form.Or(change.ExternalID, "")),
		IsActive: form.Or(change.IsActive, true),
	}
	return h.Users.created(x)(h.Users.suggestPut(h.Store.CreateUser(x.Request.Context(), x.Actor(), created)))
}

// readUser reads the fields of a user that a caller may set, after the e-mail address.
func readUser(f *form.Form, email *string) access.UserChange {
	return access.UserChange{
		Email: email, Name: f.Label("name"), ExternalID: f.ExternalID("external_id"), IsActive: f.Bool("is_active"),
	}
}

// ListUsers lists users, newest first.
func (h *Endpoints) ListUsers(x *exchange.Exchange) error {
	return listBeginning(x, h.Store.UserPage, newUserBody, func(u access.User) int64 { return u.RowID })
}

type membershipBody struct {
	Organization OrganizationName `json:"organization"`
	Role         string           `json:"role"`
	CreatedAt    exchange.Time    `json:"created_at"`
}

// OrganizationName names an organization in a response about a user.
type OrganizationName struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	ExternalID *string `json:"external_id"`
}

func newMembershipBody(m access.Membership) membershipBody {
	return membershipBody{OrganizationName{m.OrganizationID, m.Name, m.ExternalID}, m.Role, exchange.Time(m.CreatedAt)}
}

// ListMemberships lists the organizations of a user, newest first.
func (h *Endpoints) ListMemberships(x *exchange.Exchange) error {
	user := x.Path.Value("id")
	list := func(ctx context.Context, before int64, limit int) ([]access.Membership, error) {
		return h.Store.Memberships(ctx, user, before, limit)
	}
	return exchange.ListRows(x, list, newMembershipBody, func(m access.Membership) int64 { return m.OrganizationRow })
}

// UpdateUser changes a user.
func (h *Endpoints) UpdateUser(x *exchange.Exchange) error {
	f := x.Form()
	change := readUser(f, f.EmailOrNull("email"))
	if err := f.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, newUserBody)(h.Store.UpdateUser(x.Request.Context(), x.Actor(), x.Path.Value("id"), change))
}

// PutUser creates or changes the user with the external id in the path. A change by the id works too. A field that the body leaves out
// stays as it is.
func (h *Endpoints) PutUser(x *exchange.Exchange) error {
	f := x.Form()
	id, err := h.Users.putReference(x, f, access.UserID)
	if err != nil {
		return err
	}
	change := access.UserChange{Name: f.Label("name"), Email: f.EmailOrNull("email")}
	if err := f.Err(); err != nil {
		return err
	}
	return h.Users.put(x)(h.Store.PutUser(x.Request.Context(), x.Actor(), id, change))
}
