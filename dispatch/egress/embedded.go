package egress

import "net/netip"

// Networks whose IPv6 addresses contain an IPv4 address. IPv4-mapped addresses are not listed, because Unmap handles
// them.
var (
	compatible = netip.MustParsePrefix("::/96")           // RFC 4291, section 2.5.5.1
	translated = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 2765
	nat64      = netip.MustParsePrefix("64:ff9b::/96")    // RFC 8215; with the usual length of 96
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")  // RFC 8215; with the usual length of 96
	sixToFour  = netip.MustParsePrefix("2002::/16")       // RFC 3056
	teredo     = netip.MustParsePrefix("2001::/32")       // RFC 4380
)

// embedded returns the IPv4 address that an IPv6 address leads to through a transition mechanism.
func embedded(a netip.Addr) (netip.Addr, bool) {
	b := a.As16()
	switch {
	case compatible.Contains(a), translated.Contains(a), nat64.Contains(a), nat64Local.Contains(a):
		return netip.AddrFrom4([4]byte(b[12:])), true
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case teredo.Contains(a): // the client's address with every bit inverted
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}), true
	}
	return netip.Addr{}, false
}
