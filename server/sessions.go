package server

import (
	"context"

	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// sessionStore is the part of the store that the session endpoints use.
type sessionStore interface {
	// CreateSession starts a session with the rights of the access token of p.
	CreateSession(ctx context.Context, p access.Principal, actor access.Actor, c access.Credential) (access.Session, error)
	// EndSession ends the session of p.
	EndSession(ctx context.Context, p access.Principal, actor access.Actor) error
}

// sessions are the endpoints for signing in to the console and out again. The browser keeps a cookie that no script can read,
// instead of the access token.
type sessions struct {
	store  sessionStore
	auth   *authenticator
	whoami whoami
}

// sessionBody says who is signed in, and until when. It contains neither the token nor the value of the cookie.
type sessionBody struct {
	whoamiBody
	ExpiresAt timestamp `json:"expires_at"`
}

// create exchanges an access token for a cookie. It refuses requests from other sites: they could sign in a visitor as another
// user.
func (h sessions) create(x *exchange) error {
	x.noStore()
	if err := h.auth.cookies.CheckOrigin(x.request); err != nil {
		return err
	}
	f, err := x.form()
	if err != nil {
		return err
	}
	f.Require("token")
	raw := f.Text("token", maxShownKey)
	if err := f.Err(); err != nil {
		return err
	}
	x.Presented, x.Address, x.Last = h.auth.reader.ReadToken(*raw), x.client, access.CheckRateLimit
	if x.Unreadable != nil {
		x.Unreadable = credential.ErrToken // the body has no scheme that could be wrong
	}
	if err := h.auth.admit(x); err != nil {
		return err
	}
	minted := access.MintSession()
	session, err := h.store.CreateSession(x.request.Context(), x.Principal, x.actor(), minted)
	if err != nil {
		return err
	}
	x.Principal.Session = &session
	body, err := h.body(x)
	if err != nil {
		return err
	}
	h.auth.cookies.Set(x, x.request, minted, session)
	return x.created("/api/v1/session/", body)
}

func (h sessions) read(x *exchange) error {
	if x.Principal.Session == nil {
		return errNoSession
	}
	body, err := h.body(x)
	if err != nil {
		return err
	}
	return x.ok(body)
}

func (h sessions) end(x *exchange) error {
	if x.Principal.Session == nil {
		return errNoSession
	}
	if err := h.store.EndSession(x.request.Context(), x.Principal, x.actor()); err != nil {
		return err
	}
	h.auth.cookies.Clear(x, x.request)
	return x.noContent()
}

func (h sessions) body(x *exchange) (sessionBody, error) {
	body, err := h.whoami.body(x)
	return sessionBody{body, timestamp(x.Principal.Session.ExpiresAt)}, err
}

// errNoSession refuses other credentials than a session.
var errNoSession = fault.Missing("session")

// whoamiStore is the part of the store that whoami uses.
type whoamiStore interface {
	Plan(ctx context.Context, name string) (access.Plan, error)
}

// whoami is the endpoint that tells callers who they are.
type whoami struct {
	store whoamiStore
}

// whoamiBody describes the principal behind a credential.
type whoamiBody struct {
	User         whoamiUser         `json:"user"`
	Organization whoamiOrganization `json:"organization"`
	Plan         planBody           `json:"plan"` // of that organization; a credential has the limits of its own organization
	Permissions  []string           `json:"permissions"`
	Key          *whoamiKey         `json:"key"`
}

type whoamiUser struct {
	ID    string  `json:"id"`
	Email *string `json:"email"`
	Name  string  `json:"name"`
	Kind  string  `json:"kind"`
}

type whoamiOrganization struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type whoamiKey struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Scope string `json:"scope"`
}

func (h whoami) read(x *exchange) error {
	body, err := h.body(x)
	if err != nil {
		return err
	}
	return x.ok(body)
}

func (h whoami) body(x *exchange) (whoamiBody, error) {
	p := x.Principal
	plan, err := h.plan(x)
	if err != nil {
		return whoamiBody{}, err
	}
	body := whoamiBody{
		User:         whoamiUser{p.User.ID, nullIfEmpty(p.User.Email), p.User.Name, kindOf(p.User.IsService())},
		Organization: whoamiOrganization{p.Organization.ID, p.Organization.Name},
		Plan:         newPlanBody(plan),
		Permissions:  p.Permissions.Keys(),
	}
	if p.Key != nil {
		body.Key = &whoamiKey{p.Key.ID, p.Key.Name, p.Key.Scope.String()}
	}
	return body, nil
}

// plan returns the plan of the organization in which the caller acts. The
// principal already has the plan of its own organization.
func (h whoami) plan(x *exchange) (access.Plan, error) {
	p := x.Principal
	if p.Organization.ID == p.Home.ID {
		return p.Plan, nil
	}
	return h.store.Plan(x.request.Context(), p.Organization.Plan)
}
