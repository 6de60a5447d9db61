package server

import (
	"net/http"
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
