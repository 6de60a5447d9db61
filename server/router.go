package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/julienschmidt/httprouter"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

// The methods that routes have, sorted: in this order Allow names them.
var methods = []string{
	http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPatch, http.MethodPost, http.MethodPut,
}

// register builds the router from the table, both slash forms of each pattern. Only the router's trees are used: its
// ServeHTTP would redirect a missing slash with a 301 that turns POST into GET, and answer OPTIONS to anybody.
func (s *Server) register() (*httprouter.Router, map[string][]string) {
	router := httprouter.New()
	fixed := map[string][]string{}
	for i := range s.routes {
		rt := &s.routes[i]
		at := []string{rt.method}
		if rt.method == http.MethodGet {
			at = append(at, http.MethodHead)
		}
		paths := []string{rt.pattern, strings.TrimSuffix(rt.pattern, "/")}
		for _, method := range at {
			handle := follow(rt)
			for _, path := range paths {
				router.Handle(method, strings.NewReplacer("{", ":", "}", "").Replace(path), handle)
			}
		}
		for _, path := range paths {
			if !strings.Contains(path, "{") {
				fixed[path] = append(fixed[path], at...)
				slices.Sort(fixed[path])
			}
		}
	}
	return router, fixed
}

// follow notes in a call which route it takes, and what that asks for.
func follow(rt *route) httprouter.Handle {
	wanted := rt.wanted()
	return func(w http.ResponseWriter, _ *http.Request, p httprouter.Params) {
		c := w.(*call)
		c.route, c.params, c.wanted = rt, p, wanted
	}
}

// wanted are the permissions that a route asks for, with what its handler needs beside them.
func (rt *route) wanted() access.Scope {
	switch {
	case rt.permission == "":
		return access.Scope{}
	case rt.pattern == verifyPath:
		return access.NewScope(rt.permission, access.PlatformActAs)
	}
	return access.NewScope(rt.permission)
}

// dispatch finds the route and leads the request down it.
func (s *Server) dispatch(c *call) {
	if err := s.lead(c); err != nil {
		s.fail(c, err)
	}
}

func (s *Server) lead(c *call) error {
	if err := c.boundHeader(); err != nil {
		return err
	}
	method, path := c.request.Method, c.request.URL.Path
	if dialect, wanted, isGate := gateAt(path); isGate {
		return s.gate(c, dialect, wanted)
	}
	if allowed, found := s.locate(c, method, path); !found {
		return s.unrouted(c, allowed)
	}
	return s.run(c)
}

// locate notes in c the route of a method and a path. Where there is none, it returns the methods that the path has.
func (s *Server) locate(c *call, method, path string) (allowed []string, found bool) {
	if !strings.HasPrefix(path, "/") {
		return nil, false
	}
	handle, params, _ := s.router.Lookup(method, path)
	// "batch" in /events/batch/ is no id, whatever the method: a path that is fixed is never taken for one that varies.
	fixed, isFixed := s.fixed[path]
	switch {
	case isFixed && (handle == nil || len(params) > 0):
		return fixed, false
	case handle == nil:
		return s.allowed(path), false
	}
	handle(c, nil, params)
	return nil, true
}

func (s *Server) allowed(path string) []string {
	var allowed []string
	for _, method := range methods {
		if handle, _, _ := s.router.Lookup(method, path); handle != nil {
			allowed = append(allowed, method)
		}
	}
	return allowed
}

// unrouted says what is wrong with a request that no route takes. A credential that comes with it is judged and counted
// all the same: every request of a key is.
func (s *Server) unrouted(c *call, allowed []string) error {
	if len(c.request.Header["Authorization"]) > 0 {
		if err := s.authenticate(c); err != nil {
			return err
		}
	}
	if len(allowed) == 0 {
		return &refusal{http.StatusNotFound, "not_found", "There is nothing at this path."}
	}
	list := strings.Join(allowed, ", ")
	c.set("Allow", list)
	return &refusal{http.StatusMethodNotAllowed, "method_not_allowed", "This path has only " + list + "."}
}

// run leads a request down its route: the checks, the query, the handler.
func (s *Server) run(c *call) error {
	if c.route.access == open {
		return c.route.handle(c)
	}
	if c.route.access == local && isLocal(c.request) {
		return c.handle()
	}
	if err := s.authenticate(c); err != nil {
		return err
	}
	c.at, c.named = access.CheckOrganization, c.request.Header[organizationHeader] // what comes before has been made
	if err := s.judge(c.request.Context(), &c.trial, access.CheckPermission); err != nil {
		return err
	}
	if c.request.ProtoMajor > 1 { // one connection makes many requests at once, so connections do not bound them
		if err := c.reserve(requestCost, 0); err != nil {
			return err
		}
	}
	if err := c.handle(); err != nil {
		return c.orMissing(err)
	}
	return nil
}

// handle reads the query and has the route answer. A handler that takes parameters reads them on; see page.
func (c *call) handle() error {
	if raw := c.request.URL.RawQuery; raw != "" {
		c.query = form.ParseQuery(raw, c.route.parameters)
	}
	if len(c.route.parameters) == 0 {
		if err := c.query.Err(); err != nil {
			return err
		}
	}
	return c.route.handle(c)
}
