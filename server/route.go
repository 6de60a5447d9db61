package server

import (
	"net/http"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The largest bodies of requests, in bytes.
const (
	maxSmallBody = 64 << 10
	maxEventBody = webhook.MaxEvent
	maxBatchBody = 16 << 20
)

// reach says who reaches the handler of a route, and which limit counts the request.
type reach uint8

const (
	permitted reach = iota // a credential with the permissions of the route; one request of its rate limit
	anyone                 // any valid credential; one request of its rate limit
	open                   // everybody; no credential is read, and nothing is counted
	local                  // open for requests from this machine, permitted for all others
	proxied                // the API key of a request that a proxy holds; one request of its rate limit
)

// route is one row of the table. Its methods set what differs from a request without query and body.
type route struct {
	method     string // anyMethod if match decides
	pattern    string // ends in a slash; the same path without it is served too
	access     reach
	needs      access.Scope // all of these permissions
	maxBody    int64        // bytes; 0 takes no body
	parameters []string     // of the query; any other is refused
	handle     func(*exchange) error
	exists     func(*exchange) error  // NotFound if the resource in the path does not exist; nil if the path names none
	match      func(path string) bool // instead of method and pattern
}

// anyMethod is the method of a route that serves all methods.
const anyMethod = "*"

func get(pattern string, handle func(*exchange) error) route {
	return route{method: http.MethodGet, pattern: pattern, handle: handle}
}

func post(pattern string, handle func(*exchange) error) route {
	return route{method: http.MethodPost, pattern: pattern, handle: handle}
}

func put(pattern string, handle func(*exchange) error) route {
	return route{method: http.MethodPut, pattern: pattern, handle: handle}
}

func patch(pattern string, handle func(*exchange) error) route {
	return route{method: http.MethodPatch, pattern: pattern, handle: handle}
}

func del(pattern string, handle func(*exchange) error) route {
	return route{method: http.MethodDelete, pattern: pattern, handle: handle}
}

// anyPath serves all methods at the paths that match.
func anyPath(pattern string, match func(path string) bool, handle func(*exchange) error) route {
	return route{method: anyMethod, pattern: pattern, match: match, handle: handle}
}

func (r route) to(who reach) route {
	r.access = who
	return r
}

// need lists the permissions that a credential must have, all of them.
func (r route) need(permissions ...string) route {
	r.needs = access.NewScope(permissions...)
	return r
}

func (r route) body(most int64) route {
	r.maxBody = most
	return r
}

func (r route) query(parameters ...string) route {
	r.parameters = parameters
	return r
}

// pages is a list of pages with these filters.
func (r route) pages(filters ...string) route {
	return r.query(append([]string{"limit", "cursor"}, filters...)...)
}

// of names the resource in the path. It decides between 404 and a problem with the query or the body.
func (r route) of(exists func(*exchange) error) route {
	r.exists = exists
	return r
}

// Route is a row of the table for tests and for the description of the API.
type Route struct {
	Method      string   // "*" serves all methods
	Pattern     string   // with {id}, {name} and {key} where paths vary
	Permissions []string // all of them are needed; empty if any valid credential will do
	Open        bool     // no credential is read
	Local       bool     // no credential is read in a request from this machine
	Proxied     bool     // a proxy asks for another request
	Parameters  []string // of the query
	Body        int64    // bytes at most; 0 takes none
}

// Routes lists the table in order. It omits HEAD, which is served wherever GET is.
func (s *Server) Routes() []Route {
	routes := make([]Route, len(s.router.routes))
	for i, r := range s.router.routes {
		routes[i] = Route{r.method, r.pattern, r.needs.Keys(), r.access == open, r.access == local, r.access == proxied, r.parameters, r.maxBody}
	}
	return routes
}
