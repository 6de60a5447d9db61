package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/julienschmidt/httprouter"
)

// router finds the route of a request. It uses only the trees of httprouter. It does not use the ServeHTTP of httprouter, for two reasons.
// ServeHTTP redirects a path without the last slash with a 301, which turns POST into GET. And it responds to OPTIONS without a credential.
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

var inTree = strings.NewReplacer("{", ":", "}", "") // a path of the table, as httprouter writes it

// fill fills an empty router from the table, with and without the last slash of each path. A route without a handler is not served.
func (r *router) fill(table []route) {
	r.routes = slices.DeleteFunc(table, func(rt route) bool { return rt.handle == nil })
	r.tree, r.fixed = httprouter.New(), map[string][]string{}
	for i := range r.routes {
		rt := &r.routes[i]
		if rt.match != nil {
			r.matched = append(r.matched, rt)
			continue
		}
		handle := func(w http.ResponseWriter, _ *http.Request, p httprouter.Params) { w.(*call).setRoute(rt, p) }
		at := []string{rt.method}
		if rt.method == http.MethodGet {
			at = append(at, http.MethodHead)
		}
		paths := []string{rt.pattern, strings.TrimSuffix(rt.pattern, "/")}
		for _, path := range paths {
			for _, method := range at {
				r.tree.Handle(method, inTree.Replace(path), handle)
			}
			if !strings.Contains(path, "{") {
				r.fixed[path] = append(r.fixed[path], at...)
				slices.Sort(r.fixed[path])
			}
		}
	}
}

// find sets the route of c. If no route has the method and the path, find returns the methods that the path has.
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
			c.setRoute(rt, nil)
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
		for i := range params {
			params[i].Value, _ = url.PathUnescape(params[i].Value) // net/url has parsed the path, so it can be decoded
		}
	}
	handle(c, nil, params)
	return nil, true
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
