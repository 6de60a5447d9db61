package server

import (
	"context"
	"net/http"
	"time"

	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

// portalStore is the part of the store that the portal link endpoint uses.
type portalStore interface {
	CreatePortalLink(ctx context.Context, actor access.Actor, organization string, l access.NewPortalLink) (access.SignInLink, error)
}

// portals are the endpoint for links to the customer portal: the console of one organization.
type portals struct {
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
	URL       string    `json:"url"`
	ExpiresAt timestamp `json:"expires_at"`
}

func (h portals) create(x *exchange) error {
	f, err := x.optionalForm()
	if err != nil {
		return err
	}
	role, life, back := h.lookup.Role(x.request.Context(), f, "role"), f.Integer("expires_in", minPortalLife, maxPortalLife), f.WebURL("return_url")
	if err := f.Err(); err != nil {
		return err
	}
	wanted := access.NewPortalLink{
		Credential: access.Mint(access.LinkPrefix), Role: access.RoleOwner, Life: defaultPortalLife * time.Second, ReturnURL: back,
	}
	if role != nil {
		wanted.Role = *role
	}
	if life != nil {
		wanted.Life = time.Duration(*life) * time.Second
	}
	link, err := h.store.CreatePortalLink(x.request.Context(), x.actor(), x.pathReference("id"), wanted)
	if err != nil {
		return err
	}
	x.noStore()
	return x.write(http.StatusCreated, "application/json", portalLinkBody{console.SignInURL(h.url, wanted.Credential.Reveal()), timestamp(link.ExpiresAt)})
}
