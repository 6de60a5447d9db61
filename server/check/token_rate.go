package check

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// DefaultTokenRate is how many requests a second an organization may make with other credentials than API keys.
const DefaultTokenRate = 100

// refillTime is how long an empty bucket takes to be full again. The burst is the rate times this duration.
const refillTime = 2 * time.Second

// tokenRate limits the requests of each organization with access tokens, sessions and tokens of the issuer. API keys have the
// windows of their plan instead.
//
// It has two generations of buckets. When the recent one is older than refillTime, it becomes the older one. A bucket that was not
// used for a whole generation is full, so forgetting it changes nothing.
type tokenRate struct {
	perSecond int

	mu            sync.Mutex
	recent, older map[int64]*rate.Limiter // by organization
	recentSince   time.Time               // when the recent generation began
}

func newTokenRate(perSecond int) *tokenRate {
	return &tokenRate{perSecond: perSecond, recent: map[int64]*rate.Limiter{}, recentSince: time.Now()}
}

// take counts a request of an organization. If the rate is exceeded, it returns how long to wait.
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
