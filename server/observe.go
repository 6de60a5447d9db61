package server

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"
	"unicode/utf8"
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

// ServeHTTP responds to one request and writes one log line about it; see observe for the exception.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.respond(w, r, false) }

// LocalHandler responds to requests from the local socket. ServeLocal serves it.
func (s *Server) LocalHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.respond(w, r, true) })
}

// exchanges are finished exchanges, for reuse: one takes more than a kilobyte.
var exchanges = sync.Pool{New: func() any { return new(exchange) }}

func (s *Server) respond(w http.ResponseWriter, r *http.Request, local bool) {
	s.underway.Add(1)
	defer s.underway.Done()
	x := exchanges.Get().(*exchange)
	// The request id is always generated here. An id from the caller could repeat, or copy the id of another request.
	x.ResponseWriter, x.request, x.local, x.began, x.id, x.base = w, r, local, time.Now(), rand.Text(), s.base
	x.client = s.trusted.Client(r)
	x.reserved.memory = s.memory
	s.finish(x)
	*x = exchange{}
	exchanges.Put(x)
}

// finish responds to the request of x. If it panics, net/http aborts the connection.
func (s *Server) finish(x *exchange) {
	defer x.release()
	x.set("X-Request-Id", x.id)
	x.set("X-Content-Type-Options", "nosniff")
	defer s.observe(x)
	defer s.rescue(x)
	s.dispatch(x)
}

// rescue turns a panic into a 500. If part of the response is already sent, it aborts the connection instead.
// Otherwise the caller could mistake that part for the whole response.
func (s *Server) rescue(x *exchange) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		x.code = "aborted"
		panic(http.ErrAbortHandler)
	}
	x.cause = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
	if x.status != 0 {
		x.code = "aborted"
		panic(http.ErrAbortHandler)
	}
	s.fail(x, x.cause)
}

// observe tells the observer about the finished request and writes the log line. The line has the pattern of the route. It
// has no path, query, header or body, because each of them may contain a secret. The number of lines about requests without a
// valid credential is limited, except at the debug level.
func (s *Server) observe(x *exchange) {
	took := time.Since(x.began)
	if s.observer != nil {
		s.observer(x.method(), x.pattern(), x.status, x.code, took)
	}
	level := x.level()
	s.unknown.Report(false)
	if !s.log.Enabled(x.request.Context(), level) {
		return
	}
	if !x.known() && level > slog.LevelDebug && !s.unknown.Allow(level) {
		s.unknown.Report(false)
		return
	}
	attrs := make([]slog.Attr, 0, 13)
	attrs = append(attrs,
		slog.String("method", x.method()),
		slog.String("route", x.pattern()),
		slog.Int("status", x.status),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000),
		slog.Int64("bytes", x.bytes),
		slog.String("request_id", x.id),
		slog.String("client", x.clientName()),
	)
	attrs = x.appendPrincipal(attrs)
	if x.code != "" {
		attrs = append(attrs, slog.String("code", x.code))
	}
	if x.cause != nil {
		attrs = append(attrs, slog.String("cause", clip(x.cause.Error(), maxCause)))
	}
	s.log.LogAttrs(x.request.Context(), level, "request", attrs...)
}

// appendPrincipal adds the ids of the principal. A request without a valid credential has none.
func (x *exchange) appendPrincipal(attrs []slog.Attr) []slog.Attr {
	if !x.Authenticated {
		return attrs
	}
	attrs = append(attrs, slog.String("user", x.Principal.User.ID), slog.String("organization", x.Principal.Organization.ID))
	if x.Principal.Key != nil {
		attrs = append(attrs, slog.String("key", x.Principal.Key.ID))
	}
	if x.Principal.Session != nil && x.Principal.Session.ID != "" { // a link that was refused has started no session
		attrs = append(attrs, slog.String("session", x.Principal.Session.ID))
	}
	return attrs
}

// known reports whether the request had a valid credential or came over the local socket, which only operators can open. A
// request that was refused for another reason is known too.
func (x *exchange) known() bool { return x.Authenticated || x.local }

// maxCause is the most bytes of a cause in a log line. The stack of a panic fits; a cause may also quote a body.
const maxCause = 8 << 10

// clip returns at most the first most bytes of a text, cut between characters.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// clientName returns the client for the log line. The local socket has no address.
func (x *exchange) clientName() string {
	if x.local {
		return "socket"
	}
	return x.client.String()
}

// level returns the level of the log line. Failures of the server are errors and warnings. Requests that probes repeat every
// few seconds are debug lines. A sign-in that fails has a cause.
func (x *exchange) level() slog.Level {
	switch {
	case x.status == http.StatusInternalServerError || x.code == "aborted":
		return slog.LevelError
	case x.status > http.StatusInternalServerError:
		return slog.LevelWarn
	case x.route != nil && (x.route.access == open && x.route.method == http.MethodGet && x.cause == nil || x.route.access == local && x.status == http.StatusOK):
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// method returns the method for the log and the metrics. A method that HTTP does not define is otherMethod.
func (x *exchange) method() string {
	if slices.Contains(methodsOfHTTP, x.request.Method) {
		return x.request.Method
	}
	return otherMethod
}

func (x *exchange) pattern() string {
	if x.route == nil {
		return noRoute
	}
	return x.route.pattern
}
