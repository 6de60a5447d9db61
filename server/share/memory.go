package share

import (
	"net/netip"
	"sync"
)

// shareOfFree limits an organization: it may reserve this many times the bytes that remain free.
const shareOfFree = 2

// The memory for requests without a valid credential, in bytes. Customers have a budget of their own, so these requests take nothing
// from it.
const (
	anonymousMemory  = 32 << 20
	memoryPerAddress = 4 << 20
)

// Memory is the budget for requests that wait: for their body, or for a slow reader of the response. An organization may reserve at
// most twice the bytes that remain free. So a single organization can get two thirds of the budget, and four organizations can
// get two ninths each. Some memory always remains for the next one. Clients without a valid credential have another, fixed budget.
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
		fits = m.anonymous+all <= anonymousMemory && m.clients.fits(h.Address, all, memoryPerAddress)
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

// site returns the /56 of an IPv6 address. It is invalid for any other address, which has fewer bits.
func site(client netip.Addr) netip.Prefix {
	network, _ := client.Prefix(56)
	return network
}
