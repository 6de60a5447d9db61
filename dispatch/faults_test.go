package dispatch_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/webhook"
)

var errDisk = errors.New("the disk is full")

// faulty is a real store that fails on demand, by the name of the method.
type faulty struct {
	*storage.Store
	*faults
}

type faults struct {
	mu     sync.Mutex
	broken map[string]bool
	hung   bool // Target ends with its context only
	calls  map[string]int
	shift  time.Duration // of all due times
	poison string        // id of an event none of whose attempts can be recorded
}

func newFaults() *faults { return &faults{broken: map[string]bool{}, calls: map[string]int{}} }

func (f *faults) fail(broken bool, methods ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range methods {
		f.broken[m] = broken
	}
}

// hang has Target wait for the end of its context.
func (f *faults) hang() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hung = true
}

func (f *faults) hangs() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hung
}

// spoil has no end of an attempt of the event recorded.
func (f *faults) spoil(event string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.poison = event
}

func (f *faults) poisoned() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.poison
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

func (s faulty) Lanes(ctx context.Context) ([]webhook.Lane, error) {
	if err := s.call("Lanes"); err != nil {
		return nil, err
	}
	lanes, err := s.Store.Lanes(ctx)
	for i := range lanes {
		lanes[i].DueAt += s.shift.Milliseconds()
	}
	return lanes, err
}

func (s faulty) Target(ctx context.Context, subscription int64) (webhook.Target, error) {
	if s.hangs() {
		<-ctx.Done()
		return webhook.Target{}, ctx.Err()
	}
	if err := s.call("Target"); err != nil {
		return webhook.Target{}, err
	}
	return s.Store.Target(ctx, subscription)
}

func (s faulty) PendingJobs(ctx context.Context, subscription int64, limit int, inMemory []int64) ([]webhook.Job, error) {
	if err := s.call("PendingJobs"); err != nil {
		return nil, err
	}
	jobs, err := s.Store.PendingJobs(ctx, subscription, limit, inMemory)
	for i := range jobs {
		jobs[i].DueAt += s.shift.Milliseconds()
	}
	return jobs, err
}

func (s faulty) Begin(ctx context.Context, starts []webhook.Start) ([]int64, error) {
	if err := s.call("Begin"); err != nil {
		return nil, err
	}
	return s.Store.Begin(ctx, starts)
}

func (s faulty) Release(ctx context.Context, attempts []int64) error {
	if err := s.call("Release"); err != nil {
		return err
	}
	return s.Store.Release(ctx, attempts)
}

func (s faulty) Record(ctx context.Context, r webhook.Result) (webhook.Settled, error) {
	if err := s.call("Record"); err != nil {
		return webhook.Settled{}, err
	}
	if poison := s.poisoned(); poison != "" {
		if a, err := s.Attempt(ctx, r.Attempt); err != nil || a.EventID == poison {
			return webhook.Settled{}, errDisk
		}
	}
	return s.Store.Record(ctx, r)
}
