package share

import (
	"net/netip"
	"sync"
)

// shareOfFree limits an organization: it may reserve this many times the bytes that remain free.
const shareOfFree = 2

// anonymousMemory is the budget for requests without a valid credential, in bytes. Customers have a budget of their own, so these requests
// take nothing from it.
const anonymousMemory = 32 << 20

// Memory is the budget for requests that wait: for their body, or for a slow reader of the response. An organization may reserve at most
// twice the bytes that remain free. So a single organization can get two thirds of the budget, and four organizations can get two ninths
// each. Some memory always remains for the next one. Clients without a valid credential have another budget. There, an address may reserve
// a sixteenth of the bytes that remain free, its /56 an eighth, and its /48 a quarter.
type Memory struct {
	mu        sync.Mutex
	free      int64
	reserved  map[int64]int64 // by organization
	anonymous int64           // bytes that clients without a valid credential have
	clients   held
}

// Holder is who reserves memory: an organization, or the address of a client that has no valid credential.
type Holder struct {
	Organization int64
	Address      netip.Addr
}

// NewMemory returns a budget of that many bytes for organizations.
func NewMemory(budget int64) *Memory {
	return &Memory{free: budget, reserved: map[int64]int64{}, clients: held{}}
}

// Reserve reserves n bytes if n and the expected further bytes are available now. It never waits.
func (m *Memory) Reserve(h Holder, n, expected int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := n + expected
	fits := m.reserved[h.Organization]+all <= shareOfFree*(m.free-all)
	if h.Address.IsValid() {
		free := anonymousMemory - m.anonymous - all
		fits = m.clients.fits(h.Address, all, free/16, free/8, free/4)
	}
	if fits {
		m.take(h, n)
	}
	return fits
}

// Release returns n reserved bytes.
func (m *Memory) Release(h Holder, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.take(h, -n)
}

func (m *Memory) take(h Holder, n int64) {
	if h.Address.IsValid() {
		m.anonymous += n
		m.clients.add(h.Address, n)
		return
	}
	m.free -= n
	if m.reserved[h.Organization] += n; m.reserved[h.Organization] == 0 {
		delete(m.reserved, h.Organization)
	}
}

// Reserved returns how many bytes organizations and clients without a valid credential have.
func (m *Memory) Reserved() (organizations, anonymous int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.reserved {
		organizations += n
	}
	return organizations, m.anonymous
}

// held is how much of a resource clients have, by each of their networks. A client without a valid address has no limit.
type held map[netip.Prefix]int64

// networks returns the address of a client, which is an IPv4 address or the /64 of an IPv6 host, and then the /56 and the /48 around a /64.
// A provider often gives one customer a /56, and a site a /48. They are invalid for an IPv4 address.
func networks(client netip.Addr) [3]netip.Prefix {
	home, _ := client.Prefix(56)
	site, _ := client.Prefix(48)
	return [...]netip.Prefix{Network(client), home, site}
}

// fits reports whether a client may have n more, if these are the limits of its networks.
func (h held) fits(client netip.Addr, n int64, limits ...int64) bool {
	all := networks(client)
	for i, limit := range limits {
		if h[all[i]]+n > limit {
			return false
		}
	}
	return true
}

// add adds n, which is negative when the client returns it. It forgets networks that have nothing.
func (h held) add(client netip.Addr, n int64) {
	for _, network := range networks(client) {
		if !network.IsValid() {
			continue
		}
		if h[network] += n; h[network] == 0 {
			delete(h, network)
		}
	}
}
