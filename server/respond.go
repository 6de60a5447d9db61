package server

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keyhook/keyhook/limiter"
	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/share"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
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
		c.dialect, _, _ = parseForwardAuth(c.Request.URL.Path) // nginx understands few statuses
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

// readCredential does not ask the store. A failure to read the credential is for the checks to report.
func (s *Server) readCredential(c *call) {
	c.run.Presented = s.reader.Read(c.Request, c.Local)
	if c.run.Kind == credential.IssuerToken {
		c.requireMemory() // the check may have to wait for the identity provider
	}
	if c.run.Kind != credential.Session {
		return
	}
	c.NoStore() // the response is for this browser only
	if errors.Is(c.run.Unreadable, credential.ErrSession) {
		s.cookies.Clear(c, c.Request)
	}
}

// admit makes the checks of the credential that was read. Response headers say how many requests are left, and when to try again.
func (s *Server) admit(c *call) error {
	err := s.checker.Check(c.Request.Context(), &c.run)
	if c.run.Authenticated {
		c.Principal = &c.run.Principal
		share.MarkBusy(c.Request.Context(), c.payer())
		if c.isStream() {
			err = cmp.Or(err, c.Charge())
		}
	}
	if c.run.Windowed {
		c.setRateHeaders(c.run.Window, time.Now())
	}
	if fault.KindOf(err) == fault.Limited {
		c.setRetryAfter()
	}
	return s.clearEnded(c, err)
}

// payer is the organization that pays for the connection of a request with a valid credential; 0 if the caller may act in every
// organization, as the host's own back end.
func (c *call) payer() int64 {
	if c.Principal.Can(access.PlatformActAs) {
		return 0
	}
	return c.Principal.Home.RowID
}

// clearEnded clears the cookie of a session that has ended. It returns the refusal of the credential.
func (s *Server) clearEnded(c *call, refused error) error {
	if fault.KindOf(refused) == fault.Unauthenticated && c.run.Kind == credential.Session && c.run.At == access.CheckLookUp {
		s.cookies.Clear(c, c.Request)
	}
	return refused
}

// countFailure counts a failure of an address, before something outside of the checks is asked. It refuses one that failed too often.
func (s *Server) countFailure(c *call) error {
	err := s.checker.CountFailure(&c.run)
	if err != nil {
		c.setRetryAfter()
	}
	return err
}

func (c *call) setRetryAfter() {
	c.SetHeader("Retry-After", strconv.FormatInt(max(1, check.Seconds(c.run.RetryAfter)), 10))
}

// setRateHeaders sets the response headers that say how many requests are left in the window of a key: the headers of
// draft-ietf-httpapi-ratelimit-headers-10 and their older X- forms. All values are parts of one string, which saves allocations
// in every request.
func (c *call) setRateHeaders(r limiter.Result, now time.Time) {
	var buffer [160]byte
	b := append(buffer[:0], `"plan";q=`...)
	b = strconv.AppendInt(b, r.Limit, 10)
	b = append(b, `;w=60`...)
	policy := len(b)
	b = append(b, `"plan";r=`...)
	b = strconv.AppendInt(b, r.Remaining, 10)
	b = append(b, `;t=`...)
	b = strconv.AppendInt(b, check.Seconds(r.Reset), 10)
	state := len(b)
	b = strconv.AppendInt(b, r.Limit, 10)
	limit := len(b)
	b = strconv.AppendInt(b, r.Remaining, 10)
	remaining := len(b)
	b = strconv.AppendInt(b, now.Add(r.Reset+time.Second-1).Unix(), 10)

	text := string(b)
	c.SetHeader("RateLimit-Policy", text[:policy])
	c.SetHeader("RateLimit", text[policy:state])
	c.SetHeader("X-RateLimit-Limit", text[state:limit])
	c.SetHeader("X-RateLimit-Remaining", text[limit:remaining])
	c.SetHeader("X-RateLimit-Reset", text[remaining:])
}
