package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/keyhook/keyhook/storage/fanout"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// tx is a transaction of the writer, with what the writer remembers from one transaction to the next.
type tx struct {
	*sqlite.Tx

	organizations     map[int64]string // public ids by row id; neither ever changes
	fanout            *fanout.Cache
	queueHold         *webhook.Hold // as in the file, if holdIsRead
	holdIsRead        bool
	attemptCounts     map[minuteKey]*webhook.AttemptCounts // written at the end of the transaction
	quotas            *quota.Quotas
	sending           map[int64]sendingDelivery // deliveries in progress, by row id; others must be read
	unwantedResponses map[int64]struct{}        // deliveries in progress whose next response is not stored; see retention.Hooks
	places            []place                   // that this transaction took
	keptPlaces        int                       // how many of them earlier writes of this transaction took
	newRows           newRows                   // to write before the next statement
	created           *createdDeliveries        // to announce together after the commit; nil if there are none
}

func newTx(probedEvery time.Duration, log *slog.Logger) *tx {
	return &tx{
		organizations:     map[int64]string{},
		fanout:            fanout.New(probedEvery, log),
		attemptCounts:     map[minuteKey]*webhook.AttemptCounts{},
		quotas:            quota.New(),
		sending:           map[int64]sendingDelivery{},
		unwantedResponses: map[int64]struct{}{},
	}
}

// inTx turns a function of a tx into a job of the engine.
func (q *Queue) inTx(fn func(*tx) error) func(*sqlite.Tx) error {
	return func(t *sqlite.Tx) error { return fn(q.with(t)) }
}

// with returns a transaction with what the writer remembers.
func (q *Queue) with(t *sqlite.Tx) *tx {
	q.tx.Tx = t
	return q.tx
}

// forget forgets everything that the undone writes may have changed.
func (t *tx) forget() {
	clear(t.organizations) // after a rollback, SQLite uses the row id of an insertion again
	t.fanout.Invalidate()
	t.holdIsRead = false
	clear(t.attemptCounts)
	t.quotas.Reset()
	clear(t.sending)
	t.newRows.forget()
	t.created = nil
}

// flush writes the counts of the writes so far. What the next write announces can then be taken back alone.
func (t *tx) flush() error {
	t.created, t.keptPlaces = nil, len(t.places)
	if err := t.writeAttemptCounts(); err != nil {
		return err
	}
	return t.quotas.Write(t.Tx)
}

// organizationID returns the public id of an organization.
func (t *tx) organizationID(row int64) (string, error) {
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

// forgetOrganization forgets an organization that the transaction deletes.
func (t *tx) forgetOrganization(row int64) {
	delete(t.organizations, row)
	t.quotas.Remove(row)
}

// changeBeforeRun runs fn in a transaction of its own. Run must not have been called.
func (q *Queue) changeBeforeRun(fn func(*tx) error) error { return q.file.Alone(q.inTx(fn)) }

// change runs fn in a transaction as work of Keyhook itself: deliveries, upkeep, retention. For requests of customers,
// use workFor. See sqlite.File.Write.
func (q *Queue) change(ctx context.Context, fn func(*tx) error) error {
	return work{queue: q}.change(ctx, fn)
}

// Transact runs fn in one transaction: what fn reads and writes with the context that it gets belongs to it. If fn returns an error,
// nothing was written. payer is the row id of the organization that pays for about that many rows; see sqlite.File.Transact.
func (s *Store) Transact(ctx context.Context, payer int64, rows int, fn func(context.Context) error) error {
	return s.file.Transact(ctx, sqlite.Work{Payer: payer, Cost: rows}, fn)
}

// work is a job's organization and expected cost.
type work struct {
	queue *Queue
	sqlite.Work
}

// workFor is work for an organization.
func (q *Queue) workFor(organization int64) work {
	return work{queue: q, Work: sqlite.Work{Payer: organization}}
}

// first marks work that withdraws rights. It goes before all other work: until it is done, a caller can do what is no
// longer allowed.
func (w work) first() work {
	w.Urgent = true
	return w
}

// onFullDisk says that the work may use the reserve of a full disk.
func (w work) onFullDisk() work {
	w.Reserve = true
	return w
}

// rows sets the expected number of rows.
func (w work) rows(n int) work {
	w.Cost = n
	return w
}

// whole says that only a failure of the file makes the work fail after its first change; see sqlite.Work.
func (w work) whole() work {
	w.Whole = true
	return w
}

// estimated sets a function that returns the cost.
func (w work) estimated(measure func(*tx) (int, error)) work {
	w.Measure = func(t *sqlite.Tx) (cost int, err error) {
		err = w.queue.inTx(func(t *tx) error {
			cost, err = measure(t)
			return err
		})(t)
		return cost, err
	}
	return w
}

// change is Queue.change for this work.
func (w work) change(ctx context.Context, fn func(*tx) error) error {
	return w.queue.file.Write(ctx, w.Work, w.queue.inTx(fn))
}

// changer runs a function in a transaction. A Queue runs it as its own work, and a work value for a customer.
type changer interface {
	change(ctx context.Context, fn func(*tx) error) error
}

// returning is change for a function that makes something; see sqlite.Returning.
func returning[T any](ctx context.Context, c changer, fn func(*tx) (T, error)) (T, error) {
	return sqlite.Returning(func(fn func(*tx) error) error { return c.change(ctx, fn) }, fn)
}

// instanceValue returns the value of a row of table instance, or nil if there is none.
func instanceValue(t *tx, name string) (value []byte, err error) {
	err = t.Get(&value, "SELECT value FROM instance WHERE name = ?", name)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("read instance: %w", err)
	}
	return value, nil
}

// setInstanceValue writes a row of table instance.
func setInstanceValue(t *tx, name string, value []byte) error {
	if _, err := t.Exec("INSERT OR REPLACE INTO instance (name, value) VALUES (?, ?)", name, value); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
