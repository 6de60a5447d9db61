package server

import (
	"net/netip"
	"runtime"
	"sync"

	"github.com/keyhook/keyhook/storage/fault"
)

// The memory that requests use, in bytes.
const (
	DefaultBodyMemory = 64 << 20

	// MinBodyMemory is the smallest budget. With it, one organization can send the largest body while the others use a
	// quarter of the budget.
	MinBodyMemory = 2 * bodyCost * maxBatchBody

	// shareOfFree limits an organization: it may hold this many times the bytes that remain free.
	shareOfFree = 2

	// bodyCost is the bytes of memory per byte of a body: the body itself, and one copy. The copy is made while the buffer
	// grows, or of the events that are stored and delivered.
	bodyCost = 2

	// requestCost is the memory of a request that waits for its body: headers, goroutine, and the first 16 KiB of the body.
	requestCost = 32 << 10
	paidBody    = requestCost / bodyCost
)

// memory is the budget for request bodies and for large responses that wait for a slow reader. An organization may hold at
// most twice the bytes that remain free. So a single organization gets two thirds of the budget, four greedy ones get two
// ninths each, and some memory always remains for the next one.
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

// take reserves n bytes if n and the expected further bytes are available now. It never waits.
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

// giveBack returns n bytes that take has reserved.
func (m *memory) giveBack(h holder, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free += n
	if m.held[h] -= n; m.held[h] == 0 {
		delete(m.held, h)
	}
}

// reservation is the part of the budget that one request holds.
type reservation struct {
	memory *memory
	holder holder // fixed by the first take
	bytes  int64
	body   []byte
}

func (r reservation) release() { r.memory.giveBack(r.holder, r.bytes) }

// reserve reserves n more bytes until the request ends. expected is how many more bytes the request will need: if these are
// not available now, the request is refused at once.
func (x *exchange) reserve(n, expected int64) error {
	if x.reserved.bytes == 0 {
		x.reserved.holder = holder{organization: x.organization()}
		if !x.authenticated && !x.local {
			x.reserved.holder.address = network(x.client)
		}
	}
	if !x.reserved.memory.take(x.reserved.holder, n, expected) {
		x.set("Retry-After", "2")
		return errMemory
	}
	x.reserved.bytes += n
	return nil
}

var errMemory = fault.New(fault.Unavailable, "body_memory_exhausted",
	"Requests of this organization use all the memory that it may use at the moment; send smaller batches, send fewer at a time, or try again later.")

// release returns the memory of the request. If the context of the request ended first, the writer may still read the body.
// In that case the memory is returned when the garbage collector frees the body.
func (x *exchange) release() {
	r := x.reserved
	x.reserved = reservation{memory: r.memory}
	if r.bytes == 0 {
		return
	}
	if len(r.body) > 0 && x.request.Context().Err() != nil {
		first := &r.body[0]
		r.body = nil
		runtime.AddCleanup(first, reservation.release, r)
		return
	}
	r.release()
}
