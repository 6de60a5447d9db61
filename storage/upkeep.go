package storage

import (
	"context"
	"sync"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/instance"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The intervals of upkeep.
const (
	upkeepInterval = time.Second
	usageInterval  = 10 * time.Second
	noticeInterval = 10 * time.Minute
	cleanInterval  = time.Minute // between deletions of rows without effect, such as expired sessions
)

// step is a piece of upkeep, and the log entry if it fails.
type step struct {
	do     func(context.Context) error
	failed string
	fails  bool // it failed the last time
}

// upkeep does the background work until ctx ends. It logs a failure and tries again later. Each loop has a goroutine of its own, so that
// none waits for another: a long recovery does not delay retention, nor the reverse.
func (s *Store) upkeep(ctx context.Context) {
	firstRequest := step{do: s.Directory.KeepFirstRequest, failed: "cannot store the time of the first authenticated request"}
	uses := func(all bool) step {
		return step{do: func(ctx context.Context) error { return s.Directory.KeepUses(ctx, all) }, failed: "cannot store how credentials were used"}
	}
	notice := step{do: func(ctx context.Context) error { // by the clock that ends them
		return s.Directory.AnnounceExpiry(ctx, time.Now().UnixMilli(), s.notices)
	}, failed: "cannot announce the end of API keys and access tokens"}
	var loops sync.WaitGroup
	loop := func(interval time.Duration, steps ...step) { loops.Go(func() { s.every(ctx, interval, steps...) }) }
	loops.Go(func() { s.cleaner.Clean(ctx) })
	loops.Go(func() {
		s.try(ctx, &notice) // a process that is often restarted tells too
		s.every(ctx, noticeInterval, notice)
	})
	loop(upkeepInterval, // each of these is short
		step{do: s.updateClock, failed: "cannot store the state of the clock"},
		step{do: s.cleaner.Sweep, failed: "cannot search for rows that are older than storage.retention_events or storage.retention_audit"},
		step{do: s.cleaner.DeleteOld, failed: "cannot delete rows that are older than storage.retention_events or storage.retention_audit"})
	loop(upkeepInterval, step{do: s.Queue.DropOrphans, failed: "cannot drop the pending deliveries of deleted subscriptions"})
	loop(upkeepInterval, step{do: s.Queue.RecoverMarked, failed: "cannot send again what failed in the outage of a subscription"})
	loop(upkeepInterval, firstRequest)
	loop(usageInterval, uses(false))
	loop(cleanInterval, step{do: s.dropSessions, failed: "cannot delete expired sessions"},
		step{do: s.cleaner.DeleteShortLived, failed: "cannot delete data with a short life"})
	loops.Wait()
	last := context.WithoutCancel(ctx)
	for _, end := range []step{firstRequest, uses(true), {do: s.saveClock, failed: "cannot store the state of the clock"}} {
		s.try(last, &end)
	}
}

// every tries the steps in their order, once in each interval.
func (s *Store) every(ctx context.Context, interval time.Duration, steps ...step) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for i := range steps {
				s.try(ctx, &steps[i])
			}
		}
	}
}

// try does a step. It logs the first error since the last success, unless ctx has ended: a full disk must not fill the log.
func (s *Store) try(ctx context.Context, one *step) {
	err := one.do(ctx)
	if err != nil && ctx.Err() == nil && !one.fails {
		s.log.Error(one.failed, "error", err)
	}
	one.fails = err != nil
}

func (s *Store) dropSessions(ctx context.Context) error {
	now, trusted := s.clock.TrustedTime()
	if !trusted {
		return nil
	}
	return s.Directory.DropSessions(ctx, now)
}

// The wall clock is input and may be wrong. The file contains the last observations, so that a start notices a jump.
// While the clock is in doubt, nothing is deleted by age.

// clockName is the row of table instance with the clock.State.
const clockName = "clock"

// Clock returns the state of the wall clock.
func (s *Store) Clock() clock.State { return s.clock.Observe() }

func (s *Store) updateClock(ctx context.Context) error {
	s.clock.Observe()
	if !s.clock.SaveDue() {
		return nil
	}
	return s.saveClock(ctx)
}

func (s *Store) saveClock(ctx context.Context) error {
	state := s.clock.StateToSave()
	return s.File.Write(ctx, sqlite.Work{}, func(t *sqlite.Tx) error { return instance.Save(t, clockName, state) })
}

// AcceptClock confirms that the clock is right, so that old rows are deleted again. It does nothing if the clock is trusted.
func (s *Store) AcceptClock(ctx context.Context, by access.Actor) error {
	return s.File.Write(ctx, sqlite.Work{}, func(t *sqlite.Tx) error {
		state := s.Clock()
		if state.Trusted() {
			return nil
		}
		if err := instance.Save(t, clockName, clock.State{Seen: state.Seen}); err != nil {
			return err
		}
		t.OnCommit(s.clock.Accept)
		return s.Queue.Audit(t, by, 0, access.ClockAccepted, audit.Target{Type: "clock"}, map[string]any{
			"jump_seconds": int64(state.Jump() / time.Second), "last_trusted": string(webhook.AppendTime(nil, state.Doubt.Trusted)),
		})
	})
}
