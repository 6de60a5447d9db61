package fair

import "container/heap"

// Resource is a shared amount, with the payers whose waiters wait for it. The payer that uses the least goes first. Among equals,
// the one with the oldest last turn goes first. Waiters of one payer take turns. If the first payer may not take more, no other
// may. So a turn costs the same however many wait. It allocates nothing but the list of payers.
type Resource[W any] struct {
	Pool
	waiting accounts[W]
	turns   uint64 // given so far
}

// Account is what one payer uses of a resource, and who waits for it there. The zero value uses nothing. It must not be copied.
type Account[W any] struct {
	used        int
	first, last *Turn[W]
	index       int    // in Resource.waiting, from 1; 0: nobody waits
	lastTurn    uint64 // value of Resource.turns at the last turn
}

// Turn is the place of one waiter in the queue of its payer. The zero value does not wait. It must not be copied.
type Turn[W any] struct {
	waiter W
	waits  bool
	next   *Turn[W]
}

// Waits reports whether the waiter waits.
func (t *Turn[W]) Waits() bool { return t.waits }

// Used returns what the payer uses.
func (a *Account[W]) Used() int { return a.used }

// Charge adds n to what the payer uses.
func (r *Resource[W]) Charge(a *Account[W], n int) {
	r.Used += n
	a.used += n
	if a.index > 0 {
		heap.Fix(&r.waiting, a.index-1)
	}
}

// Wait makes a waiter wait for its turn. If it waits already, it keeps its turn. When the turn comes, the waiter may not need it
// any more.
func (r *Resource[W]) Wait(a *Account[W], t *Turn[W], waiter W) {
	if t.waits {
		return
	}
	*t = Turn[W]{waiter: waiter, waits: true}
	if a.first == nil {
		a.first = t
	} else {
		a.last.next = t
	}
	if a.last = t; a.index == 0 {
		a.lastTurn = r.turns
		heap.Push(&r.waiting, a)
	}
}

// HasNext reports whether somebody waits whose payer may use n more.
func (r *Resource[W]) HasNext(n int) bool {
	return len(r.waiting) > 0 && r.Allows(r.waiting[0].used, n)
}

// Next removes and returns the waiter whose turn it is. It returns the zero value if no waiting payer may use n more.
func (r *Resource[W]) Next(n int) (waiter W) {
	if !r.HasNext(n) {
		return waiter
	}
	a := r.waiting[0]
	t := a.first
	waiter, a.first = t.waiter, t.next
	*t = Turn[W]{}
	r.turns++
	if a.lastTurn = r.turns; a.first == nil {
		heap.Remove(&r.waiting, 0)
	} else {
		heap.Fix(&r.waiting, 0)
	}
	return waiter
}

// accounts is a heap of the payers for which somebody waits.
type accounts[W any] []*Account[W]

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (h accounts[W]) Len() int { return len(h) }
func (h accounts[W]) Less(i, j int) bool {
	if h[i].used != h[j].used {
		return h[i].used < h[j].used
	}
	return h[i].lastTurn < h[j].lastTurn
}
func (h accounts[W]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}
func (h *accounts[W]) Push(x any) {
	a := x.(*Account[W])
	*h = append(*h, a)
	a.index = len(*h)
}
func (h *accounts[W]) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.index = 0
	return a
}
