package egress_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"code.dny.dev/ssrf"

	"github.com/keyhook/keyhook/dispatch/egress"
)

// The results agree with code.dny.dev/ssrf, whose tables are generated from IANA's registries, with two exceptions:
//
//   - 168.63.129.16, Azure's platform services: a public number in no registry; refused here.
//   - IPv4 mapped into IPv6: all refused there; treated as the IPv4 address here.
func TestAgainstOracle(t *testing.T) {
	t.Parallel()
	oracle := ssrf.New(ssrf.WithAnyPort())
	azure := netip.MustParseAddr("168.63.129.16")
	compare := func(a netip.Addr) {
		if !a.IsValid() || a == azure || a.Is4In6() {
			return
		}
		ours := (egress.Policy{}).CheckAddr(a)
		theirs := oracle.SafeAddrPort(netip.AddrPortFrom(a, 443))
		if (ours == nil) != (theirs == nil) {
			t.Errorf("%s: %v; the oracle: %v", a, ours, theirs)
		}
	}

	// Both sides of every edge of every network that either of them knows, and one address inside.
	edges := append(append(networks("2000::/3", "::/96", "fc00::/7", "fe80::/10", "ff00::/8", "64:ff9b::/96", "168.63.129.16/32"),
		ssrf.IPv4DeniedPrefixes...), ssrf.IPv6DeniedPrefixes...)
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range edges {
		first, last := n.Masked().Addr(), lastOf(n)
		for _, a := range []netip.Addr{first.Prev(), first, first.Next(), last.Prev(), last, last.Next()} {
			compare(a)
		}
		for range 100 {
			compare(randomAddress(n, random))
		}
	}
	for range 100_000 {
		compare(randomAddress(netip.MustParsePrefix("0.0.0.0/0"), random))
		compare(randomAddress(netip.MustParsePrefix("::/0"), random))
		compare(randomAddress(netip.MustParsePrefix("2000::/3"), random))
		compare(randomAddress(netip.MustParsePrefix("2001::/16"), random))
	}
}

// randomAddress returns a random address of a network.
func randomAddress(n netip.Prefix, random *rand.Rand) netip.Addr {
	return setHostBits(n, func() byte { return byte(random.Uint32()) })
}

func lastOf(n netip.Prefix) netip.Addr { return setHostBits(n, func() byte { return 0xff }) }

// setHostBits sets the host bits of a network's address.
func setHostBits(n netip.Prefix, next func() byte) netip.Addr {
	b := n.Masked().Addr().AsSlice()
	for i := range b {
		host := byte(0xff)
		if fixed := n.Bits() - 8*i; fixed > 0 {
			host = byte(uint(0xff) >> min(fixed, 8))
		}
		b[i] |= next() & host
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
