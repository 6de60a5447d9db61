package storage

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/keyhook/keyhook/storage/catalogue"
	"github.com/keyhook/keyhook/storage/fanout"
	"github.com/keyhook/keyhook/storage/pending"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// tx is a transaction of the writer, with what the writer remembers from one transaction to the next.
type tx struct {
	*sqlite.Tx
	*shared
	eventOrder

	ids               publicid.Maker
	organizations     map[int64]string // public ids by row id; neither ever changes
	fanout            *fanout.Cache
	catalogued        catalogue.Types
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

// shared is what the writer changes after a commit, and what never changes. Everybody may read it.
type shared struct {
	policy   webhook.Policy
	observer Observer
	log      *slog.Logger

	pending       *pending.Count
	subscriptions subscriptionCount
	committedHold atomic.Pointer[webhook.Hold]
	releasedAt    atomic.Int64 // in milliseconds; 0 if the queue was not held since the start
	watcher       atomic.Pointer[webhook.Watcher]
	waiting       waitingReaders
	mayRecover    atomic.Bool // a subscription may be marked for recovery; see recoverMarked
}

// newTx returns the memory of a writer that has read nothing yet.
func newTx(o Options) *tx {
	t := &tx{
		shared:            &shared{policy: o.Policy, observer: o.Observer, log: o.Logger, pending: pending.NewCount()},
		organizations:     map[int64]string{},
		fanout:            fanout.New(o.Policy.ProbeDisabled, o.Logger),
		catalogued:        catalogue.Types{},
		attemptCounts:     map[minuteKey]*webhook.AttemptCounts{},
		quotas:            quota.New(),
		sending:           map[int64]sendingDelivery{},
		unwantedResponses: map[int64]struct{}{},
	}
	t.mayRecover.Store(true)
	return t
}

// with returns the memory of the writer with the transaction that runs now.
func (t *tx) with(now *sqlite.Tx) *tx {
	t.Tx = now
	return t
}

// job turns a function of a tx into one of the engine.
func (t *tx) job(fn func(*tx) error) func(*sqlite.Tx) error {
	return func(now *sqlite.Tx) error { return fn(t.with(now)) }
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

// writer runs functions in transactions.
type writer struct {
	file *sqlite.File
	tx   *tx // used by the goroutine of the writer only
}

// change runs fn in a transaction. The zero Work is work of Keyhook itself: deliveries, upkeep, retention. See sqlite.File.Write.
func (w writer) change(ctx context.Context, work sqlite.Work, fn func(*tx) error) error {
	return w.file.Write(ctx, work, w.tx.job(fn))
}

// changeBeforeRun runs fn in a transaction of its own. Run must not have been called.
func (w writer) changeBeforeRun(fn func(*tx) error) error { return w.file.Alone(w.tx.job(fn)) }

// measure makes a sqlite.Work.Measure of a function of a tx.
func (w writer) measure(fn func(*tx) (int, error)) func(*sqlite.Tx) (int, error) {
	return func(now *sqlite.Tx) (int, error) { return fn(w.tx.with(now)) }
}

// returning is change for a function that makes something; see sqlite.Returning.
func returning[T any](ctx context.Context, w writer, work sqlite.Work, fn func(*tx) (T, error)) (T, error) {
	return sqlite.Returning(ctx, w.file, work, func(now *sqlite.Tx) (T, error) { return fn(w.tx.with(now)) })
}

// Transact runs fn in one transaction: what fn reads and writes with the context that it gets belongs to it. If fn returns an error,
// nothing was written. payer is the row id of the organization that pays for about that many rows; see sqlite.File.Transact.
func (s *Store) Transact(ctx context.Context, payer int64, rows int, fn func(context.Context) error) error {
	return s.file.Transact(ctx, sqlite.Work{Payer: payer, Cost: rows}, fn)
}
