package platform

import (
	"context"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

// userStore is the part of the store that the user endpoints use.
type userStore interface {
	// UserPage lists those that begin with a text, as OrganizationPage does.
	UserPage(ctx context.Context, beginning string, before int64, limit int) (page []access.User, next int64, err error)
	// Memberships lists the organizations of a user, newest first, with row ids below before; 0 starts at the newest.
	Memberships(ctx context.Context, user string, before int64, limit int) ([]access.Membership, error)
	User(ctx context.Context, id string) (access.User, error)
	CreateUser(ctx context.Context, actor access.Actor, u access.User) (access.User, error)
	// PutUser creates or changes the user with an external id. A creation needs the name.
	PutUser(ctx context.Context, actor access.Actor, id string, c access.UserChange) (access.Put[access.User], error)
	UpdateUser(ctx context.Context, actor access.Actor, id string, c access.UserChange) (access.User, error)
	DeleteUser(ctx context.Context, actor access.Actor, id string) error
}

// Users are the user endpoints.
type Users struct {
	resource[access.User, userBody]
	store userStore
}

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

// Create creates a user. If the request has no name, the e-mail address is the name. So the audit log always has a name.
func (h Users) Create(x *exchange.Exchange) error {
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
	user, err := h.store.CreateUser(x.Request.Context(), x.Actor(), created)
	if err != nil {
		return suggestPut(err, usersPath)
	}
	return x.Created(usersPath+user.ID+"/", newUserBody(user))
}

// readUser reads the fields of a user that a caller may set, after the e-mail address.
func readUser(f *form.Form, email *string) access.UserChange {
	return access.UserChange{
		Email: email, Name: f.Label("name"), ExternalID: f.ExternalID("external_id"), IsActive: f.Bool("is_active"),
	}
}

// List lists users, newest first.
func (h Users) List(x *exchange.Exchange) error {
	return listBeginning(x, h.store.UserPage, newUserBody, h.row)
}

type membershipBody struct {
	Organization memberOfBody  `json:"organization"`
	Role         string        `json:"role"`
	CreatedAt    exchange.Time `json:"created_at"`
}

// memberOfBody is the organization of a membership.
type memberOfBody struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	ExternalID *string `json:"external_id"`
}

func newMembershipBody(m access.Membership) membershipBody {
	return membershipBody{memberOfBody{m.OrganizationID, m.Name, m.ExternalID}, m.Role, exchange.Time(m.CreatedAt)}
}

// Memberships lists the organizations of a user, newest first.
func (h Users) Memberships(x *exchange.Exchange) error {
	user := x.Path.Value("id")
	list := func(ctx context.Context, before int64, limit int) ([]access.Membership, error) {
		return h.store.Memberships(ctx, user, before, limit)
	}
	return exchange.ListRows(x, list, newMembershipBody, func(m access.Membership) int64 { return m.OrganizationRow })
}

// Update changes a user.
func (h Users) Update(x *exchange.Exchange) error {
	f := x.Form()
	change := readUser(f, f.EmailOrNull("email"))
	if err := f.Err(); err != nil {
		return err
	}
	return exchange.Reply(x, newUserBody)(h.store.UpdateUser(x.Request.Context(), x.Actor(), x.Path.Value("id"), change))
}

// Put creates or changes the user with the external id in the path. A change by the id works too. A field that the body leaves out
// stays as it is.
func (h Users) Put(x *exchange.Exchange) error {
	f := x.Form()
	id, err := putReference(x, f, access.UserID, aUser)
	if err != nil {
		return err
	}
	change := access.UserChange{Name: f.Label("name"), Email: f.EmailOrNull("email")}
	if err := f.Err(); err != nil {
		return err
	}
	user, err := h.store.PutUser(x.Request.Context(), x.Actor(), id, change)
	if err != nil {
		return notCreated(err, aUser)
	}
	return x.Put(usersPath+user.Is.ID+"/", user.Created, newUserBody(user.Is))
}
