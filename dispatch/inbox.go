package dispatch

import (
	"sync"
	"sync/atomic"

	"github.com/keyhook/keyhook/storage/webhook"
)

// message is something that happened, told to the scheduler.
type message interface {
	apply(s *scheduler)
}

// inbox is the one way to the scheduler: many write, it alone reads, and never is anyone made to wait. What is handed
// over by the store is bounded in bytes; beyond that only the subscriptions are noted, and their deliveries are read
// from the table later.
type inbox struct {
	wake chan struct{} // holds one token while there is something to read
	// changes counts the calls of Changed. An attempt compares it right before it goes on the wire.
	changes atomic.Uint64

	mu            sync.Mutex
	messages      []message
	newBytes      pool            // bytes of the jobs in messages
	newBytesOfOrg map[int64]int   // the same by organization
	spilled       map[int64]int64 // subscription → organization
}

func newInbox() *inbox {
	return &inbox{
		wake: make(chan struct{}, 1), newBytes: pool{capacity: maxNewBytes}, newBytesOfOrg: map[int64]int{}, spilled: map[int64]int64{},
	}
}

func (b *inbox) post(m message) {
	b.mu.Lock()
	b.messages = append(b.messages, m)
	b.mu.Unlock()
	b.notify()
}

func (b *inbox) notify() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// hand takes jobs of one organization in, or notes their subscriptions where there is no room for that organization.
func (b *inbox) addJobs(jobs []webhook.Job) {
	if len(jobs) == 0 {
		return
	}
	organization := jobs[0].Organization
	size := jobWeight * len(jobs)
	for i := range jobs {
		if i == 0 || jobs[i].Event != jobs[i-1].Event { // else it shares the body
			size += len(jobs[i].Body)
		}
	}
	b.mu.Lock()
	if b.newBytes.allows(b.newBytesOfOrg[organization], size) {
		b.newBytes.used += size
		b.newBytesOfOrg[organization] += size
		b.messages = append(b.messages, jobsCreated{jobs})
	} else {
		for i := range jobs {
			b.spilled[jobs[i].Subscription] = organization
		}
	}
	b.mu.Unlock()
	b.notify()
}

// change posts m and counts it as a change, in one step: who has read so many changes has read m.
func (b *inbox) postChange(m message) {
	b.mu.Lock()
	b.messages = append(b.messages, m)
	b.changes.Add(1)
	b.mu.Unlock()
	b.notify()
}

// take empties the inbox into empty, which becomes the next one's room. It also returns the subscriptions whose jobs were
// spilled, with their organizations, nil where there are none, and the number of changes read so far.
func (b *inbox) takeAll(empty []message) (messages []message, spilled map[int64]int64, changes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	messages, b.messages, b.newBytes.used = b.messages, empty, 0
	clear(b.newBytesOfOrg)
	if len(b.spilled) > 0 {
		spilled, b.spilled = b.spilled, map[int64]int64{}
	}
	return messages, spilled, b.changes.Load()
}
