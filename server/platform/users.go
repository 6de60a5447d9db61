package platform

import (
	"context"
	"time"

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
	return userBody{u.ID, access.NullIfEmpty(u.Email), u.Name, u.ExternalID, u.IsActive, UserKind(u.IsService()), access.NullIfEmpty(u.ServiceOfName), (*exchange.Time)(u.ErasedAt)}
}

// UserKind is the kind of a user in a response.
func UserKind(isService bool) string {
	if isService {
		return "service"
	}
	return "person"
}

// readUser reads a new user. Without a name, the e-mail address is the name. So the audit log always has a name.
func readUser(_ context.Context, f *form.Form) access.User {
	f.Require("email")
	c := readUserFields(f, f.Email("email"))
	email := form.Or(c.Email, "")
	return access.User{
		Email: email, Name: form.Or(c.Name, email), ExternalID: access.NullIfEmpty(form.Or(c.ExternalID, "")),
		IsActive: form.Or(c.IsActive, true),
	}
}

func readUserChange(_ context.Context, f *form.Form) access.UserChange {
	return readUserFields(f, f.EmailOrNull("email"))
}

// readUserFields reads the fields of a user that a caller may set, after the e-mail address.
func readUserFields(f *form.Form, email *string) access.UserChange {
	return access.UserChange{Email: email, Name: f.Label("name"), ExternalID: f.ExternalID(externalID), IsActive: f.Bool("is_active")}
}

func readUserPut(_ context.Context, f *form.Form) access.UserChange {
	return access.UserChange{Name: f.Label("name"), Email: f.EmailOrNull("email")}
}

type listedUserBody struct {
	userBody
	Memberships int64            `json:"memberships"`
	Newest      []membershipBody `json:"newest_memberships"`
	LastUsedAt  *exchange.Time   `json:"last_used_at"`
}

func newListedUserBody(u access.ListedUser) listedUserBody {
	return listedUserBody{newUserBody(u.User), u.Memberships, exchange.Each(u.Newest, newMembershipBody), (*exchange.Time)(u.LastUsedAt)}
}

// ListUsers lists users, newest first.
func (h *Endpoints) ListUsers(x *exchange.Exchange) error {
	beginning := x.Query.Search()
	return exchange.SearchRows(x, func(ctx context.Context, before int64, limit int) (access.Page[access.ListedUser], error) {
		return h.Store.UserPage(ctx, beginning, before, limit)
	}, newListedUserBody, func(u access.ListedUser) int64 { return u.RowID })
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
	return listOf(x, h.Store.Memberships, newMembershipBody, func(m access.Membership) int64 { return m.OrganizationRow })
}

type tokenBody struct {
	ID                     string         `json:"id"`
	Name                   string         `json:"name"`
	TokenPrefix            string         `json:"token_prefix"`
	Status                 string         `json:"status"`
	UserID                 string         `json:"user_id"`
	OrganizationID         string         `json:"organization_id"`
	OrganizationExternalID *string        `json:"organization_external_id"`
	CreatedAt              exchange.Time  `json:"created_at"`
	ExpiresAt              *exchange.Time `json:"expires_at"`
	LastUsedAt             *exchange.Time `json:"last_used_at"`
	RevokedAt              *exchange.Time `json:"revoked_at"`
}

type createdTokenBody struct {
	tokenBody
	Token string `json:"token"`
}

func newTokenBody(t access.AccessToken) tokenBody {
	return tokenBody{
		ID: t.ID, Name: t.Name, TokenPrefix: t.TokenPrefix, Status: string(t.Status(time.Now().UnixMilli())),
		UserID: t.UserID, OrganizationID: t.OrganizationID, OrganizationExternalID: t.OrganizationExternalID, CreatedAt: exchange.Time(t.CreatedAt),
		ExpiresAt: (*exchange.Time)(t.ExpiresAt), LastUsedAt: (*exchange.Time)(t.LastUsedAt), RevokedAt: (*exchange.Time)(t.RevokedAt),
	}
}

// CreateToken creates an access token. No other response shows it.
func (h *Endpoints) CreateToken(x *exchange.Exchange) error {
	user := x.Path.Value("id")
	f := x.Form()
	f.Require("organization_id")
	organization, name, expires := h.lookup.Organization(x.Request.Context(), f, "organization_id"), f.Label("name"), f.Expiry("expires_at")
	if err := f.Err(); err != nil {
		return err
	}
	credential := access.Mint(access.TokenPrefix)
	token, err := h.Store.CreateToken(x.Request.Context(), x.Actor(), user, *organization, credential, form.Or(name, ""), expires)
	if err != nil {
		return err
	}
	x.NoStore()
	return x.Created("/api/v1/users/"+token.UserID+"/access-tokens/"+token.ID+"/", createdTokenBody{newTokenBody(token), credential.Reveal()})
}

// ListTokens lists the access tokens of a user, newest first.
func (h *Endpoints) ListTokens(x *exchange.Exchange) error {
	return listOf(x, h.Store.Tokens, newTokenBody, func(t access.AccessToken) int64 { return t.RowID })
}

// FindToken returns the access token in the path.
func (h *Endpoints) FindToken(x *exchange.Exchange) (tokenBody, error) {
	found, err := h.Store.Token(x.Request.Context(), x.Path.Value("id"), x.Path.Value("token_id"))
	return newTokenBody(found), err
}

// RevokeToken revokes the access token in the path.
func (h *Endpoints) RevokeToken(x *exchange.Exchange) error {
	return x.Done(h.Store.RevokeToken(x.Request.Context(), x.Actor(), x.Path.Value("id"), x.Path.Value("token_id")))
}
