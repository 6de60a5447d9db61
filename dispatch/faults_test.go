package dispatch_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/webhook"
)

var errDisk = errors.New("the disk is full")

// faultyStore is a real store whose methods fail on demand.
type faultyStore struct {
	*storage.Store
	*faults
}

type faults struct {
	trace        *trace // of a simulation, or nil
	mu           sync.Mutex
	broken       map[string]bool
	targetHangs  bool // until its context ends
	calls        map[string]int
	refusals     int           // attempts that Begin refused
	dueShift     time.Duration // added to all due times
	failingEvent string        // id of an event whose results cannot be saved
	failingOf    string        // id of a subscription whose results cannot be saved
	beginTakes   time.Duration // before each Begin
	recordTakes  time.Duration // before each Record
	readTakes    time.Duration // after each OrderedJobs
}

func newFaults() *faults { return &faults{broken: map[string]bool{}, calls: map[string]int{}} }

func (f *faults) fail(broken bool, methods ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range methods {
		f.broken[m] = broken
	}
}

// hangTarget makes Target wait for the end of its context.
func (f *faults) hangTarget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.targetHangs = true
}

func (f *faults) isTargetHanging() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.targetHangs
}

// failEvent makes Record fail for every attempt of the event.
func (f *faults) failEvent(event string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failingEvent = event
}

// failSubscription makes Record fail for every attempt of the subscription; empty: of none.
func (f *faults) failSubscription(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failingOf = id
}

func (f *faults) toFail() (event, subscription string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failingEvent, f.failingOf
}

// slow makes each Record take longer.
func (f *faults) slow(takes time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recordTakes = takes
}

func (f *faults) delayRecord(ctx context.Context) error {
	f.mu.Lock()
	takes := f.recordTakes
	f.mu.Unlock()
	if takes == 0 {
		return nil
	}
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f *faults) called(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

func (f *faults) call(method string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[method]++
	if f.broken[method] {
		return errDisk
	}
	return nil
}

func (s faultyStore) Lanes(ctx context.Context) ([]webhook.Lane, error) {
	s.trace.delay("Lanes")
	if err := s.call("Lanes"); err != nil {
		return nil, err
	}
	lanes, err := s.Store.Survey.Lanes(ctx)
	slices.SortFunc(lanes, func(a, b webhook.Lane) int { return cmp.Compare(a.Subscription, b.Subscription) })
	for i := range lanes {
		lanes[i].DueAt += s.dueShift.Milliseconds()
	}
	return lanes, err
}

func (s faultyStore) Target(ctx context.Context, subscription int64) (webhook.Target, error) {
	s.trace.delay("Target", subscription)
	if s.isTargetHanging() {
		<-ctx.Done()
		return webhook.Target{}, ctx.Err()
	}
	if err := s.call("Target"); err != nil {
		return webhook.Target{}, err
	}
	return s.Store.Queue.Target(ctx, subscription)
}

func (s faultyStore) PendingJobs(ctx context.Context, subscription, after int64, limit int, inMemory []int64) ([]webhook.Job, error) {
	s.trace.delay("PendingJobs", subscription)
	if err := s.call("PendingJobs"); err != nil {
		return nil, err
	}
	jobs, err := s.Store.Queue.PendingJobs(ctx, subscription, after, limit, inMemory)
	for i := range jobs {
		jobs[i].DueAt += s.dueShift.Milliseconds()
	}
	return jobs, err
}

func (s faultyStore) OrderedJobs(ctx context.Context, subscription int64, limit int) ([]webhook.Job, error) {
	s.trace.delay("OrderedJobs", subscription)
	if err := s.call("OrderedJobs"); err != nil {
		return nil, err
	}
	jobs, err := s.Store.Queue.OrderedJobs(ctx, subscription, limit)
	time.Sleep(s.readTakes)
	for i := range jobs {
		jobs[i].DueAt += s.dueShift.Milliseconds()
	}
	return jobs, err
}

func (s faultyStore) Begin(ctx context.Context, starts []webhook.Start) ([]int64, error) {
	s.trace.delay("Begin", starts[0].Delivery)
	if err := s.call("Begin"); err != nil {
		return nil, err
	}
	time.Sleep(s.beginTakes)
	rows, err := s.Store.Queue.Begin(ctx, starts)
	s.countRefused(rows)
	return rows, err
}

// countRefused counts the attempts that the store refused to begin.
func (f *faults) countRefused(rows []int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, row := range rows {
		if row == 0 {
			f.refusals++
		}
	}
}

func (f *faults) refused() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refusals
}

func (s faultyStore) UndoBegin(ctx context.Context, attempts []int64) error {
	s.trace.delay("UndoBegin", attempts[0])
	if err := s.call("Release"); err != nil {
		return err
	}
	return s.Store.Queue.UndoBegin(ctx, attempts)
}

func (s faultyStore) Record(ctx context.Context, results ...webhook.Result) ([]webhook.Settled, error) {
	s.trace.delay("Record", results[0].Attempt)
	if err := s.call("Record"); err != nil {
		return nil, err
	}
	if err := s.delayRecord(ctx); err != nil {
		return nil, err
	}
	if event, subscription := s.toFail(); event+subscription != "" {
		for _, r := range results {
			if a, err := s.History.Attempt(ctx, r.Attempt); err != nil || a.EventID == event || a.SubscriptionID == subscription {
				return nil, errDisk
			}
		}
	}
	return s.Store.Queue.Record(ctx, results...)
}
