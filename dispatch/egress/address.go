package egress

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrBlocked says that the policy refuses an address. Every refusal wraps it, at a dial too, where errors.Is finds it
// inside the url.Error and net.OpError.
//
// The text of an error that wraps it names the address and its network. It is for the owner of a literal address and for
// logs: shown to a customer after a DNS look-up, it would draw a map of the network inside.
var ErrBlocked = errors.New("the address is not allowed")

// Policy says where connections may go. The zero value is the strictest: the public internet, by HTTPS.
type Policy struct {
	// AllowedNetworks are exceptions, checked before all else: receivers on a private network of the operator's.
	// An exception for a network that embeds IPv4 addresses, such as 64:ff9b::/96 of NAT64, opens all of IPv4 behind it.
	AllowedNetworks []netip.Prefix
	// AllowHTTP lets CheckURL take http:// beside https://. For development.
	AllowHTTP bool
}

// CheckAddr returns nil where a connection to a may be made, and otherwise an error that wraps ErrBlocked. An IPv4 address
// mapped into IPv6 counts as the IPv4 address, which is what the system connects to. An address with a zone is refused
// even inside an allowed network: it names an interface of this machine.
func (p Policy) CheckAddr(a netip.Addr) error {
	reason := p.refusal(a)
	if reason == "" {
		return nil
	}
	return fmt.Errorf("%w: %s %s", ErrBlocked, a, reason)
}

// refusal returns why a is refused, as the end of a sentence that begins with the address, or "".
func (p Policy) refusal(a netip.Addr) string {
	switch {
	case !a.IsValid():
		return "is not an address"
	case a.Zone() != "":
		return "has a zone, which names an interface of this machine"
	}
	a = a.Unmap()
	for _, allowed := range p.AllowedNetworks {
		if unmapPrefix(allowed).Contains(a) {
			return ""
		}
	}
	for _, n := range reserved {
		if n.prefix.Contains(a) {
			return "belongs to " + n.prefix.String() + ", " + n.name + " (" + n.source + ")"
		}
	}
	if a.Is6() && !globalUnicast.Contains(a) {
		return "is outside of " + globalUnicast.String() + ", the part of IPv6 that is handed out (RFC 3587)"
	}
	return ""
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
