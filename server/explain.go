package server

import (
	"context"
	"net/url"
	"strings"

	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// explainStore is the part of the store that explanations use.
type explainStore interface {
	// KeyState returns a key in any state, or NotFound.
	KeyState(ctx context.Context, digest access.Digest) (access.CredentialState, error)
	knownPermissions
	KeyStateByID(ctx context.Context, id string) (access.CredentialState, error)
}

// explanation is the endpoint that explains, check by check, what would happen to a request with a key. It changes nothing: it
// counts no request of the rate limit, records no use, and throttles no address.
type explanation struct {
	checker *check.Checker
	router  *router
	store   explainStore
	lookup  form.Lookup
}

type explainBody struct {
	Allowed    bool        `json:"allowed"`
	Code       string      `json:"code"`   // of the first check that fails, as in the response to the request; "valid" if none fails
	KeyID      *string     `json:"key_id"` // null if there is no such key
	Method     string      `json:"method"`
	Path       string      `json:"path"`
	Route      *string     `json:"route"`      // Keyhook's own route for the path; null if there is none
	Permission string      `json:"permission"` // needed permissions, separated by spaces
	Checks     []checkBody `json:"checks"`     // in order
}

// checkBody is one check. Value is what it looked at; empty if there was nothing.
type checkBody struct {
	Check   string `json:"check"`
	Value   string `json:"value"`
	Verdict string `json:"verdict"`
	Detail  string `json:"detail"`
}

// Verdicts.
const (
	verdictPassed        = "passed"
	verdictFailed        = "failed"
	verdictNotReached    = "not_reached"    // an earlier check failed, so this one was not made
	verdictNotApplicable = "not_applicable" // nothing is needed that could fail
)

const maxPathLength = 2048

// explained is the request to explain, and what is known about it.
type explained struct {
	check.Run
	state   access.CredentialState // of the key, if it was found
	byID    bool
	length  int // of the key that was sent
	code    string
	unknown access.Scope // needed permissions that do not exist; set if the permission check fails

	method, path string
	request      exchange // its route, if one matches
	allowed      []string // methods of the path, if the route has another method
}

func (h explanation) explain(x *exchange) error {
	f, err := x.form()
	if err != nil {
		return err
	}
	f.Require("key", "method", "path")
	m := &explained{}
	key, asked := f.Text("key", maxShownKey), h.lookup.Scope(x.request.Context(), f, "permission")
	m.method = readMethod(f, "method")
	requested := readPath(f, "path")
	if err := f.Err(); err != nil {
		return err
	}
	m.path = requested.EscapedPath()
	h.readNeeds(m, requested.Path, asked)
	if err := h.checkKey(x, m, *key); err != nil {
		return err
	}
	x.noStore() // the response is about a credential
	return x.ok(m.body())
}

// readMethod reads an HTTP method, in upper or lower case.
func readMethod(f *form.Form, name string) string {
	text := f.Text(name, 32)
	if text == nil {
		return ""
	}
	if *text == "" || strings.ContainsFunc(*text, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-' }) {
		f.Refuse(name, "invalid", "This must be an HTTP method such as GET.")
	}
	return strings.ToUpper(*text)
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

// readNeeds finds the permissions that a request needs: those of a route of ours, those in a path of forward authentication,
// and those that the caller names.
func (h explanation) readNeeds(m *explained, path string, asked access.Scope) {
	var needed access.Scope
	if allowed, found := h.router.find(&m.request, m.method, path); !found {
		m.allowed = allowed
	} else if needed = m.request.route.needs; m.isForwardAuth() {
		_, words, _ := parseForwardAuth(path)
		needed = neededPermissions(words)
	}
	m.Needed = access.NewScope(append(needed.Keys(), asked.Keys()...)...)
}

// checkKey makes the checks until one fails. An error means that a check could not be made, or that the caller may not know the
// key.
func (h explanation) checkKey(x *exchange, m *explained, key string) error {
	ctx := x.request.Context()
	m.Kind, m.Last = credential.Key, access.CheckPermission
	if m.byID = keyID.Valid(key); !m.byID {
		m.length = len(key)
		m.Presented = credential.ParseKey(key)
	}
	m.Find = func(ctx context.Context) (access.CredentialState, error) {
		var err error
		m.state, err = h.find(ctx, x, m, key)
		return m.state, err
	}
	err := h.checker.Check(ctx, &m.Run)
	if err == nil {
		m.code = codeValid
		return nil
	}
	refused, ok := fault.As(err)
	if !ok || !check.IsRefusal(err) {
		return err
	}
	m.code = refused.Code
	if m.At == access.CheckPermission {
		m.unknown, err = h.store.UnknownPermissions(ctx, m.Needed)
		return err
	}
	return nil
}

// find looks up the key in any state. A caller may know the keys of its own organization; a caller that may act in every
// organization may know all keys.
func (h explanation) find(ctx context.Context, x *exchange, m *explained, key string) (state access.CredentialState, err error) {
	if m.byID {
		state, err = h.store.KeyStateByID(ctx, key)
	} else {
		state, err = h.store.KeyState(ctx, m.Credential.Digest())
	}
	if err == nil && state.Home.ID != x.Principal.Organization.ID && !x.Principal.Can(access.PlatformActAs) {
		err = fault.Missing(aKey)
	}
	switch {
	case fault.KindOf(err) == fault.NotFound && !m.byID:
		return access.CredentialState{}, credential.ErrKey // the response does not tell whether another organization has the key
	case err != nil:
		return access.CredentialState{}, err
	}
	return state, nil
}

// isForwardAuth reports whether the path is one of forward authentication.
func (m *explained) isForwardAuth() bool {
	return m.request.route != nil && m.request.route.match != nil
}

// isOpen reports whether the route reads no credential.
func (m *explained) isOpen() bool {
	return m.request.route != nil && m.request.route.access == open
}

func (m *explained) body() explainBody {
	body := explainBody{
		Allowed: m.At == access.CheckPassed, Code: m.code, Method: m.method, Path: m.path, Permission: m.Needed.String(),
	}
	if m.isOpen() {
		body.Allowed, body.Code = true, codeValid
	}
	if m.state.Key != nil {
		body.KeyID = &m.state.Key.ID
	}
	if m.request.route != nil {
		body.Route = &m.request.route.pattern
	}
	for c := range access.CheckPassed { // from CheckParse on
		body.Checks = append(body.Checks, m.describe(c))
	}
	return body
}

// describe describes one check. The text of a failure ends with what to do.
func (m *explained) describe(c access.Check) checkBody {
	value, passed, failed := m.factsOf(c)
	b := checkBody{Check: c.String(), Value: value}
	switch {
	case m.isOpen():
		b.Verdict, b.Detail = verdictNotApplicable, "This route reads no credential."
	case c > m.At:
		b.Verdict, b.Detail = verdictNotReached, "An earlier check failed, so this check was not made."
	case c == m.At:
		b.Verdict, b.Detail = verdictFailed, failed
	case c == access.CheckParse && m.byID, c == access.CheckOrganization, c == access.CheckPermission && m.Needed.Empty():
		b.Verdict, b.Detail = verdictNotApplicable, passed
	default:
		b.Verdict, b.Detail = verdictPassed, passed
	}
	return b
}
