package check

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/keyhook/keyhook/server/share"
	"github.com/keyhook/keyhook/storage/access"
)

// An address may fail to authenticate failureBurst times, and once more every failureEvery.
const (
	failureBurst = 20
	failureEvery = 3 * time.Second
	maxAddresses = 10_000 // remembered; the one with the oldest failure is forgotten first
	maxVerified  = 10_000 // credentials remembered, in each of two halves
)

// How many lookups a second the addresses that have used up their failures get. One lookup takes about 75 µs.
const (
	blockedLookups    = 500   // each address
	allBlockedLookups = 2_000 // all of them together
)

// throttle counts failed authentications per client address: an IPv4 address, or the /64 of an IPv6 host. When an address has used
// up its failures, every further failure is a refusal that says so.
//
// Many callers may share an address, behind a gateway or a proxy that is not declared as trusted. One of them must not lock out
// the others. So a credential of a blocked address is still looked up, at a limited rate, and it passes if it is valid. From then
// on its lookups have no limit.
type throttle struct {
	mu        sync.Mutex
	addresses map[netip.Prefix]*list.Element
	recent    *list.List    // of *failures; the latest failure comes first
	lookups   *rate.Limiter // of all blocked addresses
	verified  generations[access.Digest, struct{}]
}

type failures struct {
	address netip.Prefix
	bucket  *rate.Limiter
	lookups *rate.Limiter // while the address is blocked
}

func newThrottle() *throttle {
	return &throttle{
		addresses: map[netip.Prefix]*list.Element{}, recent: list.New(), lookups: rate.NewLimiter(allBlockedLookups, allBlockedLookups),
	}
}

// blocked reports whether a client has used up its failures, and for how long. A credential with this digest that was valid is not blocked.
func (t *throttle) blocked(client netip.Addr, digest access.Digest) (wait time.Duration, blocked bool) {
	address := throttled(client)
	if !address.IsValid() {
		return 0, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	element, found := t.addresses[address]
	if !found {
		return 0, false
	}
	tokens := element.Value.(*failures).bucket.Tokens()
	if _, isVerified := t.verified.get(digest); isVerified || tokens >= 1 {
		return 0, false
	}
	return time.Duration((1 - tokens) * float64(failureEvery)), true
}

// mayLookUp takes a lookup of a blocked client. It reports whether one was left.
func (t *throttle) mayLookUp(client netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	element, found := t.addresses[throttled(client)]
	return !found || element.Value.(*failures).lookups.Allow() && t.lookups.Allow()
}

// failed counts a failure of client, and reports whether it had one left. The credential with this digest is no longer verified.
func (t *throttle) failed(client netip.Addr, digest access.Digest) (hadLeft bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.verified.recent, digest)
	delete(t.verified.older, digest)
	address := throttled(client)
	if !address.IsValid() {
		return true
	}
	element, found := t.addresses[address]
	if !found {
		element = t.recent.PushFront(&failures{
			address, rate.NewLimiter(rate.Every(failureEvery), failureBurst), rate.NewLimiter(blockedLookups, blockedLookups),
		})
		t.addresses[address] = element
	}
	t.recent.MoveToFront(element)
	if t.recent.Len() > maxAddresses {
		last := t.recent.Back()
		t.recent.Remove(last)
		delete(t.addresses, last.Value.(*failures).address)
	}
	return element.Value.(*failures).bucket.Allow()
}

// count counts a failure of an address with a credential that has no digest. It refuses an address that has none left.
func (t *throttle) count(c *Run) error {
	if t.failed(c.Address, access.Digest{}) {
		return nil
	}
	c.RetryAfter, _ = t.blocked(c.Address, access.Digest{})
	return errTooManyFailures
}

// takeBack takes back a failure of client that was counted before its outcome was known.
func (t *throttle) takeBack(client netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if element, found := t.addresses[throttled(client)]; found {
		element.Value.(*failures).bucket.AllowN(time.Now(), -1)
	}
}

// succeeded remembers that the credential with this digest is valid.
func (t *throttle) succeeded(digest access.Digest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, isRecent := t.verified.recent[digest]; isRecent {
		return
	}
	if t.verified.recent == nil || len(t.verified.recent) >= maxVerified {
		t.verified.next()
	}
	t.verified.recent[digest] = struct{}{}
}

// throttled returns the address whose failures are counted for a client. It is invalid for loopback and the Unix socket, because failures
// there are not counted.
func throttled(client netip.Addr) netip.Prefix {
	if client.IsLoopback() {
		return netip.Prefix{}
	}
	return share.Network(client)
}

// generations is a map in two halves. The next generation begins with an empty recent half. The recent half becomes the older one, and what
// was not used meanwhile is forgotten. The zero value is empty, and begins with the next generation.
type generations[K comparable, V any] struct{ recent, older map[K]V }

func (g *generations[K, V]) next() { g.recent, g.older = map[K]V{}, g.recent }

func (g *generations[K, V]) get(key K) (value V, found bool) {
	if value, found = g.recent[key]; !found {
		value, found = g.older[key]
	}
	return value, found
}

// DefaultTokenRate is how many requests a second an organization may make with other credentials than API keys.
const DefaultTokenRate = 100

// refillTime is how long an empty bucket takes to be full again. The burst is the rate times this duration.
const refillTime = 2 * time.Second

// tokenRate limits the requests of each organization with access tokens, sessions and tokens of the issuer. API keys have the
// windows of their plan instead.
//
// The next generation of buckets begins when the recent one is older than refillTime. A bucket that was not used for a whole generation is
// full, so forgetting it changes nothing.
type tokenRate struct {
	perSecond int

	mu      sync.Mutex
	buckets generations[int64, *rate.Limiter] // by organization
	since   time.Time                         // when the recent generation began
}

// take counts a request of an organization. If the rate is exceeded, it returns how long to wait.
func (t *tokenRate) take(organization int64) (wait time.Duration, allowed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Sub(t.since) > refillTime {
		t.buckets.next()
		t.since = now
	}
	bucket, found := t.buckets.get(organization)
	if !found {
		bucket = rate.NewLimiter(rate.Limit(t.perSecond), t.perSecond*int(refillTime/time.Second))
	}
	t.buckets.recent[organization] = bucket
	if bucket.AllowN(now, 1) {
		return 0, true
	}
	missing := 1 - bucket.TokensAt(now)
	return time.Duration(missing / float64(t.perSecond) * float64(time.Second)), false
}

// Seconds rounds a wait up to whole seconds, so that a caller who waits that long gets a new window.
func Seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
