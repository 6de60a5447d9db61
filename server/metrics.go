package server

import (
	"net/http"
	"slices"
	"time"
)

// RequestObserver is called once for each finished request. The route is its pattern, or noRoute. A method that HTTP does
// not define is otherMethod, so callers cannot make up values. code is the problem code of the response, empty for a success.
type RequestObserver func(method, route string, status int, code string, took time.Duration)

// The route and the method of requests that match no route or use an undefined method.
const (
	noRoute     = "none"
	otherMethod = "other"
)

// methodsOfHTTP are the methods that the log and the metrics distinguish.
var methodsOfHTTP = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodOptions, http.MethodConnect, http.MethodTrace,
}

// proxyHeaders are headers that proxies add to the requests that they forward.
var proxyHeaders = []string{"X-Forwarded-For", "Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Via"}

// isLocal reports whether a request was made on this machine. A proxy on this machine forwards requests of others, so a
// request with proxy headers is never local, whether the proxy is trusted or not.
func isLocal(r *http.Request) bool { return !isRelayed(r) && peer(r.RemoteAddr).IsLoopback() }

// isRelayed reports whether a request has headers that only proxies add.
func isRelayed(r *http.Request) bool {
	return slices.ContainsFunc(proxyHeaders, func(name string) bool { return len(r.Header[name]) > 0 })
}
