package server

import (
	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/server/platform"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// sessionBody says who is signed in, how, and until when. It contains neither a token nor the value of the cookie.
type sessionBody struct {
	whoamiBody
	ExpiresAt exchange.Time `json:"expires_at"`
	Kind      string        `json:"kind"`
	Portal    *portalBody   `json:"portal"` // null unless a portal link started the session
	// Organizations are those between which the session may switch.
	Organizations []platform.OrganizationName `json:"organizations"`
}

type portalBody struct {
	Role      string  `json:"role"`
	ReturnURL *string `json:"return_url"`
}

// createSession exchanges an access token or a sign-in link for a cookie, which no script of the browser can read. It refuses requests
// from other sites: they could sign in a visitor as another user.
func (h *handlers) createSession(c *call) error {
	c.NoStore()
	if err := h.cookies.CheckOrigin(c.Request); err != nil {
		return err
	}
	isDry, replaces, err := h.presentSession(c)
	if err != nil {
		return err
	}
	if err := h.admit(c); err != nil {
		return err
	}
	if isDry {
		return show(h.callerBody)(&c.Exchange)
	}
	other, err := h.otherSession(c, replaces)
	if err != nil {
		return err
	}
	minted := access.MintSession()
	session, err := h.startSession(c, minted)
	if err == nil && other.Session != nil {
		err = h.options.Store.EndSession(c.Request.Context(), other, other.Actor(c.ClientIP(), c.ID))
	}
	if err != nil {
		return err
	}
	c.Principal.Session = &session
	body, err := h.describeSession(&c.Exchange)
	if err != nil {
		return err
	}
	h.cookies.Set(c, c.Request, minted, session)
	return c.Created("/api/v1/session/", body)
}

// otherSession returns the principal whose session a link replaces, if that is somebody else. Otherwise the principal has no session. A link
// that may not replace it is refused: anybody can send a link of their own, and what is done after it belongs to the sender. A customer
// with a new link is not somebody else.
func (h *handlers) otherSession(c *call, replaces bool) (other access.Principal, err error) {
	present := check.Run{Presented: h.reader.Read(c.Request, false), Last: access.CheckLookUp}
	if c.run.Kind != credential.Link || present.Kind != credential.Session {
		return other, nil
	}
	present.Organizations = nil // the session itself counts, wherever the page acts
	switch err = h.checker.Check(c.Request.Context(), &present); {
	case fault.KindOf(err) == fault.Unavailable:
		return other, err
	case err != nil, present.Principal.User.ID == c.Principal.User.ID && present.Principal.Home.ID == c.Principal.Home.ID:
		return other, nil // the session has ended, or it is of the same one
	case !replaces:
		return other, fault.New(fault.Conflict, "signed_in_as_other",
			"This browser is signed in as somebody else. Ask the person, and send replace: true to end that session; dry_run: true says who the link signs in.")
	}
	return present.Principal, nil
}

// presentSession reads the credential in the body: a token or a link. A dry run only says who would be signed in. replaces lets a link end
// the session of somebody else.
func (h *handlers) presentSession(c *call) (isDry, replaces bool, err error) {
	f := c.Form()
	isDry, replaces = form.Or(f.Bool("dry_run"), false), form.Or(f.Bool("replace"), false)
	token, link := f.Text("token", maxShownKey), f.Text("link", maxShownKey)
	if f.Has("token") == f.Has("link") {
		f.Refuse("token", "one_of", "Send token, which is an access token, or link, which is the secret of a sign-in link, but not both.")
	}
	if err := f.Err(); err != nil {
		return false, false, err
	}
	c.run.Last = access.CheckRateLimit
	if link != nil {
		c.run.Presented = credential.ParseLink(*link)
		return isDry, replaces, nil
	}
	c.run.Presented = h.reader.ReadToken(*token)
	if c.run.Unreadable != nil {
		c.run.Unreadable = credential.ErrToken // the body has no scheme that could be wrong
	}
	return isDry, replaces, nil
}

func (h *handlers) startSession(c *call, cookie access.Credential) (access.Session, error) {
	if c.run.Kind != credential.Link {
		return h.options.Store.CreateSession(c.Request.Context(), *c.Principal, c.Actor(), cookie)
	}
	session, err := h.options.Store.UseLink(c.Request.Context(), *c.Principal, c.Actor(), c.run.Credential, cookie)
	if fault.KindOf(err) == fault.Unauthenticated {
		err = credential.ErrLink
	}
	return session, err
}

func (h *handlers) endSession(x *exchange.Exchange) error {
	if x.Principal.Session == nil {
		return errNoSession
	}
	err := h.options.Store.EndSession(x.Request.Context(), *x.Principal, x.Actor())
	if err == nil {
		h.cookies.Clear(x, x.Request)
	}
	return x.Done(err)
}

func (h *handlers) describeSession(x *exchange.Exchange) (sessionBody, error) {
	if x.Principal.Session == nil {
		return sessionBody{}, errNoSession
	}
	who, err := h.callerBody(x)
	if err != nil {
		return sessionBody{}, err
	}
	s := x.Principal.Session
	body := sessionBody{whoamiBody: who, ExpiresAt: exchange.Time(s.ExpiresAt), Kind: string(s.Kind), Organizations: []platform.OrganizationName{}}
	if s.IsPortal() {
		body.Portal = &portalBody{s.Role, s.ReturnURL}
	}
	found, err := h.options.Store.SessionOrganizations(x.Request.Context(), *x.Principal)
	for _, o := range found {
		body.Organizations = append(body.Organizations, platform.OrganizationName{ID: o.ID, Name: o.Name, ExternalID: o.ExternalID})
	}
	return body, err
}

var errNoSession = fault.Missing("session")

type whoamiBody struct {
	User                   whoamiUser                `json:"user"`
	Organization           platform.OrganizationName `json:"organization"`
	OrganizationExternalID *string                   `json:"organization_external_id"`
	Plan                   platform.PlanBody         `json:"plan"` // of that organization; a credential has the limits of its own organization
	Permissions            []string                  `json:"permissions"`
	Key                    *whoamiKey                `json:"key"`
}

type whoamiUser struct {
	ID    string  `json:"id"`
	Email *string `json:"email"`
	Name  string  `json:"name"`
	Kind  string  `json:"kind"`
}

type whoamiKey struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	Scope      string  `json:"scope"`
	ExternalID *string `json:"external_id"`
}

func (h *handlers) callerBody(x *exchange.Exchange) (whoamiBody, error) {
	p := x.Principal
	plan := p.Plan // of its own organization
	if p.Organization.ID != p.Home.ID {
		var err error
		if plan, err = h.options.Store.Plan(x.Request.Context(), p.Organization.Plan); err != nil {
			return whoamiBody{}, err
		}
	}
	body := whoamiBody{
		User:                   whoamiUser{p.User.ID, access.NullIfEmpty(p.User.Email), p.User.Name, platform.UserKind(p.User.IsService())},
		Organization:           platform.OrganizationName{ID: p.Organization.ID, Name: p.Organization.Name, ExternalID: p.Organization.ExternalID},
		OrganizationExternalID: p.Organization.ExternalID,
		Plan:                   platform.NewPlanBody(plan),
		Permissions:            p.Permissions.Keys(),
	}
	if p.Key != nil {
		body.Key = &whoamiKey{p.Key.ID, p.Key.Name, p.Key.Scope.String(), p.Key.ExternalID}
	}
	return body, nil
}
