package check

import (
	"net/netip"

	"github.com/keyhook/keyhook/storage/access"
)

// The bounds of what a checker remembers.
const (
	MaxAddresses = maxAddresses
	MaxVerified  = maxVerified // in each of two halves
)

// Fail counts a failure of an address.
func (k *Checker) Fail(client netip.Addr) { k.throttle.failed(client, access.Digest{}) }

// Succeed remembers that a credential is valid.
func (k *Checker) Succeed(d access.Digest) { k.throttle.succeeded(d) }

// Verified is how many valid credentials are remembered.
func (k *Checker) Verified() int {
	return len(k.throttle.verified.recent) + len(k.throttle.verified.older)
}
