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

// ServeHTTP answers one request and writes one line about it to the log; see observe for the exception.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.answer(w, r, false) }

// LocalHandler answers requests that came over the local socket: what ServeLocal serves.
func (s *Server) LocalHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, true) })
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, local bool) {
	s.underway.Add(1)
	defer s.underway.Done()
	// The request id is always ours: one that a caller chose could be anything, twice, or another's.
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

// rescue turns a panic into a 500. Where part of the answer is out already, it aborts the connection instead: the caller
// must not take the part for the whole.
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

// observe counts the request and writes the line. The line names the pattern and not the path, and never the query, a header
// or a body: each of them may hold a secret. Lines about requests without a valid credential are bounded in number. Lines
// for debugging are not, because an operator asks for all of them.
func (s *Server) observe(c *call) {
	took := time.Since(c.began)
	s.count(c, took)
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
	if c.authenticated {
		attrs = append(attrs, slog.String("user", c.principal.User.ID), slog.String("organization", c.principal.Organization.ID))
		if c.principal.Key != nil {
			attrs = append(attrs, slog.String("key", c.principal.Key.ID))
		}
		if c.principal.Session != nil {
			attrs = append(attrs, slog.String("session", c.principal.Session.ID))
		}
	}
	if c.code != "" {
		attrs = append(attrs, slog.String("code", c.code))
	}
	if c.cause != nil {
		attrs = append(attrs, slog.String("cause", clip(c.cause.Error(), maxCause)))
	}
	s.log.LogAttrs(ctx, level, "request", attrs...)
}

// known reports whether the request showed a valid credential, be it refused for another reason, or came over the local
// socket, which only operators can open.
func (c *call) known() bool { return c.authenticated || c.local }

// maxCause bounds the cause in a line of the log, in bytes: it holds the stack of a panic, but may quote a body.
const maxCause = 8 << 10

// clip returns the first bytes of a text, cut between characters.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// clientName returns who asks for the log. The socket has no address.
func (c *call) clientName() string {
	if c.local {
		return "socket"
	}
	return c.client.String()
}

// level says how loud the line is: what an operator must look at, and what a probe repeats every few seconds.
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

// method returns the method for the log; what is not a method of HTTP is the caller's own text.
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
