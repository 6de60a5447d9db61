package queue

import (
	"slices"
	"sync"

	"github.com/keyhook/keyhook/storage/fault"
)

// How many readers of feeds may wait at the same time. A waiting reader costs a connection to the server and a goroutine.
const (
	maxWaiting               = 256
	maxWaitingOfOrganization = 16
)

// waitingReaders are the readers of feeds that wait for an event.
type waitingReaders struct {
	mu            sync.Mutex
	organizations map[int64][]chan struct{} // the longest wait comes first
	count         int
}

// AwaitEvents returns a channel that gets a token after an event of the organization was published. The caller must call leave. If all
// places are taken, an organization gets one from the organization with the most readers, unless it has about as many. That closes the
// channel of the reader that loses its place, and ends its wait. Faults: Limited if too many readers wait.
func (q *Queue) AwaitEvents(organization int64) (published <-chan struct{}, leave func(), err error) {
	w := &q.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	own := len(w.organizations[organization])
	if own == maxWaitingOfOrganization {
		return nil, nil, tooManyReaders("of this organization", maxWaitingOfOrganization)
	}
	if w.count == maxWaiting {
		largest := organization
		for other, readers := range w.organizations {
			if len(readers) > len(w.organizations[largest]) {
				largest = other
			}
		}
		if len(w.organizations[largest]) <= own+1 {
			return nil, nil, tooManyReaders("of all organizations", maxWaiting)
		}
		longest := w.organizations[largest][0]
		w.remove(largest, longest)
		close(longest)
	}
	c := make(chan struct{}, 1)
	w.organizations[organization] = append(w.organizations[organization], c)
	w.count++
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.remove(organization, c)
	}, nil
}

func tooManyReaders(of string, most int) error {
	return fault.New(fault.Limited, "too_many_readers",
		"%d readers %s wait for events already, which is the most. Read with fewer programs at a time, or without wait.", most, of)
}

// remove forgets a reader, if it is still there.
func (w *waitingReaders) remove(organization int64, c chan struct{}) {
	readers := w.organizations[organization]
	i := slices.Index(readers, c)
	if i < 0 {
		return
	}
	w.count--
	if readers = slices.Delete(readers, i, i+1); len(readers) == 0 {
		delete(w.organizations, organization)
		return
	}
	w.organizations[organization] = readers
}

func (w *waitingReaders) wake(organization int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.organizations[organization] {
		select {
		case c <- struct{}{}:
		default: // it has not taken the last token yet
		}
	}
}

// wakeReaders wakes the readers of an organization after the commit, before the publisher gets its answer.
func (t *tx) wakeReaders(organization int64) { t.OnCommit(func() { t.waiting.wake(organization) }) }

// WaitingReaders returns how many readers wait.
func (q *Queue) WaitingReaders() int {
	q.waiting.mu.Lock()
	defer q.waiting.mu.Unlock()
	return q.waiting.count
}
