package server

import (
	"strconv"
	"time"

	"github.com/keyhook/keyhook/limiter"
)

// setRateHeaders sets the response headers that say how many requests are left in the window of a key: those of draft-ietf-httpapi-ratelimit-headers-10 and their older X- forms. All values are parts of
// one string, which saves allocations in every request.
func (x *exchange) setRateHeaders(r limiter.Result, now time.Time) {
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
	x.set("RateLimit-Policy", text[:policy])
	x.set("RateLimit", text[policy:state])
	x.set("X-RateLimit-Limit", text[state:limit])
	x.set("X-RateLimit-Remaining", text[limit:remaining])
	x.set("X-RateLimit-Reset", text[remaining:])
}

// seconds rounds up, so that a caller who waits that long gets a new window.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
