package platform

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

// tokenStore is the part of the store that the access token endpoints use.
type tokenStore interface {
	CreateToken(ctx context.Context, actor access.Actor, user, organization string, c access.Credential, name string, expiresAt *int64) (access.AccessToken, error)
	// Tokens lists them newest first, with row ids below before; 0 starts at the newest.
	Tokens(ctx context.Context, user string, before int64, limit int) ([]access.AccessToken, error)
	Token(ctx context.Context, user, id string) (access.AccessToken, error)
	RevokeToken(ctx context.Context, actor access.Actor, user, id string) error
}

// Tokens are the access token endpoints.
type Tokens struct {
	store  tokenStore
	lookup form.Lookup
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

// createdTokenBody is the only response that shows a token.
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

// Create creates an access token. No other response shows it.
func (h Tokens) Create(x *exchange.Exchange) error {
	user := x.Path.Value("id")
	f := x.Form()
	f.Require("organization_id")
	organization, name, expires := h.lookup.Organization(x.Request.Context(), f, "organization_id"), f.Label("name"), f.Expiry("expires_at")
	if err := f.Err(); err != nil {
		return err
	}
	credential := access.Mint(access.TokenPrefix)
	token, err := h.store.CreateToken(x.Request.Context(), x.Actor(), user, *organization, credential, form.Or(name, ""), expires)
	if err != nil {
		return err
	}
	x.NoStore()
	return x.Created("/api/v1/users/"+token.UserID+"/access-tokens/"+token.ID+"/", createdTokenBody{newTokenBody(token), credential.Reveal()})
}

// List lists the access tokens of a user, newest first.
func (h Tokens) List(x *exchange.Exchange) error {
	user := x.Path.Value("id")
	list := func(ctx context.Context, before int64, limit int) ([]access.AccessToken, error) {
		return h.store.Tokens(ctx, user, before, limit)
	}
	return exchange.ListRows(x, list, newTokenBody, func(t access.AccessToken) int64 { return t.RowID })
}

// Find returns the access token in the path.
func (h Tokens) Find(x *exchange.Exchange) (found access.AccessToken, err error) {
	user, id, err := tokenIDs(x)
	if err != nil {
		return found, err
	}
	return h.store.Token(x.Request.Context(), user, id)
}

// Read responds with the access token in the path.
func (h Tokens) Read(x *exchange.Exchange) error {
	return exchange.Reply(x, newTokenBody)(h.Find(x))
}

// Revoke revokes the access token in the path.
func (h Tokens) Revoke(x *exchange.Exchange) error {
	user, id, err := tokenIDs(x)
	if err != nil {
		return err
	}
	return x.Done(h.store.RevokeToken(x.Request.Context(), x.Actor(), user, id))
}

// tokenIDs reads the user and the id of a token from the path.
func tokenIDs(x *exchange.Exchange) (user, token string, err error) {
	token, err = x.Path.ID("token_id", access.TokenID, aToken)
	return x.Path.Value("id"), token, err
}
