package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// ErrBlocked says that the policy refuses an address. Every refusal wraps it, at a dial too, where errors.Is finds it
// inside the url.Error and net.OpError.
//
// The text of an error that wraps it names the address and its network. It is for the owner of a literal address and for
// logs: shown to a customer after a DNS look-up, it would draw a map of the network inside.
var ErrBlocked = errors.New("the address is not allowed")

// ErrDenied is the ErrBlocked of an address in one of Policy.DeniedNetworks.
var ErrDenied = fmt.Errorf("%w by the operator", ErrBlocked)

// Policy says where connections may go. The zero value is the strictest: the public internet, by HTTPS.
//
// The first rule that matches an address decides: DeniedNetworks, AllowedNetworks, the reserved networks, the addresses of
// this machine.
type Policy struct {
	// DeniedNetworks are always refused. They are for public addresses that lead inside, such as the one that a router
	// forwards to this machine, which no interface shows. IPv4 networks also cover the IPv6 addresses that embed them.
	DeniedNetworks []netip.Prefix
	// AllowedNetworks are exceptions from the rules after them: receivers on a private network of the operator's.
	// An exception for a network that embeds IPv4 addresses, such as 64:ff9b::/96 of NAT64, opens all of IPv4 behind it
	// but denied networks and this machine. An exception for a single address opens that address.
	AllowedNetworks []netip.Prefix
	// Own returns the addresses of this machine. It is called for every public address and must be quick. Nil:
	// OwnAddresses.
	Own func() []netip.Addr
	// AllowHTTP lets CheckURL take http:// beside https://. For development.
	AllowHTTP bool
}

// CheckAddr returns nil where a connection to a may be made, and otherwise an error that wraps ErrBlocked. An IPv4 address
// mapped into IPv6 counts as the IPv4 address, which is what the system connects to. An address with a zone is refused
// even inside an allowed network: it names an interface of this machine.
func (p Policy) CheckAddr(a netip.Addr) error {
	reason := p.refusal(a)
	switch {
	case reason == "":
		return nil
	case reason == deniedReason:
		return fmt.Errorf("%w: %s %s", ErrDenied, a, reason)
	}
	return fmt.Errorf("%w: %s %s", ErrBlocked, a, reason)
}

// denied does not name the network: the text reaches the customer who wrote the address, and the list is the operator's.
const deniedReason = "is in egress.denied_networks"

// refusal returns why a is refused, as the end of a sentence that begins with the address, or "".
func (p Policy) refusal(a netip.Addr) string {
	switch {
	case !a.IsValid():
		return "is not an address"
	case a.Zone() != "":
		return "has a zone, which names an interface of this machine"
	}
	a = a.Unmap()
	inner, embeds := embedded(a)
	switch {
	case contains(p.DeniedNetworks, a), embeds && contains(p.DeniedNetworks, inner):
		return deniedReason
	case contains(p.AllowedNetworks, a):
		if embeds && p.isOwn(inner) && !contains(p.AllowedNetworks, inner) && !listsExactly(p.AllowedNetworks, a) {
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
		return "is outside of " + globalUnicast.String() + ", the part of IPv6 that is handed out (RFC 3587)"
	}
	if p.isOwn(a) {
		return "is an address of this machine"
	}
	return ""
}

// names reports whether one of the networks is a alone.
func listsExactly(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return unmapPrefix(n) == netip.PrefixFrom(a, a.BitLen()) })
}

// contains reports whether one of the networks holds a, which is not mapped.
func contains(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return unmapPrefix(n).Contains(a) })
}

// unmapPrefix turns a network that was written as mapped IPv4, ::ffff:10.0.0.0/104, into the IPv4 network that is meant;
// as it stands it would contain nothing, because addresses are unmapped before they are compared.
func unmapPrefix(n netip.Prefix) netip.Prefix {
	const mapped = 96
	if !n.Addr().Is4In6() || n.Bits() < mapped {
		return n
	}
	return netip.PrefixFrom(n.Addr().Unmap(), n.Bits()-mapped)
}
