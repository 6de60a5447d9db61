package storage

import (
	"context"
	"sync"
	"time"

	"github.com/keyhook/keyhook/storage/retention"
)

// The intervals of upkeep.
const (
	upkeepInterval = time.Second
	usageInterval  = 10 * time.Second
	noticeInterval = 10 * time.Minute
	cleanInterval  = time.Minute // between deletions of rows without effect, such as expired sessions
)

// upkeep does the background work until ctx ends. It logs a failure and tries again later. Each loop has a goroutine of its own, so that
// none waits for another: a long recovery does not delay retention, nor the reverse.
func (s *Store) upkeep(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { s.cleaner.Clean(ctx) })
	loops.Go(func() { s.keepTime(ctx) })
	loops.Go(func() {
		every(ctx, upkeepInterval, func() {
			s.try(ctx, s.Queue.DropOrphans, "cannot drop the pending deliveries of deleted subscriptions")
		})
	})
	loops.Go(func() {
		every(ctx, upkeepInterval, func() {
			s.try(ctx, s.Queue.RecoverMarked, "cannot send again what failed in the outage of a subscription")
		})
	})
	loops.Go(func() {
		announce := func() {
			s.try(ctx, func(ctx context.Context) error { // by the clock that ends them
				return s.Directory.AnnounceExpiry(ctx, time.Now().UnixMilli(), s.notices)
			}, "cannot announce the end of API keys and access tokens")
		}
		announce() // a process that is often restarted tells too
		every(ctx, noticeInterval, announce)
	})
	s.keepUses(ctx)
	loops.Wait()
	last := context.WithoutCancel(ctx)
	s.try(last, s.Directory.KeepFirstRequest, "cannot store the time of the first authenticated request")
	s.try(last, func(ctx context.Context) error { return s.Directory.KeepUses(ctx, true) }, "cannot store how credentials were used")
	s.try(last, s.saveClock, "cannot store the state of the clock")
}

func every(ctx context.Context, interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}

// keepTime observes the clock, and deletes what is too old. Each step is short: no other one waits long.
func (s *Store) keepTime(ctx context.Context) {
	cleanedAt := time.Now()
	every(ctx, upkeepInterval, func() {
		s.try(ctx, s.updateClock, "cannot store the state of the clock")
		s.try(ctx, s.cleaner.Sweep, "cannot search for rows that are older than storage.retention_events or storage.retention_audit")
		s.try(ctx, s.cleaner.DeleteOld, "cannot delete rows that are older than storage.retention_events or storage.retention_audit")
		if time.Since(cleanedAt) < cleanInterval {
			return
		}
		cleanedAt = time.Now()
		if now, trusted := s.clock.TrustedTime(); trusted {
			s.try(ctx, func(ctx context.Context) error { return s.Directory.DropSessions(ctx, now) }, "cannot delete expired sessions")
		}
		s.try(ctx, s.cleaner.DeleteShortLived, "cannot delete data with a short life")
	})
}

// keepUses stores the first request soon, and the uses of credentials from time to time.
func (s *Store) keepUses(ctx context.Context) {
	savedAt := time.Now()
	every(ctx, upkeepInterval, func() {
		s.try(ctx, s.Directory.KeepFirstRequest, "cannot store the time of the first authenticated request")
		if time.Since(savedAt) >= usageInterval {
			savedAt = time.Now()
			s.try(ctx, func(ctx context.Context) error { return s.Directory.KeepUses(ctx, false) }, "cannot store how credentials were used")
		}
	})
}

// try runs do and logs its error, unless ctx has ended.
func (s *Store) try(ctx context.Context, do func(context.Context) error, message string) {
	if err := do(ctx); err != nil && ctx.Err() == nil {
		s.log.Error(message, "error", err)
	}
}

func (o Options) retention(s *Store) retention.Options {
	return retention.Options{
		File: s.File, Reads: s.pools.reads, Logs: s.pools.logs, Directory: s.Directory, Queue: s.Queue, Subscriptions: s.Subscriptions,
		IDs: s.memory.IDs, Logger: o.Logger, KeepEvents: o.KeepEvents, KeepAudit: o.KeepAudit, TrustedTime: s.clock.TrustedTime,
	}
}
