package server

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/share"
	"github.com/keyhook/keyhook/storage/access"
)

// ServeHTTP responds to one request and writes one log line about it; see observe for the exception.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.respond(w, r, false) }

// calls are finished calls, for reuse: one takes more than a kilobyte.
var calls = sync.Pool{New: func() any { return new(call) }}

func (s *Server) respond(w http.ResponseWriter, r *http.Request, local bool) {
	s.underway.Add(1)
	defer s.underway.Done()
	c := calls.Get().(*call)
	// The request id is always generated here. An id from the caller could repeat, or copy the id of another request.
	c.ResponseWriter, c.Request, c.Local, c.Began, c.ID, c.Base = w, r, local, time.Now(), rand.Text(), s.base
	c.Client, c.Memory = s.options.TrustedProxies.Client(r), s.memory
	c.run.Address, c.run.Client = c.Client, c.Client
	if c.isStream() {
		c.openStream()
	}
	s.warnOfProxy(r)
	s.finish(c)
	*c = call{}
	calls.Put(c)
}

// proxyWarningInterval is the time between two warnings about a proxy that is not trusted: every client can cause one.
const proxyWarningInterval = time.Hour

// warnOfProxy warns that a peer seems to be a proxy, but is not declared as one. Then all of its clients share the limits of one address.
// Failures of loopback are not counted, so a proxy on this machine needs no declaration.
func (s *Server) warnOfProxy(r *http.Request) {
	if len(r.Header["X-Forwarded-For"]) == 0 {
		return
	}
	peer := share.Peer(r)
	if !peer.IsValid() || peer.IsLoopback() || s.options.TrustedProxies.Contains(peer) {
		return
	}
	now, last := time.Now().UnixNano(), s.proxyWarned.Load()
	if now-last < int64(proxyWarningInterval) || !s.proxyWarned.CompareAndSwap(last, now) {
		return
	}
	s.options.Logger.LogAttrs(r.Context(), slog.LevelWarn, "a request has X-Forwarded-For, but its peer is not in server.trusted_proxies: "+
		"if the peer is your proxy, add it there; otherwise all of its clients share one limit of failures and connections", slog.String("peer", peer.String()))
}

// finish responds to the request of c. If it panics, net/http aborts the connection.
func (s *Server) finish(c *call) {
	defer c.Release()
	c.SetHeader("X-Request-Id", c.ID)
	c.SetHeader("X-Content-Type-Options", "nosniff")
	defer s.observe(c)
	defer s.rescue(c)
	if err := s.run(c); err != nil {
		s.fail(c, err)
	}
	c.finishStream()
}

const codeAborted = "aborted"

// rescue turns a panic into a 500. If part of the response is already sent, it aborts the connection instead.
// Otherwise the caller could mistake that part for the whole response.
func (s *Server) rescue(c *call) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		c.Code = cmp.Or(c.Code, codeAborted)
		panic(http.ErrAbortHandler)
	}
	c.Cause = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
	if c.Status() != 0 {
		c.Code = codeAborted
		panic(http.ErrAbortHandler)
	}
	s.fail(c, c.Cause)
}

// run finds the route of a request. Then it makes the checks, reads the query, and calls the handler.
func (s *Server) run(c *call) error {
	if err := c.limitHeaderFields(); err != nil {
		return err
	}
	if allowed, found := s.router.find(c, c.Request.Method, c.Request.URL); !found {
		return s.refuseUnmatched(c, allowed)
	}
	switch {
	case c.route.access == open:
		c.requireMemory()
		if len(c.route.parameters) > 0 {
			return c.handle()
		}
		return c.route.handle(c)
	case c.route.access == proxied:
		return c.route.handle(c)
	case c.route.access == local && share.IsLocal(c.Request):
		return c.handle()
	}
	s.readCredential(c)
	c.run.Needed, c.run.AnyOf, c.run.Last = c.route.needs, c.route.anyOf, access.CheckPermission
	if err := s.admit(c); err != nil {
		return err
	}
	c.server, c.Caller = s, c
	if err := c.handle(); err != nil {
		return c.missingInstead(err)
	}
	return nil
}

// refuseUnmatched refuses a request that no route matches. Every request of a key counts, so a credential is checked first,
// up to its rate limit.
func (s *Server) refuseUnmatched(c *call, allowed []string) error {
	if len(c.Request.Header["Authorization"]) > 0 {
		s.readCredential(c)
		c.run.Last = access.CheckRateLimit
		if err := s.admit(c); err != nil {
			return err
		}
	}
	if len(allowed) == 0 {
		return exchange.Refuse(http.StatusNotFound, "not_found", "There is nothing at this path. GET /openapi.yaml lists all paths.")
	}
	list := strings.Join(allowed, ", ")
	c.SetHeader("Allow", list)
	return exchange.Refuse(http.StatusMethodNotAllowed, "method_not_allowed", "This path has only "+list+".")
}
