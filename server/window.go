package server

import (
	"strconv"
	"time"

	"github.com/keyhook/keyhook/limiter"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// take counts a request in the window of a key, under the limit of the key's own organization. It is called once per
// request.
func (s *Server) take(t *trial) error {
	limit := t.principal.Plan.RateLimitPerMinute
	if limit == nil || t.principal.Key == nil {
		return nil
	}
	if t.quiet {
		s.peek(t)
	} else {
		t.windowed, t.window = true, s.limiter.Take(t.principal.Key.Window, *limit)
	}
	if t.window.Allowed {
		return nil
	}
	return fault.New(fault.Limited, codeRateLimited, "The key's limit of %d requests a minute is used up; "+
		"try again later, or ask an operator for a plan with a higher api_rate_limit_per_minute.", *limit)
}

// peek looks at the window of a key without counting.
func (s *Server) peek(t *trial) {
	if limit := t.principal.Plan.RateLimitPerMinute; limit != nil {
		t.windowed, t.window = true, s.limiter.Peek(t.principal.Key.Window, *limit)
	}
}

// showWindow says in the headers of whatever the answer will be what is left of the window, and where that is what
// refuses, when to come again.
func (c *call) showWindow() {
	if !c.windowed {
		return
	}
	c.setWindow(c.window, time.Now())
	if c.at == access.CheckRateLimit {
		c.set("Retry-After", strconv.FormatInt(seconds(c.window.Reset), 10))
	}
}

// setWindow sets the headers of draft-ietf-httpapi-ratelimit-headers-10 and their older kin. All values are cut from one
// string, because these lines are on the path of every request.
func (c *call) setWindow(r limiter.Result, now time.Time) {
	var buffer [160]byte
	b := append(buffer[:0], `"plan";q=`...)
	b = strconv.AppendInt(b, r.Limit, 10)
	b = append(b, `;w=60`...)
	policy := len(b)
	b = append(b, `"plan";r=`...)
	b = strconv.AppendInt(b, r.Remaining, 10)
	b = append(b, `;t=`...)
	b = strconv.AppendInt(b, seconds(r.Reset), 10)
	state := len(b)
	b = strconv.AppendInt(b, r.Limit, 10)
	limit := len(b)
	b = strconv.AppendInt(b, r.Remaining, 10)
	remaining := len(b)
	b = strconv.AppendInt(b, now.Add(r.Reset+time.Second-1).Unix(), 10)

	text := string(b)
	c.set("RateLimit-Policy", text[:policy])
	c.set("RateLimit", text[policy:state])
	c.set("X-RateLimit-Limit", text[state:limit])
	c.set("X-RateLimit-Remaining", text[limit:remaining])
	c.set("X-RateLimit-Reset", text[remaining:])
}

// seconds rounds up: a caller who waits that long finds a new window.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
