package server

import (
	"net/netip"
	"runtime"
	"sync"

	"github.com/keyhook/keyhook/storage/fault"
)

// What a request costs in memory.
const (
	DefaultBodyMemory = 64 << 20

	// MinBodyMemory lets one organization send the largest body while the others hold a quarter of the budget.
	MinBodyMemory = 2 * bodyCost * maxBatchBody

	// share is how many times what remains free an organization may hold.
	shareOfFree = 2

	// bodyCost is how many bytes of memory one byte of a body takes: the body itself, and either the copy that is made
	// while its buffer grows or the copy of its events that is stored and delivered.
	bodyCost = 2

	// requestCost pays for a request that waits for its body: its headers, its goroutine, and the first 16 KiB of the body.
	requestCost = 32 << 10
	paidBody    = requestCost / bodyCost
)

// memory is the budget for bodies that arrive and for large answers that wait for a slow reader. An organization may hold
// twice what remains free. So one alone gets two thirds, four that take what they can get two ninths each, and there is
// always a rest for the next one.
type memory struct {
	mu   sync.Mutex
	free int64
	held map[holder]int64
}

// holder is an organization, or the address of a caller who signs in and has no credential yet.
type holder struct {
	organization int64
	address      netip.Prefix
}

func newMemory(budget int64) *memory { return &memory{free: budget, held: map[holder]int64{}} }

// take reserves n bytes, if n and as many more as are expected can be had now. It never waits.
func (m *memory) take(h holder, n, expected int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if all := n + expected; m.held[h]+all > shareOfFree*(m.free-all) {
		return false
	}
	m.held[h] += n
	m.free -= n
	return true
}

// give returns n bytes that take has reserved.
func (m *memory) giveBack(h holder, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free += n
	if m.held[h] -= n; m.held[h] == 0 {
		delete(m.held, h)
	}
}

// reservation is what one request holds of the budget.
type reservation struct {
	memory *memory
	holder holder // fixed by the first take
	bytes  int64
	body   []byte
}

func (r reservation) release() { r.memory.giveBack(r.holder, r.bytes) }

// reserve takes n bytes more for the request, until it has ended. expected says how many more it will ask for: where they
// cannot be had now, it need not begin.
func (c *call) reserve(n, expected int64) error {
	if c.reserved.bytes == 0 {
		c.reserved.holder = holder{organization: c.organization()}
		if !c.authenticated && !c.local {
			c.reserved.holder.address = network(c.client)
		}
	}
	if !c.reserved.memory.take(c.reserved.holder, n, expected) {
		c.set("Retry-After", "2")
		return errMemory
	}
	c.reserved.bytes += n
	return nil
}

var errMemory = fault.New(fault.Unavailable, "body_memory_exhausted",
	"Requests of this organization hold as much memory as it may use at the moment; send smaller batches, fewer at a time, or try again later.")

// release gives back what the request holds. If its context ended first, the writer may still need the body: then the
// memory is given back when the garbage collector frees the body.
func (c *call) release() {
	r := c.reserved
	c.reserved = reservation{memory: r.memory}
	if r.bytes == 0 {
		return
	}
	if len(r.body) > 0 && c.request.Context().Err() != nil {
		first := &r.body[0]
		r.body = nil
		runtime.AddCleanup(first, reservation.release, r)
		return
	}
	r.release()
}
