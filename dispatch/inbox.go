package dispatch

import (
	"sync"
	"sync/atomic"

	"github.com/keyhook/keyhook/dispatch/fair"
	"github.com/keyhook/keyhook/storage/webhook"
)

// message tells the scheduler that something has happened. Messages hold copies and keys, never an attempt.
type message any

type (
	// jobsCreated: there are new deliveries.
	jobsCreated struct{ jobs []webhook.Job }
	// subscriptionsChanged: these subscriptions have changed, or any if none is named.
	subscriptionsChanged struct{ subscriptions []int64 }
	// bodiesChanged: the bodies of these events were replaced.
	bodiesChanged struct{ events []int64 }

	// beginReturned: the attempts are recorded under these rows. A row of 0 means that the store refused the attempt.
	beginReturned struct {
		starts []webhook.Start
		rows   []int64
		err    error
	}
	// releaseFailed: the store failed to release attempts. The worker tries again.
	releaseFailed struct{ err error }
	// attemptsReleased: the attempts have no record any more.
	attemptsReleased struct{ attempts []attemptKey }
	// sendRefused: the attempt was not sent, because something had changed since the decision.
	sendRefused struct{ attempt attemptKey }
	// requestEnded: the request of the attempt has ended.
	requestEnded struct {
		attempt attemptKey
		failed  bool
	}
	// recordFailed: the store failed to save the result. The worker tries again.
	recordFailed struct {
		attempt attemptKey
		err     error
	}
	// resultsRecorded: the results are saved.
	resultsRecorded struct {
		attempts []attemptKey
		settled  []webhook.Settled
	}
	// attemptInterrupted: the process stops; the record of the attempt stays as it is.
	attemptInterrupted struct{ attempt attemptKey }
)

// inbox is the only way to the scheduler. Many goroutines write to it, only the scheduler reads, and nobody waits. Jobs
// from the store are bounded in bytes. Beyond the bound, only their subscriptions are kept, and the jobs are read from
// the table later.
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

// addJobs posts the jobs of one organization. If that organization has no room, it keeps only their subscriptions.
func (b *inbox) addJobs(jobs []webhook.Job) {
	if len(jobs) == 0 {
		return
	}
	organization := jobs[0].Organization
	size := jobWeight * len(jobs)
	for i := range jobs {
		if i == 0 || jobs[i].Event != jobs[i-1].Event { // otherwise it shares the body
			size += len(jobs[i].Body)
		}
	}
	b.mu.Lock()
	if b.newBytes.Allows(organization, size) {
		b.newBytes.Charge(organization, size)
		b.messages = append(b.messages, jobsCreated{jobs})
	} else {
		b.spill(jobs)
	}
	b.mu.Unlock()
	b.notify()
}

// spill keeps only the subscriptions of the jobs. Jobs that have begun are kept without their bodies.
func (b *inbox) spill(jobs []webhook.Job) {
	var begun []webhook.Job
	for _, j := range jobs {
		if j.Begun {
			j.Body = nil
			begun = append(begun, j)
		} else {
			b.spilled[j.Subscription] = j.Organization
		}
	}
	if len(begun) > 0 {
		b.messages = append(b.messages, jobsCreated{begun})
	}
}

// postChange posts m and counts it in one step. Whoever has read that many changes has read m.
func (b *inbox) postChange(m message) {
	b.mu.Lock()
	b.messages = append(b.messages, m)
	b.changes.Add(1)
	b.mu.Unlock()
	b.notify()
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
