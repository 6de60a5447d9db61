package sender

import (
	"context"
	"errors"
	"sync"
	"time"
)

var errTimeout = errors.New("the attempt exceeded its timeout")

// deadline is the context of one attempt at a time. It ends with its parent, or after the timeout with the cause
// errTimeout.
type deadline struct {
	context.Context
	parent context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// deadlines keeps deadlines that have not ended, as many as were ever used at once. Making one for each attempt costs 7
// allocations of 640 bytes.
type deadlines struct {
	timeout time.Duration
	mu      sync.Mutex
	free    []*deadline
}

// start returns a deadline whose time begins now.
func (p *deadlines) start(parent context.Context) *deadline {
	if d := p.takeFree(); d != nil {
		if d.parent == parent {
			d.timer.Reset(p.timeout)
			return d
		}
		d.cancel(nil)
	}
	ctx, cancel := context.WithCancelCause(parent)
	return &deadline{ctx, parent, cancel, time.AfterFunc(p.timeout, func() { cancel(errTimeout) })}
}

func (p *deadlines) takeFree() *deadline {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.free) - 1
	if last < 0 {
		return nil
	}
	d := p.free[last]
	p.free = p.free[:last]
	return d
}

// stop ends the attempt of a deadline. If its time was not over, it is used again.
func (p *deadlines) stop(d *deadline) {
	if !d.timer.Stop() {
		d.cancel(nil)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, d)
}
