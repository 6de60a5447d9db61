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
	x := &exchange{ResponseWriter: w, request: r, local: local, began: time.Now(), id: rand.Text(), base: s.base}
	x.client = s.clientAddr(r)
	x.reserved.memory = s.memory
	defer x.release()
	x.set("X-Request-Id", x.id)
	x.set("X-Content-Type-Options", "nosniff")
	defer s.observe(x)
	defer s.rescue(x)
	s.dispatch(x)
}

// rescue turns a panic into a 500. Where part of the answer is out already, it aborts the connection instead: the caller
// must not take the part for the whole.
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

// observe counts the request and writes the line. The line names the pattern and not the path, and never the query, a header
// or a body: each of them may hold a secret. Lines about requests without a valid credential are bounded in number. Lines
// for debugging are not, because an operator asks for all of them.
func (s *Server) observe(x *exchange) {
	took := time.Since(x.began)
	s.count(x, took)
	level := x.level()
	s.unknown.report(false)
	if !s.log.Enabled(x.request.Context(), level) {
		return
	}
	if !x.known() && level > slog.LevelDebug && !s.unknown.allow(level) {
		s.unknown.report(false)
		return
	}
	ctx := context.WithoutCancel(x.request.Context())
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
	if x.authenticated {
		attrs = append(attrs, slog.String("user", x.principal.User.ID), slog.String("organization", x.principal.Organization.ID))
		if x.principal.Key != nil {
			attrs = append(attrs, slog.String("key", x.principal.Key.ID))
		}
		if x.principal.Session != nil {
			attrs = append(attrs, slog.String("session", x.principal.Session.ID))
		}
	}
	if x.code != "" {
		attrs = append(attrs, slog.String("code", x.code))
	}
	if x.cause != nil {
		attrs = append(attrs, slog.String("cause", clip(x.cause.Error(), maxCause)))
	}
	s.log.LogAttrs(ctx, level, "request", attrs...)
}

// known reports whether the request showed a valid credential, be it refused for another reason, or came over the local
// socket, which only operators can open.
func (x *exchange) known() bool { return x.authenticated || x.local }

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
func (x *exchange) clientName() string {
	if x.local {
		return "socket"
	}
	return x.client.String()
}

// level says how loud the line is: what an operator must look at, and what a probe repeats every few seconds.
func (x *exchange) level() slog.Level {
	switch {
	case x.status == http.StatusInternalServerError || x.code == "aborted":
		return slog.LevelError
	case x.status > http.StatusInternalServerError:
		return slog.LevelWarn
	case x.route != nil && (x.route.access == open && x.route.method == http.MethodGet || x.route.access == local && x.status == http.StatusOK):
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// method returns the method for the log; what is not a method of HTTP is the caller's own text.
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
