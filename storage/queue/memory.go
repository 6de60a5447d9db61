package queue

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/keyhook/keyhook/storage/catalogue"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/fanout"
	"github.com/keyhook/keyhook/storage/instance"
	"github.com/keyhook/keyhook/storage/pending"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Memory is what the writer remembers from one transaction to the next. The other parts of the store share its exported fields, in their
// transactions. Only the writer uses it, except IDs, Pending, and the methods of shared.
type Memory struct {
	*shared
	eventOrder

	IDs        publicid.Maker // after Load
	Fanout     *fanout.Cache
	Catalogued catalogue.Types
	Quotas     *quota.Quotas

	queueHold     *webhook.Hold // as in the file, if holdIsRead
	holdIsRead    bool
	attemptCounts map[minuteKey]*webhook.AttemptCounts // written at the end of the transaction
	sending       map[int64]sendingDelivery            // deliveries in progress, by row id; others must be read
	places        []place                              // that this transaction took
	keptPlaces    int                                  // how many of them earlier writes of this transaction took
	newRows       newRows                              // to write before the next statement
	created       map[int64][]webhook.Job              // by organization, to announce after the commit; may be nil

	running tx
}

// tx is the transaction that runs now, with what the writer remembers.
type tx struct {
	*sqlite.Tx
	*Memory
}

// shared is what the writer changes after a commit, and what never changes. Everybody may read it.
type shared struct {
	policy   webhook.Policy
	observer Observer
	log      *slog.Logger

	pending       *pending.Count
	subscriptions atomic.Pointer[webhook.SubscriptionCounts]
	committedHold atomic.Pointer[webhook.Hold]
	releasedAt    atomic.Int64 // in milliseconds; 0 if the queue was not held since the start
	watcher       atomic.Pointer[webhook.Watcher]
	waiting       waitingReaders
	mayRecover    atomic.Bool // a subscription may be marked for recovery; see RecoverMarked
}

// Observer receives figures for metrics after each commit. The writer makes most of the calls, so the methods must return at once.
type Observer interface {
	// Published reports accepted events, without repeated ones.
	Published(events int)
	// HealthChanged reports the new status of a subscription's health.
	HealthChanged(to webhook.Status)
	// Expired reports how many pending deliveries retention deleted.
	Expired(deliveries int)
	// Interrupted reports how many attempts the last owner of the file left unfinished.
	Interrupted(attempts int)
}

// NewMemory returns the memory of a writer that has read nothing yet.
func NewMemory(policy webhook.Policy, observer Observer, log *slog.Logger) *Memory {
	m := &Memory{
		shared: &shared{
			policy: policy, observer: observer, log: log, pending: pending.NewCount(),
			waiting: waitingReaders{organizations: map[int64][]chan struct{}{}},
		},
		Fanout:        fanout.New(policy.ProbeDisabled, log),
		Catalogued:    catalogue.Types{},
		Quotas:        quota.New(),
		attemptCounts: map[minuteKey]*webhook.AttemptCounts{},
		sending:       map[int64]sendingDelivery{},
	}
	m.running.Memory = m
	m.mayRecover.Store(true)
	return m
}

// Attach makes the engine tell the memory about its transactions.
func (m *Memory) Attach(e *sqlite.Options) {
	e.Begin, e.Flush = m.job((*tx).checkOrder), m.job((*tx).flush)
	e.RolledBack = func() { m.rolledBack(0) }
	e.Undone = func() { m.rolledBack(m.keptPlaces) }
}

// Load ends the attempts that the last owner of the file left unfinished, and reads what the writer remembers. Call it once, before
// the file runs.
func (m *Memory) Load(file *sqlite.File) error {
	if err := file.Alone(m.job((*tx).interruptAttempts)); err != nil {
		return fmt.Errorf("mark interrupted attempts: %w", err)
	}
	return file.Read(m.job(func(t *tx) (err error) {
		if t.IDs.Salt, err = instance.Value(t, "salt"); err != nil {
			return err
		}
		// The order needs the hold.
		return cmp.Or(t.pending.Load(t.Tx), t.Catalogued.Load(t.Tx), t.loadSubscriptionCounts(), t.loadHold(), t.loadOrder())
	}))
}

// Pending returns the count of pending deliveries, which everybody may read.
func (m *Memory) Pending() *pending.Count { return m.pending }

func (m *Memory) with(now *sqlite.Tx) *tx {
	m.running.Tx = now
	return &m.running
}

func (m *Memory) job(fn func(*tx) error) func(*sqlite.Tx) error {
	return func(now *sqlite.Tx) error { return fn(m.with(now)) }
}

// rolledBack forgets everything that undone writes may have changed in memory, and gives back the places that they took. The first kept
// places belong to writes that stand.
func (m *Memory) rolledBack(kept int) {
	for _, p := range m.places[kept:] {
		(*m.watcher.Load()).ReturnPlace(p.organization, p.subscription)
	}
	m.places = m.places[:kept]
	m.Fanout.Invalidate()
	m.holdIsRead = false
	clear(m.attemptCounts)
	m.Quotas.Reset()
	clear(m.sending)
	m.newRows.forget()
	m.created = nil
}

// flush writes the counts of the writes so far. What the next write announces can then be taken back alone.
func (t *tx) flush() error {
	t.created, t.keptPlaces = nil, len(t.places)
	if err := t.writeAttemptCounts(); err != nil {
		return err
	}
	return t.Quotas.Write(t.Tx)
}

// change runs fn in a transaction. The zero Work is work of Keyhook itself: deliveries, upkeep, retention. See sqlite.File.Write.
func (q *Queue) change(ctx context.Context, work sqlite.Work, fn func(*tx) error) error {
	return q.o.File.Write(ctx, work, q.o.Memory.job(fn))
}

// returning is change for a function that makes something; see sqlite.Returning.
func returning[T any](ctx context.Context, q *Queue, work sqlite.Work, fn func(*tx) (T, error)) (T, error) {
	return sqlite.Returning(ctx, q.o.File, work, func(now *sqlite.Tx) (T, error) { return fn(q.o.Memory.with(now)) })
}

// The numbers of events and audit events follow the order of writing. Their times do too, unless the clock was ahead and was set back.
// Retention relies on that order, because it reads only the lowest numbers. So does a replay, which searches the numbers for a time.
//
// So the writer remembers up to which row the order is broken.

// eventOrder is the end of the tables, and their order.
type eventOrder struct {
	lastEvent    int64 // row id of the newest event
	lastDelivery int64 // row id of the newest delivery
	latestTime   int64 // the latest time of any transaction since the clock was last set back
	disorder     int64 // events up to this row may be out of order; later ones are in order, within clock.Tolerance
}

// loadOrder finds the numbers of the newest event and the newest delivery, and the row up to which events are out of order. If the
// newest ones were deleted, their numbers must not be used again: subscriptions and readers of feeds remember those of events, and a
// hold remembers that of a delivery.
func (t *tx) loadOrder() error {
	var newest struct {
		Event    int64 `db:"event"`
		Time     int64 `db:"time"`
		Delivery int64 `db:"delivery"`
	}
	if err := t.Get(&newest, `
		SELECT max(coalesce((SELECT max(id) FROM events), 0), coalesce((SELECT max(birth) FROM subscriptions), 0),
		           coalesce((SELECT max(expired_event) FROM organizations), 0)) AS event,
		       coalesce((SELECT created_at FROM events WHERE id = (SELECT max(id) FROM events)), 0) AS time,
		       coalesce((SELECT max(id) FROM deliveries), 0) AS delivery`); err != nil {
		return fmt.Errorf("find newest rows: %w", err)
	}
	t.lastEvent, t.latestTime, t.lastDelivery = newest.Event, newest.Time, newest.Delivery
	if hold := t.committedHold.Load(); hold != nil {
		t.lastDelivery = max(t.lastDelivery, hold.Last)
	}
	value, err := instance.Value(t, scan.DisorderName)
	t.disorder = scan.DecodeDisorder(value)
	return err
}

// checkOrder runs at the start of each transaction. It notices if the clock was set back since the last one.
func (t *tx) checkOrder() error {
	now := t.Now()
	if t.latestTime-now <= clock.Tolerance.Milliseconds() {
		t.OnCommit(func() { t.latestTime = max(t.latestTime, now) })
		return nil
	}
	row := t.lastEvent
	t.OnCommit(func() { t.latestTime, t.disorder = now, max(t.disorder, row) })
	if row <= t.disorder {
		return nil
	}
	return instance.Set(t.Tx, scan.DisorderName, scan.EncodeDisorder(row))
}

// NextEvent returns the row id that the next event gets.
func (q *Queue) NextEvent(*sqlite.Tx) int64 { return q.o.Memory.lastEvent + 1 }
