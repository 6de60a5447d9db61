package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"time"
	"unicode/utf8"
)

// ServeHTTP answers one request and writes one log line about it; see observe for the exception.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.answer(w, r, false) }

// LocalHandler answers requests from the local socket. ServeLocal serves it.
func (s *Server) LocalHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, true) })
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, local bool) {
	s.underway.Add(1)
	defer s.underway.Done()
	// The request id is always made here. An id from the caller could repeat, or copy the id of another request.
	c := &call{ResponseWriter: w, request: r, local: local, began: time.Now(), id: rand.Text(), base: s.base}
	c.client = s.clientAddr(r)
	c.reserved.memory = s.memory
	defer c.release()
	c.set("X-Request-Id", c.id)
	c.set("X-Content-Type-Options", "nosniff")
	defer s.observe(c)
	defer s.rescue(c)
	s.dispatch(c)
}

// rescue turns a panic into a 500. If part of the response has been sent already, it aborts the connection instead, so
// that the caller does not take the part for the whole.
func (s *Server) rescue(c *call) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		c.code = "aborted"
		panic(http.ErrAbortHandler)
	}
	c.cause = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
	if c.status != 0 {
		c.code = "aborted"
		panic(http.ErrAbortHandler)
	}
	s.fail(c, c.cause)
}

// observe tells the observer about the finished request and writes the log line. The line has the pattern of the route. It
// has no path, query, header or body, because each of them may hold a secret. The number of lines about requests without a
// valid credential is bounded, except at the debug level, where an operator asked for all of them.
func (s *Server) observe(c *call) {
	took := time.Since(c.began)
	if s.observer != nil {
		s.observer(c.method(), c.pattern(), c.status, c.code, took)
	}
	level := c.level()
	s.unknown.report(false)
	if !s.log.Enabled(c.request.Context(), level) {
		return
	}
	if !c.known() && level > slog.LevelDebug && !s.unknown.allow(level) {
		s.unknown.report(false)
		return
	}
	ctx := context.WithoutCancel(c.request.Context())
	attrs := make([]slog.Attr, 0, 13)
	attrs = append(attrs,
		slog.String("method", c.method()),
		slog.String("route", c.pattern()),
		slog.Int("status", c.status),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000),
		slog.Int64("bytes", c.bytes),
		slog.String("request_id", c.id),
		slog.String("client", c.clientName()),
	)
	attrs = c.appendPrincipal(attrs)
	if c.code != "" {
		attrs = append(attrs, slog.String("code", c.code))
	}
	if c.cause != nil {
		attrs = append(attrs, slog.String("cause", clip(c.cause.Error(), maxCause)))
	}
	s.log.LogAttrs(ctx, level, "request", attrs...)
}

// appendPrincipal adds the ids of the principal. A request without a valid credential has none.
func (c *call) appendPrincipal(attrs []slog.Attr) []slog.Attr {
	if !c.authenticated {
		return attrs
	}
	attrs = append(attrs, slog.String("user", c.principal.User.ID), slog.String("organization", c.principal.Organization.ID))
	if c.principal.Key != nil {
		attrs = append(attrs, slog.String("key", c.principal.Key.ID))
	}
	if c.principal.Session != nil {
		attrs = append(attrs, slog.String("session", c.principal.Session.ID))
	}
	return attrs
}

// known reports whether the request had a valid credential, even if it was refused for another reason, or came over the
// local socket, which only operators can open.
func (c *call) known() bool { return c.authenticated || c.local }

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
func (c *call) clientName() string {
	if c.local {
		return "socket"
	}
	return c.client.String()
}

// level returns the level of the log line. Failures of the server are errors and warnings. Requests that probes repeat every
// few seconds are debug lines.
func (c *call) level() slog.Level {
	switch {
	case c.status == http.StatusInternalServerError || c.code == "aborted":
		return slog.LevelError
	case c.status > http.StatusInternalServerError:
		return slog.LevelWarn
	case c.route != nil && (c.route.access == open && c.route.method == http.MethodGet || c.route.access == local && c.status == http.StatusOK):
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// method returns the method for the log and the metrics. A method that HTTP does not define is otherMethod.
func (c *call) method() string {
	if slices.Contains(methodsOfHTTP, c.request.Method) {
		return c.request.Method
	}
	return otherMethod
}

func (c *call) pattern() string {
	if c.route == nil {
		return noRoute
	}
	return c.route.pattern
}
