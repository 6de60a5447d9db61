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
	f, err := x.OptionalForm()
	if err != nil {
		return err
	}
	role, life, back := h.lookup.Role(x.Request.Context(), f, "role"), f.Integer("expires_in", minPortalLife, maxPortalLife), f.WebURL("return_url")
	if err := f.Err(); err != nil {
		return err
	}
	wanted := access.NewPortalLink{
		Credential: access.Mint(access.LinkPrefix), Role: form.Or(role, access.RoleOwner), ReturnURL: back,
		Life: time.Duration(form.Or(life, defaultPortalLife)) * time.Second,
	}
	link, err := h.store.CreatePortalLink(x.Request.Context(), x.Actor(), x.Path.Value("id"), wanted)
	if err != nil {
		return err
	}
	x.NoStore()
	return x.Respond(http.StatusCreated, portalLinkBody{console.SignInURL(h.url, wanted.Credential.Reveal()), exchange.Time(link.ExpiresAt)})
}
