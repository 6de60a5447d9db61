package server

import (
	"strconv"
	"time"

	"github.com/keyhook/keyhook/limiter"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// take counts a request in the window of a key, and where that allows the request, in the window of all keys of its
// organization. The limits are those of the key's own organization. It is called once per request.
func (s *Server) take(t *trial) error {
	p := &t.principal
	if p.Plan.RateLimitPerMinute == nil || p.Key == nil {
		return nil
	}
	limit := *p.Plan.RateLimitPerMinute
	t.windowed, t.window = true, s.countIn(t, p.Key.Window, limit)
	t.last = t.window
	if !t.window.Allowed {
		return fault.New(fault.Limited, codeRateLimited, "The key's limit of %d requests a minute is used up; "+
			"try again later, or ask an operator for a plan with a higher api_rate_limit_per_minute.", limit)
	}
	together := p.Plan.OrganizationRate()
	if t.last = s.countIn(t, organizationWindow(p.Home), together); !t.last.Allowed {
		return fault.New(fault.Limited, codeRateLimited, "The organization's API keys together made too many requests: their limit "+
			"of %d a minute is used up; try again later.", together)
	}
	return nil
}

// countIn counts a request in a window, or looks at the window alone where the trial is quiet.
func (s *Server) countIn(t *trial, window, limit int64) limiter.Result {
	if t.quiet {
		return s.limiter.Peek(window, limit)
	}
	return s.limiter.Take(window, limit)
}

// organizationWindow names the window of all keys of an organization. Windows of keys are positive numbers.
func organizationWindow(o access.Organization) int64 { return -o.RowID }

// peek looks at the window of a key without counting.
func (s *Server) peek(t *trial) {
	if limit := t.principal.Plan.RateLimitPerMinute; limit != nil {
		t.windowed, t.window = true, s.limiter.Peek(t.principal.Key.Window, *limit)
	}
}

// showWindow says in the headers of whatever the answer will be what is left of the key's window. Where a window refuses
// the request, it says when that window ends.
func (c *call) showWindow() {
	if !c.windowed {
		return
	}
	c.setWindow(c.window, time.Now())
	if c.at == access.CheckRateLimit {
		c.set("Retry-After", strconv.FormatInt(seconds(c.last.Reset), 10))
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
