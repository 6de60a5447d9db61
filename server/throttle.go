package server

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/keyhook/keyhook/storage/access"
)

// An address may fail to authenticate failureBurst times at once, and once more every failureEvery.
const (
	failureBurst = 20
	failureEvery = 3 * time.Second
	maxAddresses = 10_000 // remembered; the longest without a failure is forgotten first
	maxVerified  = 10_000 // credentials remembered, in each of two halves
)

// throttle counts failed authentications per client address: an IPv4 address, or the /64 that an IPv6 host owns. While
// an address has used up its failures, what it shows is refused before any look-up.
//
// Many callers may share an address, behind a gateway or a proxy that nobody has declared as trusted. So that one of
// them cannot lock out the others, a credential that was good when it was last seen here is let through to its look-up;
// only strangers wait.
type throttle struct {
	mu        sync.Mutex
	addresses map[netip.Prefix]*list.Element
	recent    *list.List // of *failures, latest first
	verified  verifiedDigests
}

type failures struct {
	address netip.Prefix
	bucket  *rate.Limiter
}

func newThrottle() *throttle {
	return &throttle{addresses: map[netip.Prefix]*list.Element{}, recent: list.New()}
}

// blocked reports whether the credential behind digest is to be refused unseen, and for how long.
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

// failed counts a failure of client. Whatever digest was before, it is good no longer.
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

// proved remembers that the credential behind digest is good.
func (t *throttle) succeeded(digest access.Digest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.verified.add(digest)
}

// throttled returns the address that a client is counted under. Loopback and the Unix socket are not counted.
func throttled(client netip.Addr) (address netip.Prefix, counted bool) {
	if !client.IsValid() || client.IsLoopback() {
		return netip.Prefix{}, false
	}
	address = network(client)
	return address, address.IsValid()
}

// network returns what one client owns at least: an IPv4 address, or the /64 of an IPv6 address.
func network(client netip.Addr) netip.Prefix {
	bits := 64
	if client.Is4() {
		bits = 32
	}
	address, _ := client.Prefix(bits) // the zero value where client is none
	return address
}

// proven is a bounded set of digests in two halves: when the young one is full, it becomes the old one, and what was in
// the old one and not seen since is forgotten. The zero value is empty.
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
