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

	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/form"
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
			handle := setRoute(rt)
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

// setRoute returns the handle of a route in the tree. It only sets the route of an exchange.
func setRoute(rt *route) httprouter.Handle {
	return func(w http.ResponseWriter, _ *http.Request, p httprouter.Params) {
		x := w.(*exchange)
		x.route, x.params = rt, p
	}
}

// find sets the route of a method and a path in x. If there is none, it returns the methods that the path has.
//
// An external id may contain a slash, which the path has as %2F. Then the tree looks for the path as it is encoded, and find
// decodes the values.
func (r *router) find(x *exchange, method string, requested *url.URL) (allowed []string, found bool) {
	path := requested.Path
	for _, rt := range r.matched {
		if !rt.match(path) {
			continue
		}
		if rt.method == anyMethod || rt.method == method || rt.method == http.MethodGet && method == http.MethodHead {
			x.route = rt
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
	handle(x, nil, params)
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
func (s *Server) dispatch(x *exchange) {
	if err := s.run(x); err != nil {
		s.fail(x, err)
	}
}

// run finds the route of a request. Then it makes the checks, reads the query, and calls the handler.
func (s *Server) run(x *exchange) error {
	if err := x.limitHeaderFields(); err != nil {
		return err
	}
	if allowed, found := s.router.find(x, x.request.Method, x.request.URL); !found {
		return s.refuseUnmatched(x, allowed)
	}
	switch {
	case x.route.access == open, x.route.access == proxied:
		return x.route.handle(x)
	case x.route.access == local && share.IsLocal(x.request):
		return x.handle()
	}
	s.auth.read(x)
	x.Needed, x.Last = x.needed(), access.CheckPermission
	if err := s.auth.admit(x); err != nil {
		return err
	}
	if err := x.checkApplyHeader(); err != nil {
		return err
	}
	if x.request.ProtoMajor > 1 { // one connection makes many requests at once, so the limit on connections does not bound them
		if err := x.reserve(requestCost, 0); err != nil {
			return err
		}
	}
	if err := x.handle(); err != nil {
		return x.missingInstead(err)
	}
	return nil
}

// refuseUnmatched refuses a request that no route matches. Every request of a key counts, so a credential is checked first,
// up to its rate limit.
func (s *Server) refuseUnmatched(x *exchange, allowed []string) error {
	if len(x.request.Header["Authorization"]) > 0 {
		s.auth.read(x)
		x.Last = access.CheckRateLimit
		if err := s.auth.admit(x); err != nil {
			return err
		}
	}
	if len(allowed) == 0 {
		return &refusal{http.StatusNotFound, "not_found", nothingAt(x.request.URL.Path)}
	}
	list := strings.Join(allowed, ", ")
	x.set("Allow", list)
	return &refusal{http.StatusMethodNotAllowed, "method_not_allowed", "This path has only " + list + "."}
}

// handle reads the query and calls the handler. If the route has no parameters, any parameter is refused here. A handler
// with parameters reads them itself and refuses the others.
func (x *exchange) handle() error {
	if raw := x.request.URL.RawQuery; raw != "" {
		x.query = form.ParseQuery(raw, x.route.parameters)
	}
	if len(x.route.parameters) == 0 {
		if err := x.query.Err(); err != nil {
			return err
		}
	}
	return x.route.handle(x)
}

// authenticator reads the credential of a request and has it checked.
type authenticator struct {
	checker *check.Checker
	reader  *credential.Reader
	cookies *credential.Cookies
}

// read reads the credential of a request and does not ask the store. A failure to read it is for the checks to report.
func (a *authenticator) read(x *exchange) {
	x.Presented, x.Address = a.reader.Read(x.request, x.local), x.client
	if x.Kind != credential.Session {
		return
	}
	x.noStore() // the response is for this browser only
	if errors.Is(x.Unreadable, credential.ErrSession) {
		a.cookies.Clear(x, x.request)
	}
}

// admit makes the checks of the credential that was read. Response headers say how many requests are left, and when to try
// again.
func (a *authenticator) admit(x *exchange) error {
	err := a.checker.Check(x.request.Context(), &x.Run)
	if x.Windowed {
		x.setRateHeaders(x.Window, time.Now())
	}
	switch fault.KindOf(err) {
	case fault.Limited:
		x.setRetryAfter()
	case fault.Unauthenticated:
		if x.Kind == credential.Session && x.At == access.CheckLookUp {
			a.cookies.Clear(x, x.request)
		}
	}
	return err
}

// mayFail refuses a request from an address that failed too often, before something outside of the checks is asked.
func (a *authenticator) mayFail(x *exchange) error {
	err := a.checker.MayFail(&x.Run)
	if err != nil {
		x.setRetryAfter()
	}
	return err
}

// setRetryAfter says when to try again.
func (x *exchange) setRetryAfter() {
	x.set("Retry-After", strconv.FormatInt(max(1, check.Seconds(x.RetryAfter)), 10))
}
