package dispatch

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/keyhook/keyhook/dispatch/fair"
	"github.com/keyhook/keyhook/storage/webhook"
)

// message tells the scheduler that something has happened: the scheduler calls it. It holds copies and keys, never an attempt.
type message func(s *scheduler)

// inbox is the only way to the scheduler. Many goroutines write to it, only the scheduler reads, and nobody waits. Jobs from the
// store are bounded in bytes. Beyond the bound, only their subscriptions are kept, and the jobs are read from the table later.
type inbox struct {
	wake chan struct{} // holds one token while there is something to read
	// changes counts the calls of SubscriptionsChanged and BodiesChanged. An attempt compares it right before it is sent.
	changes atomic.Uint64

	mu       sync.Mutex
	messages []message
	newBytes fair.Ledger     // of the jobs in messages, by organization
	spilled  map[int64]int64 // organization of each subscription whose jobs were not kept
}

func newInbox() *inbox {
	return &inbox{wake: make(chan struct{}, 1), newBytes: fair.NewLedger(maxNewBytes), spilled: map[int64]int64{}}
}

// write calls add under the lock, and wakes the scheduler.
func (b *inbox) write(add func()) {
	b.mu.Lock()
	add()
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *inbox) post(m message) { b.write(func() { b.messages = append(b.messages, m) }) }

// postChange posts m and counts it in one step. Whoever has read that many changes has read m.
func (b *inbox) postChange(m message) {
	b.write(func() {
		b.messages = append(b.messages, m)
		b.changes.Add(1)
	})
}

// SubscriptionsChanged says that these subscriptions have changed, or that any may have changed if none is named. After it returns,
// no attempt starts on a decision made before the change. An attempt that is already connecting goes on. It never
// blocks. It is part of webhook.Watcher.
func (b *inbox) SubscriptionsChanged(subscriptions ...int64) {
	changed := slices.Clone(subscriptions)
	b.postChange(func(s *scheduler) { s.noteChanges(changed) })
}

// BodiesChanged says that these events have other bodies now. After it returns, no attempt starts with an old body. An attempt
// that is already connecting goes on. It never blocks. It is part of webhook.Watcher.
func (b *inbox) BodiesChanged(events []int64) {
	changed := slices.Clone(events)
	b.postChange(func(s *scheduler) { s.dropBodies(changed) })
}

// DeliveriesCreated takes new pending deliveries of one organization from the store. If that organization has no room, it keeps only
// their subscriptions. The caller must not use the slice afterwards. It never blocks. It is part of webhook.Watcher.
func (b *inbox) DeliveriesCreated(jobs []webhook.Job) {
	if len(jobs) == 0 {
		return
	}
	size := jobWeight * len(jobs)
	for i := range jobs {
		if i == 0 || jobs[i].Event != jobs[i-1].Event { // otherwise it shares the body
			size += len(jobs[i].Body)
		}
	}
	b.write(func() {
		if kept := b.keep(jobs, size); len(kept) > 0 {
			b.messages = append(b.messages, func(s *scheduler) { s.addNewJobs(kept) })
		}
	})
}

// keep returns the jobs if there is room. Otherwise it returns those that have begun, without bodies, and keeps the others' subscriptions.
func (b *inbox) keep(jobs []webhook.Job, size int) (begun []webhook.Job) {
	if organization := jobs[0].Organization; b.newBytes.Allows(organization, size) {
		b.newBytes.Charge(organization, size)
		return jobs
	}
	for _, j := range jobs {
		if j.Begun {
			j.Body = nil
			begun = append(begun, j)
		} else {
			b.spilled[j.Subscription] = j.Organization
		}
	}
	return begun
}

// takeAll empties the inbox; empty becomes its next buffer. It also returns the spilled subscriptions with their
// organizations; nil if there are none. Last, it returns the number of changes read so far.
func (b *inbox) takeAll(empty []message) (messages []message, spilled map[int64]int64, changes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	messages, b.messages = b.messages, empty
	b.newBytes.Clear()
	if len(b.spilled) > 0 {
		spilled, b.spilled = b.spilled, map[int64]int64{}
	}
	return messages, spilled, b.changes.Load()
}
