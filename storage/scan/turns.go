package scan

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/keyhook/keyhook/storage/fault"
)

// errBusy is the cause of a wait that took too long.
var errBusy = errors.New("other reads took too long to wait for")

// mostReads is how many reads of one organization may be under way or wait; one more is refused.
const mostReads = 32

// turns allow one read of each organization at a time. Its other reads wait in the order of asking, without a connection. The
// zero value is ready to use.
type turns struct {
	wait time.Duration // for a turn, and then for each connection; 0 is as long as the context lasts

	mu            sync.Mutex
	organizations map[int64]*turn // those that have a read; the others cost nothing
}

type turn struct {
	taken chan struct{} // contains one token while a read runs
	reads int           // under way or waiting
}

// Take waits for the turn of the organization. The caller must call end. Faults: Unavailable if too many reads wait, or if the
// wait takes too long.
func (t *turns) Take(ctx context.Context, organization int64) (end func(), err error) {
	own, err := t.join(organization)
	if err != nil {
		return nil, err
	}
	ctx, cancel := t.waiting(ctx)
	defer cancel()
	select {
	case own.taken <- struct{}{}:
		return func() {
			<-own.taken
			t.leave(organization)
		}, nil
	case <-ctx.Done():
		t.leave(organization)
		return nil, waited(ctx)
	}
}

func (t *turns) join(organization int64) (*turn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own, ok := t.organizations[organization]
	if !ok {
		if t.organizations == nil {
			t.organizations = map[int64]*turn{}
		}
		own = &turn{taken: make(chan struct{}, 1)}
		t.organizations[organization] = own
	}
	if own.reads == mostReads {
		return nil, tooBusy()
	}
	own.reads++
	return own, nil
}

func (t *turns) leave(organization int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.organizations[organization]
	if own.reads--; own.reads == 0 {
		delete(t.organizations, organization)
	}
}

// waiting returns the context of a wait.
func (t *turns) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.wait == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, t.wait, errBusy)
}

// waited returns the error of a wait whose context has ended.
func waited(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, errBusy) {
		return cause
	}
	return tooBusy()
}

func tooBusy() error {
	return fault.New(fault.Unavailable, "too_busy",
		"Too many reads of this organization's logs are under way; try again in a few seconds, with fewer at a time.").Because(errBusy)
}
