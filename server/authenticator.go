package server

import (
	"cmp"
	"errors"
	"strconv"
	"time"

	"github.com/keyhook/keyhook/limiter"
	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/share"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

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

// admit makes the checks of the credential that was read. Response headers say how many requests are left, and when to try
// again.
func (s *Server) admit(c *call) error {
	err := s.checker.Check(c.Request.Context(), &c.run)
	if c.run.Authenticated {
		c.Principal = &c.run.Principal
		share.MarkBusy(c.Request.Context())
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

// clearEnded clears the cookie of a session that has ended. It returns the refusal of the credential.
func (s *Server) clearEnded(c *call, refused error) error {
	if fault.KindOf(refused) == fault.Unauthenticated && c.run.Kind == credential.Session && c.run.At == access.CheckLookUp {
		s.cookies.Clear(c, c.Request)
	}
	return refused
}

// mayFail refuses a request from an address that failed too often, before something outside of the checks is asked.
func (s *Server) mayFail(c *call) error {
	err := s.checker.MayFail(&c.run)
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
