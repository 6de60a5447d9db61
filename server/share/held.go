package share

import "net/netip"

// networksOfSite is how many times the limit of one address a whole /56 may have. A provider often gives one customer a /56, which is
// 256 networks of /64.
const networksOfSite = 4

// held is how much of a resource clients have: by address, which is an IPv4 address or the /64 of an IPv6 host, and also by the /56.
// A client without a valid address has no limit.
type held map[netip.Prefix]int64

// fits reports whether a client may have n more, if limit is the limit of one address.
func (h held) fits(client netip.Addr, n, limit int64) bool {
	return h[Network(client)]+n <= limit && h[site(client)]+n <= networksOfSite*limit
}

// add adds n, which is negative when the client returns it. It forgets networks that have nothing.
func (h held) add(client netip.Addr, n int64) {
	for _, network := range [...]netip.Prefix{Network(client), site(client)} {
		if !network.IsValid() {
			continue
		}
		if h[network] += n; h[network] == 0 {
			delete(h, network)
		}
	}
}

// site returns the /56 of an IPv6 address. It is invalid for any other address.
func site(client netip.Addr) netip.Prefix {
	if !client.Is6() {
		return netip.Prefix{}
	}
	network, _ := client.Prefix(56) // a valid IPv6 address has one
	return network
}
