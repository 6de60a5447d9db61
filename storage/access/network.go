package access

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/keyhook/keyhook/storage/fault"
)

// MaxNetworks is the most networks of a key.
const MaxNetworks = 20

// Networks are the networks from which a key may be used; none means everywhere. In the database they are a text with spaces between them.
type Networks []netip.Prefix

// Allow reports whether an address is in one of the networks, or there is none. The zero value is the address of a caller without one,
// such as one on the local socket: it is in no network.
func (n Networks) Allow(client netip.Addr) bool {
	for _, network := range n {
		if network.Contains(client.Unmap().WithZone("")) {
			return true
		}
	}
	return len(n) == 0
}

// String returns the networks with spaces between them.
func (n Networks) String() string { return strings.Trim(fmt.Sprint([]netip.Prefix(n)), "[]") }

// Texts returns each network as text, and an empty list for none.
func (n Networks) Texts() []string { return append([]string{}, strings.Fields(n.String())...) }

// Scan reads the text of the database.
func (n *Networks) Scan(value any) error {
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("networks are a %T", value)
	}
	*n = nil
	for word := range strings.FieldsSeq(text) {
		network, err := netip.ParsePrefix(word)
		if err != nil {
			return fmt.Errorf("networks: %w", err)
		}
		*n = append(*n, network)
	}
	return nil
}

// ParseNetwork reads a network such as 10.0.0.0/8, or an address, which is the network of that one address. It refuses networks that would
// not match what their author expects: 10.1.2.3/8 would match all of 10.0.0.0/8, and an IPv4 network in IPv6 form would match nothing,
// because addresses are unmapped before they are compared. The error is a fault.Advice with the right form.
func ParseNetwork(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if addr, notAddr := netip.ParseAddr(s); notAddr == nil && addr.Zone() == "" {
		p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	switch {
	case err != nil:
		return p, &fault.Advice{What: fmt.Sprintf("%.80q is not an address or a network", s), Mend: "write an item such as 10.0.0.0/8 or fd00::1"}
	case p.Addr().Is4In6():
		mend := "write the network as IPv4"
		if bits := p.Bits() - 96; bits >= 0 {
			mend = fmt.Sprintf("write %q", netip.PrefixFrom(p.Addr().Unmap(), bits).Masked())
		}
		return p, &fault.Advice{What: fmt.Sprintf("%.80q is an IPv4 network in IPv6 form", s), Mend: mend}
	case p != p.Masked():
		return p, &fault.Advice{
			What: fmt.Sprintf("%.80q has address bits beyond its prefix length", s), Mend: fmt.Sprintf("write %q or %q", p.Masked(), p.Addr()),
		}
	}
	return p, nil
}
