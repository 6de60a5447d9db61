package server

import (
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// sessionStore is what the endpoints of the session ask of the store.
type sessionStore interface {
	// CreateSession begins a session that acts as the access token of p does.
	CreateSession(ctx context.Context, p access.Principal, actor access.Actor, c access.Credential) (access.Session, error)
	// EndSession ends the session of p.
	EndSession(ctx context.Context, p access.Principal, actor access.Actor) error
}

// sessions are the endpoints by which the console signs in and out. A browser then has a cookie that no script can read,
// and not the access token.
type sessions struct {
	store  sessionStore
	auth   *authenticator
	whoami whoami
}

// sessionBody says who is signed in, and until when. Neither the token nor what the cookie holds is in it.
type sessionBody struct {
	whoamiBody
	ExpiresAt timestamp `json:"expires_at"`
}

// create takes an access token and gives a cookie. Another site could sign its visitors in as somebody else here, so it
// may not call this.
func (h sessions) create(c *call) error {
	c.noStore()
	if err := h.auth.cookies.sameOrigin(c.request); err != nil {
		return err
	}
	f, err := c.form()
	if err != nil {
		return err
	}
	f.Require("token")
	raw := f.Text("token", maxShownKey)
	if err := f.Err(); err != nil {
		return err
	}
	c.kind, c.address, c.throttled, c.last = tokenCredential, c.client, true, access.CheckRateLimit
	c.credential, err = h.auth.readToken(*raw)
	if err != nil {
		c.unreadable = errToken // the body has no scheme that could be wrong
	}
	if err := h.auth.admit(c); err != nil {
		return err
	}
	credential := access.MintSession()
	session, err := h.store.CreateSession(c.request.Context(), c.principal, c.actor(), credential)
	if err != nil {
		return err
	}
	c.principal.Session = &session
	body, err := h.body(c)
	if err != nil {
		return err
	}
	h.auth.cookies.set(c, credential, session)
	return c.created("/api/v1/session/", body)
}

func (h sessions) read(c *call) error {
	if c.principal.Session == nil {
		return errNoSession
	}
	body, err := h.body(c)
	if err != nil {
		return err
	}
	return c.ok(body)
}

func (h sessions) end(c *call) error {
	if c.principal.Session == nil {
		return errNoSession
	}
	if err := h.store.EndSession(c.request.Context(), c.principal, c.actor()); err != nil {
		return err
	}
	h.auth.cookies.clear(c)
	return c.noContent()
}

func (h sessions) body(c *call) (sessionBody, error) {
	body, err := h.whoami.body(c)
	return sessionBody{body, timestamp(c.principal.Session.ExpiresAt)}, err
}

// errNoSession answers those who come with another credential.
var errNoSession = fault.Missing("session")
