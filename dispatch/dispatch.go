// Package dispatch owns the way of a delivery to its receiver: what is sent when, and how that ended. It knows neither
// SQL nor the HTTP interface of Keyhook, nor who may do what.
//
// One goroutine, the scheduler, decides; others read, begin, send and record for it. Each subscription with pending
// deliveries has a lane of its own, so that a receiver that is slow or down delays nobody but itself. Organizations share
// slots, readers and memory first, and the lanes of each share its part. An attempt is recorded before it is sent, and
// again when it has ended.
package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// Dispatcher delivers what is pending in a store. Use New.
type Dispatcher struct {
	options Options
	log     *slog.Logger
	store   store
	sender  *sender
	backoff Backoff
	inbox   *inbox

	lastTick atomic.Int64
	lag      sharedLag
	started  atomic.Bool
	stopped  chan struct{} // closed when Run has ended
}

// store is what a Dispatcher needs of the storage floor.
type store interface {
	pendingStore
	attemptStore
	testStore
}

// backlog is what is pending.
type pendingStore interface {
	// Lanes lists all subscriptions with pending deliveries.
	Lanes(ctx context.Context) ([]webhook.Lane, error)
	// Target tells how to send to a subscription at present.
	Target(ctx context.Context, subscription int64) (webhook.Target, error)
	// PendingJobs lists the pending deliveries of a subscription, the earliest due first, due already or not, without those
	// that are held in memory.
	PendingJobs(ctx context.Context, subscription int64, limit int, held []int64) ([]webhook.Job, error)
}

// ledger is the record of attempts.
type attemptStore interface {
	// Begin records attempts before they are sent. It returns their rows in order; 0 stands for one that must not be sent.
	Begin(ctx context.Context, starts []webhook.Start) ([]int64, error)
	// Release takes back attempts that were begun and not sent.
	Release(ctx context.Context, attempts []int64) error
	// Record writes how an attempt ended, and all that follows from it.
	Record(ctx context.Context, r webhook.Result) (webhook.Settled, error)
}

// tester makes test events.
type testStore interface {
	// SubscriptionRow finds a subscription.
	SubscriptionRow(ctx context.Context, organization int64, subscriptionID string) (int64, error)
	// BeginTest makes a test event and begins its one attempt.
	BeginTest(ctx context.Context, organization int64, subscriptionID string) (webhook.Target, webhook.Job, int64, error)
	// Attempt returns the record of an attempt.
	Attempt(ctx context.Context, row int64) (webhook.Attempt, error)
}

var _ webhook.Watcher = (*Dispatcher)(nil)

// New makes a Dispatcher. It is to be made the store's watcher before Run is called. The error says all that is wrong
// with the options.
func New(store store, o Options) (*Dispatcher, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	return &Dispatcher{
		options: o, log: o.Logger, store: store,
		sender: &sender{
			transport: o.Transport, names: newHeaderNames(o.HeaderPrefix), timeout: o.Timeout, retryMax: o.RetryMax,
			allowHTTP: o.AllowHTTP, log: o.Logger,
		},
		backoff: Backoff{Base: o.RetryBase, Factor: o.RetryFactor, Max: o.RetryMax},
		inbox:   newInbox(),
		stopped: make(chan struct{}),
	}, nil
}

// Run delivers until ctx ends. Then it begins nothing more, gives back what was begun and not sent, waits for what is on
// the wire, at most Options.Grace, and for its record, and returns. Attempts that are cut off after the grace stay in
// the store as they are; storage marks them as interrupted at the next start. Run can be called once.
func (d *Dispatcher) Run(ctx context.Context) error {
	if !d.started.CompareAndSwap(false, true) {
		return errors.New("dispatch: Run was called before")
	}
	defer close(d.stopped)
	if idle, ok := d.options.Transport.(interface{ CloseIdleConnections() }); ok {
		defer idle.CloseIdleConnections()
	}
	under, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	w := &worker{Dispatcher: d, ctx: under, batches: make(chan []*attempt, 1), reads: make(chan readRequest, maxReads+1)}
	w.running.Go(w.begin)
	for range maxReads {
		w.running.Go(func() { w.read(ctx) })
	}
	newScheduler(d, w).run(ctx, cut)
	close(w.batches)
	close(w.reads)
	w.running.Wait()
	return nil
}

// Fresh takes new pending deliveries over from the store, which leaves the slice to it. It never blocks. It is part of
// webhook.Watcher.
func (d *Dispatcher) Fresh(jobs []webhook.Job) { d.inbox.addJobs(jobs) }

// Changed learns that these subscriptions, or any where none is named, are not what they were. No attempt that was decided
// on before is started on after it has returned; one whose connection is being made by then goes on. It never blocks. It is
// part of webhook.Watcher.
func (d *Dispatcher) Changed(subscriptions ...int64) {
	d.inbox.postChange(subscriptionsChanged{slices.Clone(subscriptions)})
}

// LastTick is when the scheduler last looked at its clock; the zero time before Run. It does so every poll interval at
// least, so a much older time means that deliveries stand still.
func (d *Dispatcher) LastTick() time.Time {
	if at := d.lastTick.Load(); at != 0 {
		return time.UnixMilli(at)
	}
	return time.Time{}
}
