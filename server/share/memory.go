package share

import (
	"net/netip"
	"sync"
)

// shareOfFree limits an organization: it may reserve this many times the bytes that remain free.
const shareOfFree = 2

// Memory is the budget for request bodies and for large responses that wait for a slow reader. An organization may reserve at
// most twice the bytes that remain free. So a single organization can get two thirds of the budget, and four organizations can
// get two ninths each. Some memory always remains for the next one.
type Memory struct {
	mu       sync.Mutex
	free     int64
	reserved map[Holder]int64
}

// Holder is who reserves memory: an organization, or the address of a client that signs in and has no credential yet.
type Holder struct {
	Organization int64
	Address      netip.Prefix
}

// NewMemory returns a budget of that many bytes.
func NewMemory(budget int64) *Memory { return &Memory{free: budget, reserved: map[Holder]int64{}} }

// Reserve reserves n bytes if n and the expected further bytes are available now. It never waits.
func (m *Memory) Reserve(h Holder, n, expected int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if all := n + expected; m.reserved[h]+all > shareOfFree*(m.free-all) {
		return false
	}
	m.reserved[h] += n
	m.free -= n
	return true
}

// Release returns n reserved bytes.
func (m *Memory) Release(h Holder, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free += n
	if m.reserved[h] -= n; m.reserved[h] == 0 {
		delete(m.reserved, h)
	}
}

// Free returns how many bytes are not reserved.
func (m *Memory) Free() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.free
}
