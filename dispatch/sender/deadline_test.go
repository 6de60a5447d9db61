package sender

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Inside the package, because no receiver can tell whether a context is used again.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	const timeout = 10 * time.Second
	inBubble := func(t *testing.T, test func(t *testing.T, p *deadlines, ctx context.Context, cancel context.CancelCauseFunc)) {
		t.Helper()
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			test(t, &deadlines{timeout: timeout}, ctx, cancel)
		})
	}
	// endsAfter checks that the time of a deadline ends after d from now.
	endsAfter := func(t *testing.T, x *deadline, d time.Duration) {
		t.Helper()
		begin := time.Now()
		<-x.Done()
		if took := time.Since(begin); took != d || !errors.Is(context.Cause(x), errTimeout) {
			t.Errorf("ended after %v: %v", took, context.Cause(x))
		}
	}

	t.Run("a deadline that is used again has the whole timeout", func(t *testing.T) {
		inBubble(t, func(t *testing.T, p *deadlines, ctx context.Context, _ context.CancelCauseFunc) {
			first := p.start(ctx)
			time.Sleep(timeout - 1)
			p.stop(first)
			second := p.start(ctx)
			if second != first {
				t.Error("it was not used again")
			}
			endsAfter(t, second, timeout)
		})
	})

	t.Run("a deadline is not used by two attempts at once", func(t *testing.T) {
		inBubble(t, func(t *testing.T, p *deadlines, ctx context.Context, _ context.CancelCauseFunc) {
			p.stop(p.start(ctx))
			first, second := p.start(ctx), p.start(ctx)
			if first == second {
				t.Error("both got the same")
			}
			p.stop(first)
			endsAfter(t, second, timeout)
			p.stop(second)
			endsAfter(t, p.start(ctx), timeout)
		})
	})

	t.Run("a deadline that has ended is not used again", func(t *testing.T) {
		inBubble(t, func(t *testing.T, p *deadlines, ctx context.Context, _ context.CancelCauseFunc) {
			first := p.start(ctx)
			endsAfter(t, first, timeout)
			p.stop(first)
			endsAfter(t, p.start(ctx), timeout)
		})
	})

	t.Run("a deadline ends with its parent, for the same cause", func(t *testing.T) {
		inBubble(t, func(t *testing.T, p *deadlines, ctx context.Context, cancel context.CancelCauseFunc) {
			p.stop(p.start(ctx))
			used := p.start(ctx)
			cancel(ErrInterrupted)
			<-used.Done()
			if !isInterrupted(used) || !isInterrupted(p.start(ctx)) {
				t.Error(context.Cause(used))
			}
		})
	})

	t.Run("a deadline of another parent is not used, and is released", func(t *testing.T) {
		inBubble(t, func(t *testing.T, p *deadlines, ctx context.Context, _ context.CancelCauseFunc) {
			other, cancelOther := context.WithCancel(context.Background())
			theirs := p.start(other)
			p.stop(theirs)
			cancelOther()
			mine := p.start(ctx)
			if mine.Err() != nil || theirs.Err() == nil {
				t.Errorf("mine: %v, theirs: %v", mine.Err(), theirs.Err())
			}
			p.stop(mine)
			p.start(context.WithoutCancel(ctx))
			if mine.Err() == nil {
				t.Error("it stays in the list of its parent for ever")
			}
		})
	})
}
