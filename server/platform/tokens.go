package platform

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

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
	user := x.Path.Value("id")
	list := func(ctx context.Context, before int64, limit int) ([]access.AccessToken, error) {
		return h.Store.Tokens(ctx, user, before, limit)
	}
	return exchange.ListRows(x, list, newTokenBody, func(t access.AccessToken) int64 { return t.RowID })
}

// FindToken returns the access token in the path.
func (h *Endpoints) FindToken(x *exchange.Exchange) (found access.AccessToken, err error) {
	user, id, err := tokenIDs(x)
	if err != nil {
		return found, err
	}
	return h.Store.Token(x.Request.Context(), user, id)
}

// ReadToken responds with the access token in the path.
func (h *Endpoints) ReadToken(x *exchange.Exchange) error {
	return exchange.Reply(x, newTokenBody)(h.FindToken(x))
}

// RevokeToken revokes the access token in the path.
func (h *Endpoints) RevokeToken(x *exchange.Exchange) error {
	user, id, err := tokenIDs(x)
	if err != nil {
		return err
	}
	return x.Done(h.Store.RevokeToken(x.Request.Context(), x.Actor(), user, id))
}

// tokenIDs reads the user and the id of a token from the path.
func tokenIDs(x *exchange.Exchange) (user, token string, err error) {
	token, err = x.Path.ID("token_id", access.TokenID, "access token")
	return x.Path.Value("id"), token, err
}
