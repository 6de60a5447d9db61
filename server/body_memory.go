package server

import (
	"runtime"

	"github.com/keyhook/keyhook/server/share"
	"github.com/keyhook/keyhook/storage/fault"
)

// The memory that requests use, in bytes.
const (
	DefaultBodyMemory = 64 << 20

	// MinBodyMemory is the smallest budget. With it, one organization can send the largest body while the others use a
	// quarter of the budget.
	MinBodyMemory = 2 * bodyCost * maxBatchBody

	// bodyCost is the bytes of memory per byte of a body: the body itself, and one copy. The copy is made while the buffer
	// grows, or of the events that are stored and delivered.
	bodyCost = 2

	// requestCost is the memory of a request that waits for its body: headers, goroutine, and the first 16 KiB of the body.
	requestCost = 32 << 10
	paidBody    = requestCost / bodyCost
)

// reservation is the part of the budget that one request holds.
type reservation struct {
	memory *share.Memory
	holder share.Holder // fixed by the first take
	bytes  int64
	body   []byte
}

func (r reservation) release() { r.memory.Release(r.holder, r.bytes) }

// reserve reserves n more bytes until the request ends. expected is how many more bytes the request will need: if these are
// not available now, the request is refused at once.
func (x *exchange) reserve(n, expected int64) error {
	if x.reserved.bytes == 0 {
		x.reserved.holder = share.Holder{Organization: x.organization()}
		if !x.Authenticated && !x.local {
			x.reserved.holder.Address = share.Network(x.client)
		}
	}
	if !x.reserved.memory.Reserve(x.reserved.holder, n, expected) {
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
