// Package dispatch owns the delivery of events: when each delivery is sent, and what follows from the end of each attempt. It
// does not know SQL, the HTTP interface of Keyhook, permissions, or how a request is made: that is package sender.
//
// One goroutine, the scheduler, makes all decisions. Other goroutines read, begin, send and record for it. Each subscription
// with pending deliveries has its own lane, so a slow or dead receiver delays only itself. Slots, reads and memory are
// shared between organizations first, then between the lanes of each. An attempt is recorded before it is sent, and its
// result is recorded when it has ended. An ordered subscription gets one delivery at a time, in the order of publication.
//
// # Stages of an attempt
//
// An attempt is in one stage at a time. Only lanes.go changes the stage, with all counters that depend on it. lane.go says what
// each stage means, and which other stages may follow.
//
//	queued --> beginning --> begun --> sending --> ended --> settled
//
// The first attempt of a new delivery may begin in the transaction that creates the delivery. Its first stage is begun.
//
// A recorded attempt becomes releasing if its subscription has changed, or if the scheduler stops.
package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhook/keyhook/dispatch/sender"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Dispatcher sends the pending deliveries of a store. Its inbox and its openings make it a webhook.Watcher. Use New.
type Dispatcher struct {
	options Options
	log     *slog.Logger
	store   store
	sender  *sender.Sender
	backoff Backoff
	*inbox
	openings

	lastTick atomic.Pointer[time.Time] // with its monotonic reading, because the clock may jump
	lag      struct {
		sync.Mutex
		latest lag // of the last round
	}
	unsaved atomic.Int64 // attempts whose result could not be saved at once
	started atomic.Bool
	stopped chan struct{} // closed when Run has ended

	checks checks
}

// checks are called by the scheduler in tests; nil in production.
type checks struct {
	onMove  func(a *attempt, to stage)
	onRound func(s *scheduler)
}

// store is what a Dispatcher needs from package storage: it reads pending deliveries, records attempts, and makes test events.
type store interface {
	// Lanes lists all subscriptions with pending deliveries.
	Lanes(ctx context.Context) ([]webhook.Lane, error)
	Target(ctx context.Context, subscription int64) (webhook.Target, error)
	// PendingJobs lists the pending deliveries of a subscription with a due time after a time, the earliest first. It includes
	// deliveries that are not due yet. It omits those in inMemory.
	PendingJobs(ctx context.Context, subscription, after int64, limit int, inMemory []int64) ([]webhook.Job, error)
	// OrderedJobs lists the pending deliveries of an ordered subscription: up to limit redeliveries, then up to limit others in order.
	OrderedJobs(ctx context.Context, subscription int64, limit int) ([]webhook.Job, error)

	// Begin records attempts before they are sent. It returns their rows in order. A row of 0 means that the attempt must not be sent.
	Begin(ctx context.Context, starts []webhook.Start) ([]int64, error)
	// UndoBegin deletes the records of attempts that were begun but not sent.
	UndoBegin(ctx context.Context, attempts []int64) error
	// Record saves the results of attempts, all or none, with their effects on the deliveries and on the health of the subscriptions.
	Record(ctx context.Context, results ...webhook.Result) ([]webhook.Settled, error)

	SubscriptionRow(ctx context.Context, organization int64, subscriptionID string) (int64, error)
	// BeginTest makes a test event and begins its only attempt. The event is the example of eventType; see queue.Queue.BeginTest.
	BeginTest(ctx context.Context, organization int64, subscriptionID, eventType string) (webhook.Target, webhook.Job, int64, error)
	Attempt(ctx context.Context, row int64) (webhook.Attempt, error)
}

var _ webhook.Watcher = (*Dispatcher)(nil)

// New makes a Dispatcher. Make it the store's watcher before you call Run.
func New(store store, o Options) *Dispatcher {
	o = o.complete()
	return &Dispatcher{
		options: o, log: o.Logger, store: store,
		sender: sender.New(sender.Options{
			Transport: o.Transport, HeaderPrefix: o.HeaderPrefix, Timeout: o.Timeout, MaxRetryAfter: o.RetryMax,
			AllowHTTP: o.AllowHTTP, Logger: o.Logger,
		}),
		backoff:  Backoff{Base: o.RetryBase, Factor: o.RetryFactor, Max: o.RetryMax},
		inbox:    newInbox(),
		openings: newOpenings(maxBegunPerSlot * o.Concurrency),
		stopped:  make(chan struct{}),
	}
}

// Run delivers until ctx ends. Then it begins no more attempts and releases those that were begun but not sent. It
// waits at most Options.Grace for running requests and for the records of their results, and a second more for the
// records of responses that were complete by then. The store keeps attempts that are interrupted after that. At the next
// start, storage marks them as interrupted. Run can be called once.
func (d *Dispatcher) Run(ctx context.Context) error {
	if !d.started.CompareAndSwap(false, true) {
		return errors.New("dispatch: Run was called twice; make a new Dispatcher")
	}
	defer close(d.stopped)
	if idle, ok := d.options.Transport.(interface{ CloseIdleConnections() }); ok {
		defer idle.CloseIdleConnections()
	}
	w := newWorker(ctx, d)
	defer w.interrupt(nil)
	defer w.stopRecording()
	w.running.Go(w.record)
	newScheduler(d, w).run(ctx)
	close(w.ended)
	w.running.Wait()
	return nil
}

// Unsaved returns the number of attempts that have ended, but whose result cannot be saved. Dispatcher tries again.
func (d *Dispatcher) Unsaved() int64 { return d.unsaved.Load() }

// SentHeaders returns the headers that a recorded attempt had, as sender.SentHeaders does.
func (d *Dispatcher) SentHeaders(a webhook.Attempt) http.Header { return d.sender.SentHeaders(a) }

// LastTick returns when the scheduler last read its clock, or the zero time before Run. The scheduler reads the clock
// at least once per poll interval. A much older time means that deliveries have stopped.
func (d *Dispatcher) LastTick() time.Time {
	if at := d.lastTick.Load(); at != nil {
		return *at
	}
	return time.Time{}
}
