package check

import (
	"net/netip"
	"time"

	"github.com/keyhook/keyhook/storage/access"
)

// The bounds of what a checker remembers.
const (
	MaxAddresses = maxAddresses
	MaxVerified  = maxVerified // in each of two halves
)

// Fail counts a failure of an address.
func (k *Checker) Fail(client netip.Addr) { k.throttle.failed(client, access.Digest{}) }

// FailWith counts a failure of an address with a credential that was valid before.
func (k *Checker) FailWith(client netip.Addr, d access.Digest) { k.throttle.failed(client, d) }

// Succeed remembers that a credential is valid.
func (k *Checker) Succeed(d access.Digest) { k.throttle.succeeded(d) }

// Verified is how many valid credentials are remembered.
func (k *Checker) Verified() int {
	return len(k.throttle.verified.recent) + len(k.throttle.verified.older)
}

// Blocked reports whether a credential is refused for the failures of the address, unless it is valid, and for how long. A credential
// that succeeded before is not.
func (k *Checker) Blocked(client netip.Addr, d access.Digest) (wait time.Duration, blocked bool) {
	return k.throttle.blocked(client, d)
}

// MayLookUp takes a lookup of a blocked address, and reports whether one was left.
func (k *Checker) MayLookUp(client netip.Addr) bool { return k.throttle.mayLookUp(client) }

// FailedAddresses returns how many addresses have failures that count.
func (k *Checker) FailedAddresses() int {
	k.throttle.mu.Lock()
	defer k.throttle.mu.Unlock()
	return k.throttle.recent.Len()
}
