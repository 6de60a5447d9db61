package server

import (
	"net/http"
	"slices"
	"time"
)

// Measure is asked, when a server is made, for each method of each line of its table, and for each method that a request
// may have which no line takes: its route is noRoute, and a method that HTTP does not know is otherMethod. What it returns
// is called at the end of each of those requests, with the code of the problem, if the answer was one. So whoever counts
// has looked up all there is to look up before the first request.
type Measure func(method, route string) func(status int, code string, took time.Duration)

// tally is what counts requests of one sort.
type tally func(status int, code string, took time.Duration)

// What the log and those who measure call what has no name of ours: all that callers make up is one value.
const (
	noRoute     = "none"
	otherMethod = "other"
)

// methodsOfHTTP are the methods that are told apart.
var methodsOfHTTP = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodOptions, http.MethodConnect, http.MethodTrace,
}

// unmeasured is the Measure of a server that has none.
func unmeasured(string, string) func(int, string, time.Duration) {
	return func(int, string, time.Duration) {}
}

// byMethod asks for what counts the requests of a route that takes every method, or of none.
func (m Measure) byMethod(route string) map[string]tally {
	tallies := map[string]tally{otherMethod: m(otherMethod, route)}
	for _, method := range methodsOfHTTP {
		tallies[method] = m(method, route)
	}
	return tallies
}

// count tells who measures that the request has ended.
func (s *Server) count(x *exchange, took time.Duration) {
	tally := x.tally
	if tally == nil {
		tally = s.strays[x.method()]
	}
	tally(x.status, x.code, took)
}

// relayed are headers that proxies add to what they pass on.
var relayed = []string{"X-Forwarded-For", "Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Via"}

// isLocal reports whether a request was made on this machine, as far as can be seen. A proxy that stands here passes on
// what others ask, whether it is trusted or not.
func isLocal(r *http.Request) bool { return !isRelayed(r) && peer(r.RemoteAddr).IsLoopback() }

// isRelayed reports whether a request shows that it came through a proxy.
func isRelayed(r *http.Request) bool {
	return slices.ContainsFunc(relayed, func(name string) bool { return len(r.Header[name]) > 0 })
}
