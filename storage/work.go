package storage

import "context"

// work says for which customer a job is done and what it is expected to cost. The writer shares its time by that. The
// zero value is work of Keyhook itself: deliveries, upkeep, retention.
type work struct {
	store        *Store
	organization int64 // row id of the customer who pays for it; 0 is Keyhook itself
	cost         int   // rows that it is expected to write; 0 is usualCost
	urgent       bool  // it withdraws rights, so it goes first

	// measure returns the cost where only the writer can know it. It must not write.
	measure func(*tx) (int, error)
}

// usualCost is what a job is expected to cost that does not say: a row or two, and its line in the audit log.
const usualCost = 8

// of is work for an organization.
func (s *Store) of(organization int64) work { return work{store: s, organization: organization} }

// first is work that goes before all other work, because it withdraws rights: until it is done, someone may do what they
// must not do any more.
func (w work) first() work {
	w.urgent = true
	return w
}

// rows is work that writes about n rows.
func (w work) rows(n int) work {
	w.cost = n
	return w
}

// measured is work whose cost the writer asks for.
func (w work) measured(measure func(*tx) (int, error)) work {
	w.measure = measure
	return w
}

// change is Store.change for this work.
func (w work) change(ctx context.Context, fn func(*tx) error) error {
	return unavailable(w.store.enqueue(ctx, w, fn))
}

// changer runs a function in a transaction: a Store does it as work of its own, work for a customer.
type changer interface {
	change(ctx context.Context, fn func(*tx) error) error
}
