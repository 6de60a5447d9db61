package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// ErrBlocked says that the policy refuses an address. Every refusal wraps it, also inside the url.Error and net.OpError of a dial.
//
// The text of such an error names the address and its network. It is for logs, and for a customer who wrote that
// address. After a DNS lookup, it would show a customer the network inside.
var ErrBlocked = errors.New("the address is not allowed")

// ErrDenied is the ErrBlocked of an address in Policy.DeniedNetworks.
var ErrDenied = fmt.Errorf("%w by the operator", ErrBlocked)

// Policy says where connections may go. The zero value is the strictest: only the public internet, and only HTTPS.
//
// The first rule that matches an address decides: DeniedNetworks, AllowedNetworks, the reserved networks, the addresses of this machine.
type Policy struct {
	// DeniedNetworks are always refused. Use them for public addresses that lead inside, such as one that a router forwards
	// to this machine. No interface shows such an address. IPv4 networks also cover the IPv6 addresses that embed them.
	DeniedNetworks []netip.Prefix
	// AllowedNetworks are exceptions from the later rules, for receivers on a private network of the operator. An
	// exception may be a network that embeds IPv4 addresses, such as 64:ff9b::/96 of NAT64. It opens all of IPv4 behind
	// it, except denied networks and this machine. An exception for a single address opens that address.
	AllowedNetworks []netip.Prefix
	// AllowHTTP makes CheckURL accept http:// as well as https://. It is for development.
	AllowHTTP bool

	own *ownList // nil: that of this machine
}

// CheckAddr returns nil if a connection to a is allowed, and otherwise an error that wraps ErrBlocked. An IPv4 address
// mapped into IPv6 counts as the IPv4 address, because the system connects to that. An address with a zone is refused
// even in an allowed network, because it names an interface of this machine.
func (p Policy) CheckAddr(a netip.Addr) error {
	reason, blocked := p.refusal(a), ErrBlocked
	switch reason {
	case "":
		return nil
	case deniedReason:
		blocked = ErrDenied
	}
	return fmt.Errorf("%w: %s %s", blocked, a, reason)
}

// deniedReason does not name the network. A customer sees this text, and only the operator may see the list.
const deniedReason = "is in egress.denied_networks"

// refusal returns why a is refused, or "". The text continues a sentence that begins with the address.
func (p Policy) refusal(a netip.Addr) string {
	switch {
	case !a.IsValid():
		return "is not an address"
	case a.Zone() != "":
		return "has a zone, which is an interface of this machine"
	}
	a = a.Unmap()
	inner, embeds := embedded(a)
	switch {
	case contains(p.DeniedNetworks, a), embeds && contains(p.DeniedNetworks, inner):
		return deniedReason
	case contains(p.AllowedNetworks, a):
		isListed := slices.ContainsFunc(p.AllowedNetworks, func(n netip.Prefix) bool { return unmapPrefix(n) == netip.PrefixFrom(a, a.BitLen()) })
		if embeds && p.isOwn(inner) && !contains(p.AllowedNetworks, inner) && !isListed {
			return "leads to " + inner.String() + ", an address of this machine"
		}
		return ""
	}
	for _, n := range reserved {
		if n.prefix.Contains(a) {
			return "belongs to " + n.prefix.String() + ", " + n.name + " (" + n.source + ")"
		}
	}
	if a.Is6() && !globalUnicast.Contains(a) {
		return "is outside of " + globalUnicast.String() + ", the assigned part of IPv6 (RFC 3587)"
	}
	if p.isOwn(a) {
		return "is an address of this machine"
	}
	return ""
}

// contains reports whether one of the networks contains a. The caller has unmapped a.
func contains(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return unmapPrefix(n).Contains(a) })
}

// unmapPrefix turns a network of mapped IPv4 addresses, such as ::ffff:10.0.0.0/104, into the IPv4 network. Unchanged
// it would contain nothing, because addresses are unmapped before they are compared.
func unmapPrefix(n netip.Prefix) netip.Prefix {
	const mapped = 96
	if !n.Addr().Is4In6() || n.Bits() < mapped {
		return n
	}
	return netip.PrefixFrom(n.Addr().Unmap(), n.Bits()-mapped)
}

// Networks whose IPv6 addresses contain an IPv4 address. IPv4-mapped addresses are not listed, because Unmap handles them.
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

// network is a range of forbidden addresses, with the name and the source from its registry.
type network struct {
	prefix netip.Prefix
	name   string
	source string
}

// globalUnicast is the part of IPv6 that IANA has begun to assign
// (https://www.iana.org/assignments/ipv6-address-space). Everything outside it is refused, listed or not.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// reserved contains the special-purpose registries of IANA (https://www.iana.org/assignments/iana-ipv4-special-registry,
// https://www.iana.org/assignments/iana-ipv6-special-registry), multicast, and public numbers that lead inside. A
// narrow network stands before the wider ones that contain it.
//
// It is stricter than the registries. They call some of these networks globally reachable, such as the anycast services
// in 192.0.0.0/24 and 2001::/23. No webhook is received there. IPv6 networks outside globalUnicast need no entry.
var reserved = []network{
	newNetwork("0.0.0.0/8", "this network", "RFC 791"),
	newNetwork("10.0.0.0/8", "private use", "RFC 1918"),
	newNetwork("100.64.0.0/10", "shared address space of carrier-grade NAT", "RFC 6598"),
	newNetwork("127.0.0.0/8", "loopback", "RFC 1122"),
	newNetwork("168.63.129.16/32", "Azure platform services", "learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16"),
	newNetwork("169.254.0.0/16", "link local, where clouds serve their metadata", "RFC 3927"),
	newNetwork("172.16.0.0/12", "private use", "RFC 1918"),
	newNetwork("192.0.0.0/24", "IETF protocol assignments", "RFC 6890"),
	newNetwork("192.0.2.0/24", "documentation", "RFC 5737"),
	newNetwork("192.31.196.0/24", "AS112", "RFC 7535"),
	newNetwork("192.52.193.0/24", "AMT", "RFC 7450"),
	newNetwork("192.88.99.0/24", "6to4 relay anycast", "RFC 7526"),
	newNetwork("192.168.0.0/16", "private use", "RFC 1918"),
	newNetwork("192.175.48.0/24", "AS112", "RFC 7534"),
	newNetwork("198.18.0.0/15", "benchmarking", "RFC 2544"),
	newNetwork("198.51.100.0/24", "documentation", "RFC 5737"),
	newNetwork("203.0.113.0/24", "documentation", "RFC 5737"),
	newNetwork("224.0.0.0/4", "multicast", "RFC 5771"),
	newNetwork("255.255.255.255/32", "limited broadcast", "RFC 919"),
	newNetwork("240.0.0.0/4", "reserved", "RFC 1112"),

	newNetwork("2001::/32", "Teredo", "RFC 4380"),
	newNetwork("2001::/23", "IETF protocol assignments", "RFC 2928"),
	newNetwork("2001:db8::/32", "documentation", "RFC 3849"),
	newNetwork("2002::/16", "6to4", "RFC 3056"),
	newNetwork("2620:4f:8000::/48", "AS112", "RFC 7534"),
	newNetwork("3fff::/20", "documentation", "RFC 9637"),
}

func newNetwork(prefix, name, source string) network {
	return network{netip.MustParsePrefix(prefix), name, source}
}
