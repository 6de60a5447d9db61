package egress

import "net/netip"

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
