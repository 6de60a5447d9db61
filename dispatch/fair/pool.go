// Package fair owns the rules by which payers share what is limited: amounts, turns and the requests of a second. It does not know
// what is shared, who waits, or what a payer is: its values count what they are told.
package fair

// A payer alone may use all of a pool except 1/reserveDivisor. Of the rest, each newcomer gets up to 1/newcomerDivisor.
const (
	reserveDivisor  = 8
	newcomerDivisor = 3
)

// Pool is an amount that payers share.
type Pool struct{ Capacity, Used int }

// Share returns how much a payer that uses mine may use in all. It may take what is free beyond the reserve.
// When less is free, it may take half of what it leaves to others. So a newcomer always finds room, even if the others
// never return theirs. Of 256 slots, one payer leaves 32 free, and so do ten payers. The first newcomer
// then gets 10 at once, the next 7, the next 5.
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
