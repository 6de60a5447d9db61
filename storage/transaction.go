package storage

import (
	"context"

	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// tx is the transaction that the writer runs, and what the writer remembers from one transaction to the next.
type tx struct {
	*sqlite.Tx

	organizations map[int64]string // row id → public id, neither of which ever changes
	cache         subscriptionCache
	attemptCounts map[minuteOf]*webhook.AttemptCounts // to be written at the end of the transaction
	news          healthNews
	quotas        quotas
}

func newTx() *tx {
	return &tx{
		organizations: map[int64]string{},
		cache:         subscriptionCache{subscribers: map[int64]*subscriber{}, matching: map[typeOfOrganization][]int64{}},
		attemptCounts: map[minuteOf]*webhook.AttemptCounts{},
		quotas:        newQuotas(),
	}
}

// inTx makes a job of the writer of a function that wants what the writer remembers.
func (s *Store) inTx(fn func(*tx) error) func(*sqlite.Tx) error {
	return func(t *sqlite.Tx) error { return fn(s.with(t)) }
}

// with returns a transaction with what the writer remembers.
func (s *Store) with(t *sqlite.Tx) *tx {
	s.tx.Tx = t
	return s.tx
}

// rolledBack forgets what was read in a transaction.
func (t *tx) rolledBack() {
	clear(t.organizations) // after a rollback, SQLite uses the row id of an insertion again
	t.cache.forget()
	clear(t.attemptCounts)
	t.quotas.forgetAll()
}

// writeCounts writes what the jobs of the transaction have counted.
func (t *tx) writeCounts() error {
	if err := t.writeAttemptCounts(); err != nil {
		return err
	}
	return t.writeStored()
}

// organization returns the public id of an organization.
func (t *tx) organization(row int64) (string, error) {
	if id, ok := t.organizations[row]; ok {
		return id, nil
	}
	var id string
	if err := t.Get(&id, "SELECT public_id FROM organizations WHERE id = ?", row); err != nil {
		return "", sqlite.Missing(err, "organization")
	}
	t.organizations[row] = id
	return id, nil
}

// forgetOrganization drops what is remembered of an organization that the transaction deletes.
func (t *tx) forgetOrganization(row int64) {
	delete(t.organizations, row)
	t.quotas.remove(row)
}

// alone runs fn in a transaction of its own, before Run does.
func (s *Store) alone(fn func(*tx) error) error { return s.file.Alone(s.inTx(fn)) }

// change runs fn in a transaction as work of Keyhook itself: deliveries, upkeep, retention. For what a customer asks for, use
// workFor. See sqlite.File.Write.
func (s *Store) change(ctx context.Context, fn func(*tx) error) error {
	return work{store: s}.change(ctx, fn)
}

// work says for which organization a job is done and what it is expected to cost.
type work struct {
	store *Store
	sqlite.Work
}

// workFor is work for an organization.
func (s *Store) workFor(organization int64) work {
	return work{store: s, Work: sqlite.Work{Payer: organization}}
}

// first is work that goes before all other work, because it withdraws rights: until it is done, someone may do what they
// must not do any more.
func (w work) first() work {
	w.Urgent = true
	return w
}

// rows is work that writes about n rows.
func (w work) rows(n int) work {
	w.Cost = n
	return w
}

// measured is work whose cost the writer asks for.
func (w work) measured(measure func(*tx) (int, error)) work {
	w.Measure = func(t *sqlite.Tx) (cost int, err error) {
		err = w.store.inTx(func(t *tx) error {
			cost, err = measure(t)
			return err
		})(t)
		return cost, err
	}
	return w
}

// change is Store.change for this work.
func (w work) change(ctx context.Context, fn func(*tx) error) error {
	return w.store.file.Write(ctx, w.Work, w.store.inTx(fn))
}

// changer runs a function in a transaction: a Store does it as work of its own, work for a customer.
type changer interface {
	change(ctx context.Context, fn func(*tx) error) error
}

// returning is change for a function that makes something; see sqlite.Returning.
func returning[T any](ctx context.Context, c changer, fn func(*tx) (T, error)) (T, error) {
	return sqlite.Returning(func(fn func(*tx) error) error { return c.change(ctx, fn) }, fn)
}
