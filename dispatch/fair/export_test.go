package fair

// Payers returns how many payers the ledger remembers.
func (l *Ledger) Payers() int { return len(l.used) }
