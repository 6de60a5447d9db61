package server

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// explainStore is what an explanation asks of the store.
type explainStore interface {
	// KeyState returns a key in whatever state it is, or NotFound.
	KeyState(ctx context.Context, digest access.Digest) (access.CredentialState, error)
	knownPermissions
	KeyStateByID(ctx context.Context, id string) (access.CredentialState, error)
}

// explanation is the endpoint that tells what would become of a request with a key, check by check. It consumes nothing:
// no request of the window is counted, no use noted, and no address held to account.
type explanation struct {
	*Server
	store explainStore
	named form.Lookup
}

type explainBody struct {
	Allowed    bool        `json:"allowed"`
	Code       string      `json:"code"`   // of the first check that fails, as the request would be told; "valid" where none does
	KeyID      *string     `json:"key_id"` // null where there is no such key
	Method     string      `json:"method"`
	Path       string      `json:"path"`
	Route      *string     `json:"route"`      // of Keyhook's own that the path leads to; null where it leads to none
	Permission string      `json:"permission"` // what is asked for, several with spaces between; empty where nothing is
	Checks     []checkBody `json:"checks"`     // in the order in which they are made
}

// checkBody is one check. Value is what was looked at; empty where there was nothing to look at.
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
	verdictNotReached    = "not_reached"    // an earlier check fails, so this one is not made
	verdictNotApplicable = "not_applicable" // nothing is asked that it could fail
)

const maxPathLength = 2048

// matter is what is to be explained, and what has been found out about it.
type matter struct {
	trial
	byID     bool
	shown    access.Credential      // where it is not by id, and could be read
	length   int                    // of what was shown
	unread   error                  // why what was shown could not be read
	standing access.CredentialState // from the look-up on
	code     string
	unknown  access.Scope // what is asked for and is not in the vocabulary, where that fails

	method, path string
	request      call     // the route that they lead to, if any
	isGate       bool     // or that of forward authentication, where a proxy asks
	allowed      []string // the methods that the path has instead
}

func (h explanation) explain(c *call) error {
	f, err := c.form()
	if err != nil {
		return err
	}
	f.Require("key", "method", "path")
	m := &matter{trial: trial{quiet: true}}
	key, asked := f.Text("key", maxShownKey), h.named.Scope(c.request.Context(), f, "permission")
	m.method = readMethod(f, "method")
	requested := readPath(f, "path")
	if err := f.Err(); err != nil {
		return err
	}
	m.path = requested.EscapedPath()
	h.lookAt(m, requested.Path, asked)
	if err := h.try(c, m, *key); err != nil {
		return err
	}
	c.secret() // the answer is about a credential
	return c.ok(m.body())
}

// readMethod reads the method of a request, in whatever letters.
func readMethod(f *form.Form, name string) string {
	text := f.Text(name, 32)
	if text == nil {
		return ""
	}
	if *text == "" || strings.ContainsFunc(*text, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-' }) {
		f.Refuse(name, "invalid", "This must be a method of HTTP, such as GET.")
	}
	return strings.ToUpper(*text)
}

// readPath reads the path of a request. A query may follow, and means nothing.
func readPath(f *form.Form, name string) *url.URL {
	text := f.Text(name, maxPathLength)
	if text == nil {
		return nil
	}
	u, err := url.ParseRequestURI(*text)
	if err != nil || !strings.HasPrefix(*text, "/") {
		f.Refuse(name, "invalid", "This must be the path of a request: it begins with a slash, and is percent-encoded.")
		return nil
	}
	return u
}

// lookAt finds out what a request asks for: what the table says of a route of our own, and what the proxy or the caller
// names for any other.
func (h explanation) lookAt(m *matter, path string, asked access.Scope) {
	_, wanted, isGate := gateAt(path)
	if m.isGate = isGate; isGate {
		m.request.route, m.wanted = &gateRoute, wanted
	} else if allowed, found := h.locate(&m.request, m.method, path); found {
		m.wanted = m.request.wanted
	} else {
		m.allowed = allowed
	}
	m.wanted = access.NewScope(append(m.wanted.Keys(), asked.Keys()...)...)
}

// try makes the checks until one fails. An error is a failure to make them, or a key that the caller may not know of.
func (h explanation) try(c *call, m *matter, key string) error {
	ctx := c.request.Context()
	var err error
	if m.byID = keyID.Valid(key); m.byID {
		m.standing, err = h.store.KeyStateByID(ctx, key)
	} else {
		m.length = len(key)
		if m.shown, m.unread = apiKey(key); m.unread != nil {
			e, _ := fault.As(m.unread)
			m.at, m.code = access.CheckParse, e.Code
			return nil
		}
		m.standing, err = h.store.KeyState(ctx, m.shown.Digest())
	}
	if err == nil && m.standing.Home.ID != c.principal.Organization.ID && !c.principal.Can(access.PlatformActAs) {
		m.standing, err = access.CredentialState{}, fault.Missing(aKey)
	}
	switch {
	case fault.KindOf(err) == fault.NotFound && !m.byID:
		// Nobody learns from the answer whether another organization has the key.
		m.at, m.code = access.CheckLookUp, codeUnknown
		return nil
	case err != nil:
		return unreadable(err)
	}
	m.principal = m.standing.Principal
	if m.at = m.standing.FailedCheck(time.Now().UnixMilli()); m.at != access.CheckPassed {
		m.code = map[access.Check]string{
			access.CheckRevoked: "key_revoked", access.CheckExpired: "key_expired", access.CheckCreator: "creator_inactive",
		}[m.at]
		h.peek(&m.trial)
		return nil
	}
	m.at, m.code = access.CheckPlan, codeValid
	if err := h.judge(ctx, &m.trial, access.CheckPermission); err != nil {
		e, ok := fault.As(err)
		if !ok {
			return err
		}
		m.code = e.Code
		if m.at == access.CheckPermission {
			m.unknown, err = h.store.UnknownPermissions(ctx, m.wanted)
			return err
		}
	}
	return nil
}

// looksAtNone reports whether the route asks for no credential at all.
func (m *matter) looksAtNone() bool { return m.request.route != nil && m.request.route.access == open }

func (m *matter) body() explainBody {
	body := explainBody{
		Allowed: m.at == access.CheckPassed, Code: m.code, Method: m.method, Path: m.path, Permission: m.wanted.String(),
	}
	if m.looksAtNone() {
		body.Allowed, body.Code = true, codeValid
	}
	if m.standing.Key != nil {
		body.KeyID = &m.standing.Key.ID
	}
	if m.request.route != nil {
		body.Route = &m.request.route.pattern
	}
	for check := range access.CheckPassed { // from CheckParse on
		body.Checks = append(body.Checks, m.describe(check))
	}
	return body
}

// describe tells of one check. What is wrong always ends with what to do.
func (m *matter) describe(check access.Check) checkBody {
	value, passed, failed := m.facts(check)
	b := checkBody{Check: check.String(), Value: value}
	switch {
	case m.looksAtNone():
		b.Verdict, b.Detail = verdictNotApplicable, "This route looks at no credential."
	case check > m.at:
		b.Verdict, b.Detail = verdictNotReached, "An earlier check fails, so this one is not made."
	case check == m.at:
		b.Verdict, b.Detail = verdictFailed, failed
	case check == access.CheckParse && m.byID, check == access.CheckOrganization, check == access.CheckPermission && m.wanted.Empty():
		b.Verdict, b.Detail = verdictNotApplicable, passed
	default:
		b.Verdict, b.Detail = verdictPassed, passed
	}
	return b
}

// explainPath is where the endpoint is.
const explainPath = "/api/v1/auth/explain/"
