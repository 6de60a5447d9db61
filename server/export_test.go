package server

// What black-box tests cannot reach.

// LimitConnections sets how many connections may be open at the same time.
func (s *Server) LimitConnections(most int) { s.connections.Open = most }

// Reserved is how much memory organizations have for requests, and how much clients without a valid credential have.
func (s *Server) Reserved() (organizations, anonymous int64) { return s.memory.Reserved() }

// Route is a row of the table for tests.
type Route struct {
	Method      string   // "*" serves all methods
	Pattern     string   // with {id}, {name}, {key} and {type} where paths vary
	AnyOf       []string // one of them is needed, too; empty needs none
	Permissions []string // all of them are needed; empty if any valid credential will do
	Open        bool     // no credential is read
	Local       bool     // no credential is read in a request from this machine
	Proxied     bool     // a proxy asks about another request
	Parameters  []string // of the query
	Body        int64    // bytes at most; 0 takes none
}

// Routes lists the table in order. It omits HEAD, which is served wherever GET is.
func (s *Server) Routes() []Route {
	routes := make([]Route, len(s.router.routes))
	for i, r := range s.router.routes {
		routes[i] = Route{r.method, r.pattern, r.anyOf.Keys(), r.needs.Keys(), r.access == open, r.access == local, r.access == proxied, r.parameters, r.maxBody}
	}
	return routes
}
