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

// throttle counts failed authentications per client address: an IPv4 address, or the /64 of an IPv6 host. When an address has used
// up its failures, its credentials are refused without a lookup.
//
// Many callers may share an address, behind a gateway or a proxy that is not declared as trusted. One of them must not lock out
// the others. So a credential that was valid at its last lookup is looked up again; only unknown credentials are refused.
type throttle struct {
	mu        sync.Mutex
	addresses map[netip.Prefix]*list.Element
	recent    *list.List // of *failures; the latest failure comes first
	verified  verifiedDigests
}

type failures struct {
	address netip.Prefix
	bucket  *rate.Limiter
}

func newThrottle() *throttle {
	return &throttle{addresses: map[netip.Prefix]*list.Element{}, recent: list.New()}
}

// blocked reports whether the credential with this digest is refused without a lookup, and for how long.
func (t *throttle) blocked(client netip.Addr, digest access.Digest) (wait time.Duration, blocked bool) {
	address, counted := throttled(client)
	if !counted {
		return 0, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	element, found := t.addresses[address]
	if !found {
		return 0, false
	}
	tokens := element.Value.(*failures).bucket.Tokens()
	if tokens >= 1 || t.verified.has(digest) {
		return 0, false
	}
	return time.Duration((1 - tokens) * float64(failureEvery)), true
}

// failed counts a failure of client. The credential with this digest is no longer verified.
func (t *throttle) failed(client netip.Addr, digest access.Digest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.verified.remove(digest)
	address, counted := throttled(client)
	if !counted {
		return
	}
	element, found := t.addresses[address]
	if !found {
		bucket := rate.NewLimiter(rate.Every(failureEvery), failureBurst)
		element = t.recent.PushFront(&failures{address, bucket})
		t.addresses[address] = element
	}
	t.recent.MoveToFront(element)
	element.Value.(*failures).bucket.Allow()
	if t.recent.Len() > maxAddresses {
		last := t.recent.Back()
		t.recent.Remove(last)
		delete(t.addresses, last.Value.(*failures).address)
	}
}

// succeeded remembers that the credential with this digest is valid.
func (t *throttle) succeeded(digest access.Digest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.verified.add(digest)
}

// count returns how many addresses have failures that count.
func (t *throttle) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.recent.Len()
}

// throttled returns the address whose failures are counted for a client. Failures on loopback and the Unix socket are not
// counted.
func throttled(client netip.Addr) (address netip.Prefix, counted bool) {
	if !client.IsValid() || client.IsLoopback() {
		return netip.Prefix{}, false
	}
	address = share.Network(client)
	return address, address.IsValid()
}

// verifiedDigests is a bounded set of digests in two halves. When the recent half is full, it becomes the older half, and the
// former older half is forgotten. The zero value is empty.
type verifiedDigests struct {
	recent, older map[access.Digest]struct{}
}

func (p *verifiedDigests) has(d access.Digest) bool {
	_, young := p.recent[d]
	_, old := p.older[d]
	return young || old
}

func (p *verifiedDigests) add(d access.Digest) {
	if _, young := p.recent[d]; young {
		return
	}
	if p.recent == nil || len(p.recent) >= maxVerified {
		p.recent, p.older = map[access.Digest]struct{}{}, p.recent
	}
	p.recent[d] = struct{}{}
}

func (p *verifiedDigests) remove(d access.Digest) {
	delete(p.recent, d)
	delete(p.older, d)
}
