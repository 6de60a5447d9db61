package server

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/keyhook/keyhook/limiter"
	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/share"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// router finds the route of a request. It uses only the trees of httprouter. It does not use the ServeHTTP of httprouter, for two
// reasons. ServeHTTP redirects a path without the last slash with a 301, which turns POST into GET. And it responds to
// OPTIONS without a credential.
type router struct {
	routes  []route
	matched []*route // the routes that match paths by themselves
	tree    *httprouter.Router
	fixed   map[string][]string // path without parameters → its methods
}

// The methods of routes, in the order of the header Allow.
var methods = []string{
	http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPatch, http.MethodPost, http.MethodPut,
}

// serve fills an empty router from the table, with and without the last slash of each path. A route without a handler is not
// served.
func (r *router) serve(table []route) {
	r.routes = slices.DeleteFunc(table, func(rt route) bool { return rt.handle == nil })
	r.tree, r.fixed = httprouter.New(), map[string][]string{}
	for i := range r.routes {
		rt := &r.routes[i]
		if rt.match != nil {
			r.matched = append(r.matched, rt)
			continue
		}
		at := []string{rt.method}
		if rt.method == http.MethodGet {
			at = append(at, http.MethodHead)
		}
		paths := []string{rt.pattern, strings.TrimSuffix(rt.pattern, "/")}
		for _, method := range at {
			handle := handleOf(rt)
			for _, path := range paths {
				r.tree.Handle(method, strings.NewReplacer("{", ":", "}", "").Replace(path), handle)
			}
		}
		for _, path := range paths {
			if !strings.Contains(path, "{") {
				r.fixed[path] = append(r.fixed[path], at...)
				slices.Sort(r.fixed[path])
			}
		}
	}
}

// handleOf returns the handle of a route in the tree. It only sets the route of a call, and the values in its path.
func handleOf(rt *route) httprouter.Handle {
	return func(w http.ResponseWriter, _ *http.Request, p httprouter.Params) {
		c := w.(*call)
		c.setRoute(rt)
		for _, value := range p {
			c.Path.Add(value.Key, value.Value)
		}
	}
}

// find sets the route of a method and a path in c. If there is none, it returns the methods that the path has.
//
// An external id may contain a slash, which the path has as %2F. Then the tree looks for the path as it is encoded, and find
// decodes the values.
func (r *router) find(c *call, method string, requested *url.URL) (allowed []string, found bool) {
	path := requested.Path
	for _, rt := range r.matched {
		if !rt.match(path) {
			continue
		}
		if rt.method == anyMethod || rt.method == method || rt.method == http.MethodGet && method == http.MethodHead {
			c.setRoute(rt)
			return nil, true
		}
		return []string{rt.method, http.MethodHead}, false
	}
	hasSlash := strings.Contains(strings.ToUpper(requested.RawPath), "%2F")
	if hasSlash {
		path = requested.RawPath
	}
	if !strings.HasPrefix(path, "/") {
		return nil, false
	}
	handle, params, _ := r.tree.Lookup(method, path)
	// A path without parameters comes first, for every method: "batch" in /events/batch/ is never an id.
	fixed, isFixed := r.fixed[path]
	switch {
	case isFixed && (handle == nil || len(params) > 0):
		return fixed, false
	case handle == nil:
		return r.allowed(path), false
	}
	if hasSlash {
		decodeValues(params)
	}
	handle(c, nil, params)
	return nil, true
}

func decodeValues(params httprouter.Params) {
	for i := range params {
		params[i].Value, _ = url.PathUnescape(params[i].Value) // net/url has parsed the path, so it can be decoded
	}
}

func (r *router) allowed(path string) []string {
	var allowed []string
	for _, method := range methods {
		if handle, _, _ := r.tree.Lookup(method, path); handle != nil {
			allowed = append(allowed, method)
		}
	}
	return allowed
}

// dispatch runs a request and writes the problem if it fails.
func (s *Server) dispatch(c *call) {
	if err := s.run(c); err != nil {
		s.fail(c, err)
	}
}

// run finds the route of a request. Then it makes the checks, reads the query, and calls the handler.
func (s *Server) run(c *call) error {
	if err := c.limitHeaderFields(); err != nil {
		return err
	}
	if allowed, found := s.router.find(c, c.Request.Method, c.Request.URL); !found {
		return s.refuseUnmatched(c, allowed)
	}
	switch {
	case c.route.access == open, c.route.access == proxied:
		return c.route.handle(c)
	case c.route.access == local && share.IsLocal(c.Request):
		return c.handle()
	}
	s.auth.read(c)
	c.run.Needed, c.run.Last = c.needed(), access.CheckPermission
	if err := s.auth.admit(c); err != nil {
		return err
	}
	if err := c.checkApplyHeader(); err != nil {
		return err
	}
	if c.Request.ProtoMajor > 1 { // one connection makes many requests at once, so the limit on connections does not bound them
		if err := c.Reserve(); err != nil {
			return err
		}
	}
	if err := c.handle(); err != nil {
		return c.missingInstead(err)
	}
	return nil
}

// refuseUnmatched refuses a request that no route matches. Every request of a key counts, so a credential is checked first,
// up to its rate limit.
func (s *Server) refuseUnmatched(c *call, allowed []string) error {
	if len(c.Request.Header["Authorization"]) > 0 {
		s.auth.read(c)
		c.run.Last = access.CheckRateLimit
		if err := s.auth.admit(c); err != nil {
			return err
		}
	}
	if len(allowed) == 0 {
		return exchange.Refuse(http.StatusNotFound, "not_found", nothingAt(c.Request.URL.Path))
	}
	list := strings.Join(allowed, ", ")
	c.SetHeader("Allow", list)
	return exchange.Refuse(http.StatusMethodNotAllowed, "method_not_allowed", "This path has only "+list+".")
}

// authenticator reads the credential of a request and has it checked.
type authenticator struct {
	checker *check.Checker
	reader  *credential.Reader
	cookies *credential.Cookies
}

// read reads the credential of a request and does not ask the store. A failure to read it is for the checks to report.
func (a *authenticator) read(c *call) {
	c.run.Presented, c.run.Address = a.reader.Read(c.Request, c.Local), c.Client
	if c.run.Kind != credential.Session {
		return
	}
	c.NoStore() // the response is for this browser only
	if errors.Is(c.run.Unreadable, credential.ErrSession) {
		a.cookies.Clear(c, c.Request)
	}
}

// admit makes the checks of the credential that was read. Response headers say how many requests are left, and when to try
// again.
func (a *authenticator) admit(c *call) error {
	err := a.checker.Check(c.Request.Context(), &c.run)
	if c.run.Authenticated {
		c.Principal = &c.run.Principal
	}
	if c.run.Windowed {
		c.setRateHeaders(c.run.Window, time.Now())
	}
	switch fault.KindOf(err) {
	case fault.Limited:
		c.setRetryAfter()
	case fault.Unauthenticated:
		if c.run.Kind == credential.Session && c.run.At == access.CheckLookUp {
			a.cookies.Clear(c, c.Request)
		}
	}
	return err
}

// mayFail refuses a request from an address that failed too often, before something outside of the checks is asked.
func (a *authenticator) mayFail(c *call) error {
	err := a.checker.MayFail(&c.run)
	if err != nil {
		c.setRetryAfter()
	}
	return err
}

// setRetryAfter says when to try again.
func (c *call) setRetryAfter() {
	c.SetHeader("Retry-After", strconv.FormatInt(max(1, check.Seconds(c.run.RetryAfter)), 10))
}

// setRateHeaders sets the response headers that say how many requests are left in the window of a key: the headers of
// draft-ietf-httpapi-ratelimit-headers-10 and their older X- forms. All values are parts of one string, which saves allocations
// in every request.
func (c *call) setRateHeaders(r limiter.Result, now time.Time) {
	var buffer [160]byte
	b := append(buffer[:0], `"plan";q=`...)
	b = strconv.AppendInt(b, r.Limit, 10)
	b = append(b, `;w=60`...)
	policy := len(b)
	b = append(b, `"plan";r=`...)
	b = strconv.AppendInt(b, r.Remaining, 10)
	b = append(b, `;t=`...)
	b = strconv.AppendInt(b, check.Seconds(r.Reset), 10)
	state := len(b)
	b = strconv.AppendInt(b, r.Limit, 10)
	limit := len(b)
	b = strconv.AppendInt(b, r.Remaining, 10)
	remaining := len(b)
	b = strconv.AppendInt(b, now.Add(r.Reset+time.Second-1).Unix(), 10)

	text := string(b)
	c.SetHeader("RateLimit-Policy", text[:policy])
	c.SetHeader("RateLimit", text[policy:state])
	c.SetHeader("X-RateLimit-Limit", text[state:limit])
	c.SetHeader("X-RateLimit-Remaining", text[limit:remaining])
	c.SetHeader("X-RateLimit-Reset", text[remaining:])
}
