package server

import (
	"cmp"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/keyhook/keyhook/storage/access"
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

// observe tells the observer about the finished request and writes the log line. The line has the pattern of the route. It
// has no path, query, header or body, because each of them may contain a secret. The number of lines about requests that are not
// known is limited, except at the debug level.
func (s *Server) observe(c *call) {
	took := time.Since(c.Began)
	if s.options.Observe != nil {
		s.options.Observe(c.method(), c.pattern(), c.Status(), c.Code, took)
	}
	level := c.level()
	s.unknown.Report(false)
	if !s.options.Logger.Enabled(c.Request.Context(), level) {
		return
	}
	if !c.known() && level > slog.LevelDebug && !s.unknown.Allow() {
		s.unknown.Report(false)
		return
	}
	attrs := make([]slog.Attr, 0, 13)
	attrs = append(attrs,
		slog.String("method", c.method()),
		slog.String("route", c.pattern()),
		slog.Int("status", c.Status()),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000),
		slog.Int64("bytes", c.Bytes()),
		slog.String("request_id", c.ID),
		slog.String("client", cmp.Or(c.ClientIP(), "socket")),
	)
	attrs = c.appendPrincipal(attrs)
	if c.Code != "" {
		attrs = append(attrs, slog.String("code", c.Code))
	}
	if c.Cause != nil {
		cause := c.Cause.Error()
		if len(cause) > maxCause {
			cause = strings.ToValidUTF8(cause[:maxCause], "") + "…"
		}
		attrs = append(attrs, slog.String("cause", cause))
	}
	s.options.Logger.LogAttrs(c.Request.Context(), level, "request", attrs...)
}

func (c *call) appendPrincipal(attrs []slog.Attr) []slog.Attr {
	if c.Principal == nil {
		return attrs
	}
	attrs = append(attrs, slog.String("user", c.Principal.User.ID), slog.String("organization", c.Principal.Organization.ID))
	if c.Principal.Key != nil {
		attrs = append(attrs, slog.String("key", c.Principal.Key.ID))
	}
	if c.Principal.Session != nil && c.Principal.Session.ID != "" { // a link that was refused has started no session
		attrs = append(attrs, slog.String("session", c.Principal.Session.ID))
	}
	return attrs
}

// known reports whether the request had a valid credential that has passed its rate limit, or came over the local socket, which only
// operators can open. A request that a later check has refused is known too. What the rate limit or an earlier check refuses has no limit,
// so a customer can send it at any rate.
func (c *call) known() bool { return c.Principal != nil && c.run.At > access.CheckRateLimit || c.Local }

// maxCause is the most bytes of a cause in a log line. The stack of a panic fits; a cause may also quote a body.
const maxCause = 8 << 10

// level returns the level of the log line. Failures of the server are errors and warnings. Requests that probes repeat every
// few seconds are debug lines. A sign-in that fails has a cause.
func (c *call) level() slog.Level {
	switch {
	case c.Status() == http.StatusInternalServerError || c.Code == codeAborted:
		return slog.LevelError
	case c.Status() > http.StatusInternalServerError:
		return slog.LevelWarn
	case c.route != nil && (c.route.access == open && c.route.method == http.MethodGet && c.Cause == nil || c.route.access == local && c.Status() == http.StatusOK):
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// method returns the method for the log and the metrics. A method that HTTP does not define is otherMethod.
func (c *call) method() string {
	if slices.Contains(methodsOfHTTP, c.Request.Method) {
		return c.Request.Method
	}
	return otherMethod
}

func (c *call) pattern() string {
	if c.route == nil {
		return noRoute
	}
	return c.route.pattern
}
