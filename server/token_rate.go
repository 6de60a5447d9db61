package server

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// DefaultTokenRate is how many requests a second an organization may make with credentials other than API keys.
const DefaultTokenRate = 100

// refill is how long an unused bucket takes to be full again: the burst is what comes in that many seconds.
const refillTime = 2 * time.Second

// tokenRate limits, for each organization, the requests by access token, session and token of the issuer. Keys have the
// windows of their plan.
//
// It has two generations of buckets. When the young one is older than refill, it becomes the old one. A bucket that was
// not used for a whole generation is full, so forgetting it changes nothing.
type tokenRate struct {
	perSecond int

	mu            sync.Mutex
	recent, older map[int64]*rate.Limiter // by organization
	recentSince   time.Time               // when young began
}

func newTokenRate(perSecond int) *tokenRate {
	return &tokenRate{perSecond: perSecond, recent: map[int64]*rate.Limiter{}, recentSince: time.Now()}
}

// take counts a request of an organization. Where it is one too many, it returns how long to wait.
func (t *tokenRate) take(organization int64) (wait time.Duration, allowed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Sub(t.recentSince) > refillTime {
		t.recent, t.older, t.recentSince = map[int64]*rate.Limiter{}, t.recent, now
	}
	bucket, found := t.recent[organization]
	if !found {
		if bucket, found = t.older[organization]; !found {
			bucket = rate.NewLimiter(rate.Limit(t.perSecond), t.perSecond*int(refillTime/time.Second))
		}
		t.recent[organization] = bucket
	}
	if bucket.AllowN(now, 1) {
		return 0, true
	}
	missing := 1 - bucket.TokensAt(now)
	return time.Duration(missing / float64(t.perSecond) * float64(time.Second)), false
}
