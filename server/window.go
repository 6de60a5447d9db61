package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/keyhook/keyhook/limiter"
	"github.com/keyhook/keyhook/storage/fault"
)

// take counts the request in the window of its key, under the limit of the key's own organization, and says so in the
// headers of whatever the answer will be. It is called once per request.
func (s *Server) take(c *call) error {
	limit := c.principal.Plan.RateLimitPerMinute
	if limit == nil {
		return nil
	}
	result := s.limiter.Take(c.principal.Key.Window, *limit)
	writeWindow(c.Header(), result, time.Now())
	if result.Allowed {
		return nil
	}
	c.Header()["Retry-After"] = []string{strconv.FormatInt(seconds(result.Reset), 10)}
	return fault.New(fault.Limited, "rate_limited", "The key's limit of %d requests a minute is used up.", *limit)
}

// peek shows the window of a key in the headers without counting.
func (s *Server) peek(c *call) {
	if limit := c.principal.Plan.RateLimitPerMinute; limit != nil {
		writeWindow(c.Header(), s.limiter.Peek(c.principal.Key.Window, *limit), time.Now())
	}
}

// writeWindow sets the headers of draft-ietf-httpapi-ratelimit-headers-10 and their older kin, spelt as documented: a
// canonical spelling would be "Ratelimit-Policy". All values are cut from one string, because these lines are on the path
// of every request.
func writeWindow(h http.Header, r limiter.Result, now time.Time) {
	left := seconds(r.Reset)
	var buffer [160]byte
	b := buffer[:0]
	var ends [5]int
	b = append(b, `"plan";q=`...)
	b = strconv.AppendInt(b, r.Limit, 10)
	b = append(b, `;w=60`...)
	ends[0] = len(b)
	b = append(b, `"plan";r=`...)
	b = strconv.AppendInt(b, r.Remaining, 10)
	b = append(b, `;t=`...)
	b = strconv.AppendInt(b, left, 10)
	ends[1] = len(b)
	b = strconv.AppendInt(b, r.Limit, 10)
	ends[2] = len(b)
	b = strconv.AppendInt(b, r.Remaining, 10)
	ends[3] = len(b)
	b = strconv.AppendInt(b, now.Add(r.Reset+time.Second-1).Unix(), 10)
	ends[4] = len(b)

	text := string(b)
	values := new([5]string)
	start := 0
	for i, name := range [5]string{
		"RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
	} {
		values[i] = text[start:ends[i]]
		h[name] = values[i : i+1 : i+1]
		start = ends[i]
	}
}

// seconds rounds up: a caller who waits that long finds a new window.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
