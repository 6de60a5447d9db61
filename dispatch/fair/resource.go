// Package fair owns the rules by which payers share what is limited: amounts, turns and the requests of a second. It does not know
// what is shared, who waits, or what a payer is: its values count what they are told.
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

// Wait makes a waiter wait for its turn. If it waits already, it keeps its turn. When the turn comes, the waiter may not need it any more.
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

// A payer alone may use all of a pool except 1/reserveDivisor. Of the rest, each newcomer gets up to 1/newcomerDivisor.
const (
	reserveDivisor  = 8
	newcomerDivisor = 3
)

// Pool is an amount that payers share.
type Pool struct{ Capacity, Used int }

// Share returns how much a payer that uses mine may use in all. It may take what is free beyond the reserve. When less is free,
// it may take half of what it leaves to others. So a newcomer always finds room, even if the others never return theirs. Of 256
// slots, one payer leaves 32 free, and so do ten payers. The first newcomer then gets 10 at once, the next 7, the next 5.
func (p Pool) Share(mine int) int {
	available := max(p.Capacity-p.Used+mine, 0) // not used by others
	return max(available-p.Capacity/reserveDivisor, available/newcomerDivisor)
}

// Allows reports whether a payer that uses mine may use n more. One that uses nothing may always take what is free.
func (p Pool) Allows(mine, n int) bool {
	return p.Used+n <= p.Capacity && (mine == 0 || mine+n <= p.Share(mine))
}

// Ledger is a pool that knows by itself what each payer uses. Use NewLedger.
type Ledger struct {
	Pool
	used map[int64]int
}

// NewLedger makes a ledger. Nothing is used yet.
func NewLedger(capacity int) Ledger { return Ledger{Pool{Capacity: capacity}, map[int64]int{}} }

// UsedBy returns what one payer uses.
func (l *Ledger) UsedBy(payer int64) int { return l.used[payer] }

// Left returns how much more the payer may use.
func (l *Ledger) Left(payer int64) int { return l.Pool.Share(l.used[payer]) - l.used[payer] }

// Allows reports whether the payer may use n more.
func (l *Ledger) Allows(payer int64, n int) bool { return l.Pool.Allows(l.used[payer], n) }

// Charge adds n to what the payer uses.
func (l *Ledger) Charge(payer int64, n int) {
	l.Used += n
	if l.used[payer] += n; l.used[payer] == 0 {
		delete(l.used, payer)
	}
}

// Clear forgets what all payers use.
func (l *Ledger) Clear() {
	l.Used = 0
	clear(l.used)
}
