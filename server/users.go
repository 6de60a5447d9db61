package server

import (
	"context"
	"time"

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
	// PutUser creates or changes the user with an external id. A nil email changes none.
	PutUser(ctx context.Context, actor access.Actor, id, name string, email *string) (access.Put[access.User], error)
	UpdateUser(ctx context.Context, actor access.Actor, id string, c access.UserChange) (access.User, error)
	DeleteUser(ctx context.Context, actor access.Actor, id string) error
}

// users are the user endpoints.
type users struct {
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
	return userBody{u.ID, exchange.NullIfEmpty(u.Email), u.Name, u.ExternalID, u.IsActive, kindOf(u.IsService()), exchange.NullIfEmpty(u.ServiceOfName), (*exchange.Time)(u.ErasedAt)}
}

// kindOf is the kind of a user.
func kindOf(isService bool) string {
	if isService {
		return "service"
	}
	return "person"
}

// create uses the e-mail address as the name if there is none, so that the audit log always has a name.
func (h users) create(x *exchange.Exchange) error {
	f, err := x.Form()
	if err != nil {
		return err
	}
	f.Require("email")
	change := readUser(f)
	if err := f.Err(); err != nil {
		return err
	}
	created := access.User{Email: *change.Email, Name: *change.Email, IsActive: change.IsActive == nil || *change.IsActive}
	if change.Name != nil {
		created.Name = *change.Name
	}
	if change.ExternalID != nil {
		created.ExternalID = exchange.NullIfEmpty(*change.ExternalID)
	}
	user, err := h.store.CreateUser(x.Request.Context(), x.Actor(), created)
	if err != nil {
		return err
	}
	return x.Created("/api/v1/users/"+user.ID+"/", newUserBody(user))
}

// readUser reads the fields of a user that a caller may set.
func readUser(f *form.Form) access.UserChange {
	return access.UserChange{
		Email: f.Email("email"), Name: f.Label("name"), ExternalID: f.ExternalID("external_id"), IsActive: f.Bool("is_active"),
	}
}

func (h users) list(x *exchange.Exchange) error {
	return listBeginning(x, h.store.UserPage, newUserBody, func(u access.User) int64 { return u.RowID })
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

func (h users) memberships(x *exchange.Exchange) error {
	user := x.Path.Value("id")
	list := func(ctx context.Context, before int64, limit int) ([]access.Membership, error) {
		return h.store.Memberships(ctx, user, before, limit)
	}
	return exchange.ListRows(x, list, newMembershipBody, func(m access.Membership) int64 { return m.OrganizationRow })
}

// find returns the user in the path.
func (h users) find(x *exchange.Exchange) (found access.User, err error) {
	return h.store.User(x.Request.Context(), x.Path.Value("id"))
}

func (h users) read(x *exchange.Exchange) error { return exchange.Show(x, h.find, newUserBody) }

func (h users) update(x *exchange.Exchange) error {
	id := x.Path.Value("id")
	f, err := x.Form()
	if err != nil {
		return err
	}
	change := readUser(f)
	if err := f.Err(); err != nil {
		return err
	}
	user, err := h.store.UpdateUser(x.Request.Context(), x.Actor(), id, change)
	if err != nil {
		return err
	}
	return x.OK(newUserBody(user))
}

// put creates or changes the user with the external id in the path. A change by the id works too.
func (h users) put(x *exchange.Exchange) error {
	f, err := x.Form()
	if err != nil {
		return err
	}
	id, err := putReference(x, f, access.UserID, aUser)
	if err != nil {
		return err
	}
	f.Require("name")
	name, email := f.Label("name"), f.Email("email")
	if err := f.Err(); err != nil {
		return err
	}
	user, err := h.store.PutUser(x.Request.Context(), x.Actor(), id, *name, email)
	if err != nil {
		return err
	}
	return x.Put("/api/v1/users/"+user.Is.ID+"/", user.Created, newUserBody(user.Is))
}

func (h users) remove(x *exchange.Exchange) error {
	id := x.Path.Value("id")
	if err := h.store.DeleteUser(x.Request.Context(), x.Actor(), id); err != nil {
		return err
	}
	return x.NoContent()
}

// tokenStore is the part of the store that the access token endpoints use.
type tokenStore interface {
	CreateToken(ctx context.Context, actor access.Actor, user, organization string, c access.Credential, name string, expiresAt *int64) (access.AccessToken, error)
	// Tokens lists them newest first, with row ids below before; 0 starts at the newest.
	Tokens(ctx context.Context, user string, before int64, limit int) ([]access.AccessToken, error)
	Token(ctx context.Context, user, id string) (access.AccessToken, error)
	RevokeToken(ctx context.Context, actor access.Actor, user, id string) error
}

// tokens are the access token endpoints.
type tokens struct {
	store  tokenStore
	lookup form.Lookup
}

type tokenBody struct {
	ID             string         `json:"id"`
	Name           string         `json:"name"`
	TokenPrefix    string         `json:"token_prefix"`
	Status         string         `json:"status"`
	UserID         string         `json:"user_id"`
	OrganizationID string         `json:"organization_id"`
	CreatedAt      exchange.Time  `json:"created_at"`
	ExpiresAt      *exchange.Time `json:"expires_at"`
	LastUsedAt     *exchange.Time `json:"last_used_at"`
	RevokedAt      *exchange.Time `json:"revoked_at"`
}

// createdTokenBody is the only response that shows a token.
type createdTokenBody struct {
	tokenBody
	Token string `json:"token"`
}

func newTokenBody(t access.AccessToken) tokenBody {
	return tokenBody{
		ID: t.ID, Name: t.Name, TokenPrefix: t.TokenPrefix, Status: string(t.Status(time.Now().UnixMilli())),
		UserID: t.UserID, OrganizationID: t.OrganizationID, CreatedAt: exchange.Time(t.CreatedAt),
		ExpiresAt: (*exchange.Time)(t.ExpiresAt), LastUsedAt: (*exchange.Time)(t.LastUsedAt), RevokedAt: (*exchange.Time)(t.RevokedAt),
	}
}

func (h tokens) create(x *exchange.Exchange) error {
	user := x.Path.Value("id")
	f, err := x.Form()
	if err != nil {
		return err
	}
	f.Require("organization_id")
	organization, name, expires := h.lookup.Organization(x.Request.Context(), f, "organization_id"), f.Label("name"), f.Expiry("expires_at")
	if err := f.Err(); err != nil {
		return err
	}
	if name == nil {
		name = new(string)
	}
	credential := access.Mint(access.TokenPrefix)
	token, err := h.store.CreateToken(x.Request.Context(), x.Actor(), user, *organization, credential, *name, expires)
	if err != nil {
		return err
	}
	x.NoStore()
	return x.Created("/api/v1/users/"+token.UserID+"/access-tokens/"+token.ID+"/", createdTokenBody{newTokenBody(token), credential.Reveal()})
}

func (h tokens) list(x *exchange.Exchange) error {
	user := x.Path.Value("id")
	list := func(ctx context.Context, before int64, limit int) ([]access.AccessToken, error) {
		return h.store.Tokens(ctx, user, before, limit)
	}
	return exchange.ListRows(x, list, newTokenBody, func(t access.AccessToken) int64 { return t.RowID })
}

// find returns the access token in the path.
func (h tokens) find(x *exchange.Exchange) (found access.AccessToken, err error) {
	user, id, err := tokenIDs(x)
	if err != nil {
		return found, err
	}
	return h.store.Token(x.Request.Context(), user, id)
}

func (h tokens) read(x *exchange.Exchange) error { return exchange.Show(x, h.find, newTokenBody) }

func (h tokens) revoke(x *exchange.Exchange) error {
	user, id, err := tokenIDs(x)
	if err != nil {
		return err
	}
	if err := h.store.RevokeToken(x.Request.Context(), x.Actor(), user, id); err != nil {
		return err
	}
	return x.NoContent()
}

// tokenIDs reads the user and the id of a token from the path.
func tokenIDs(x *exchange.Exchange) (user, token string, err error) {
	token, err = x.Path.ID("token_id", access.TokenID, aToken)
	return x.Path.Value("id"), token, err
}
