package server

import (
	"context"
	"net/url"
	"strings"

	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/explain"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

type explainBody struct {
	Allowed    bool            `json:"allowed"`
	Code       string          `json:"code"`   // of the first check that fails, as in the response to the request; "valid" if none fails
	KeyID      *string         `json:"key_id"` // null if there is no such key
	Method     string          `json:"method"`
	Path       string          `json:"path"`
	Route      *string         `json:"route"`      // Keyhook's own route for the path; null if there is none
	Permission string          `json:"permission"` // needed permissions, separated by spaces
	Checks     []explain.Check `json:"checks"`     // in order
}

const maxPathLength = 2048

// explainKey explains, check by check, what would happen to a request with a key. It changes nothing: it counts no request of the rate
// limit, records no use, and throttles no address.
func (h *handlers) explainKey(x *exchange.Exchange) error {
	f := x.Form()
	f.Require("key", "method", "path")
	m := &explain.Request{}
	key, asked := f.Text("key", maxShownKey), h.lookup.Scope(x.Request.Context(), f, "permission")
	method := f.Matching("method", f.Text("method", 32), "be an HTTP method such as GET", isMethod)
	m.Client = f.Address("client_ip")
	requested := readPath(f, "path")
	if err := f.Err(); err != nil {
		return err
	}
	body := explainBody{Method: strings.ToUpper(*method), Path: requested.EscapedPath()}
	if route := h.readNeeds(m, body.Method, requested, asked); route != nil {
		body.Route = &route.pattern
	}
	raw, err := h.resolveKey(x, *key)
	if err != nil {
		return err
	}
	if body.Code, err = h.checkExplained(x, m, raw); err != nil {
		return err
	}
	if m.Open {
		body.Code = codeValid
	}
	if m.State.Key != nil {
		body.KeyID = &m.State.Key.ID
	}
	body.Allowed, body.Permission, body.Checks = body.Code == codeValid, m.Permissions().String(), m.Checks()
	x.NoStore() // the response is about a credential
	return x.OK(body)
}

// isMethod reports whether a text may be an HTTP method, in upper or lower case.
func isMethod(text string) bool {
	isOther := func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-' }
	return text != "" && !strings.ContainsFunc(text, isOther)
}

// readPath reads the path of a request. A query is allowed and ignored.
func readPath(f *form.Form, name string) *url.URL {
	text := f.Text(name, maxPathLength)
	if text == nil {
		return nil
	}
	u, err := url.ParseRequestURI(*text)
	if err != nil || !strings.HasPrefix(*text, "/") {
		f.Refuse(name, "invalid", "This must be the path of a request: it starts with a slash and is percent-encoded.")
		return nil
	}
	return u
}

// readNeeds finds the permissions that a request needs. They come from Keyhook's own route, from a path of forward authentication,
// or from the caller. It returns the route; nil if none matches.
func (h *handlers) readNeeds(m *explain.Request, method string, requested *url.URL, asked access.Scope) *route {
	var found call
	if !isRoot(requested.Path) { // it is a path of the customer's API: on its own root, Keyhook only redirects
		_, _ = h.router.find(&found, method, requested) // sets the route
	}
	r := found.route
	if m.Foreign = r == nil; r != nil {
		m.Needed, m.AnyOf, m.Open = r.needs, r.anyOf, r.access == open
	}
	if _, words, ok := parseForwardAuth(requested.Path); ok {
		m.Needed = neededPermissions(words)
	}
	m.Needed = m.Needed.Union(asked)
	return r
}

// resolveKey returns the id of the key that a text names by its external id, or of the only key with a prefix that lists show. Any other
// text stays as it is. Faults: NotFound; Invalid if several keys have the prefix.
func (h *handlers) resolveKey(x *exchange.Exchange, text string) (string, error) {
	if _, isMinted := access.LooksMinted(text); !isMinted && !access.LooksLikeID(text) {
		id, err := h.options.Store.KeyID(x.Request.Context(), x.Organization(), text)
		if fault.KindOf(err) != fault.NotFound {
			return id, err
		}
	}
	prefix, ok := access.ParseDisplay(text)
	if !ok {
		return text, nil
	}
	organization := x.Organization()
	if x.Principal.Can(access.PlatformActAs) {
		organization = access.AllOrganizations
	}
	page, err := h.options.Store.KeyPage(x.Request.Context(), organization, access.KeyFilter{Prefix: prefix, Limit: 2})
	if err != nil {
		return "", err
	}
	switch len(page.Rows) {
	case 0:
		return "", fault.New(fault.NotFound, "not_found", "There is no API key with this prefix in an organization that you may read.")
	case 1:
		return page.Rows[0].ID, nil
	}
	return "", fault.InField("key", "ambiguous", "Several API keys have this prefix, such as %s; send the id of one.", page.Rows[0].ID)
}

// checkExplained makes the checks until one fails, and returns its code. An error means that a check could not be made, or that the caller
// may not know the key.
func (h *handlers) checkExplained(x *exchange.Exchange, m *explain.Request, key string) (code string, err error) {
	ctx := x.Request.Context()
	m.Kind, m.Last = credential.Key, access.CheckPermission
	if m.ByID = access.KeyID.Valid(key); !m.ByID {
		m.Length = len(key)
		m.Presented = credential.ParseKey(key)
	}
	m.Find = func(ctx context.Context) (_ *access.CredentialState, err error) {
		m.State, err = h.findExplained(ctx, x, m, key)
		return &m.State, err
	}
	code, err = outcome(h.checker.Check(ctx, &m.Run))
	if err == nil && m.At == access.CheckPermission {
		m.Unknown, err = h.options.Store.UnknownPermissions(ctx, m.Needed)
	}
	return code, err
}

// findExplained looks up the key in any state. A caller may know the keys of its own organization. A caller
// with platform:act_as may know all keys.
func (h *handlers) findExplained(ctx context.Context, x *exchange.Exchange, m *explain.Request, key string) (state access.CredentialState, err error) {
	if m.ByID {
		state, err = h.options.Store.KeyStateByID(ctx, key)
	} else {
		state, err = h.options.Store.KeyState(ctx, m.Credential.Digest())
	}
	if err == nil && state.Home.ID != x.Principal.Organization.ID && !x.Principal.Can(access.PlatformActAs) {
		err = fault.Missing(access.KeyID.Noun())
	}
	switch {
	case fault.KindOf(err) == fault.NotFound && !m.ByID:
		return access.CredentialState{}, credential.ErrKey // the response does not tell whether another organization has the key
	case err != nil:
		return access.CredentialState{}, err
	}
	return state, nil
}
