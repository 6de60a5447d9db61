package storage

import (
	"context"
	"time"
)

// How often the file is looked after.
const (
	upkeepInterval = time.Second
	usageInterval  = 10 * time.Second
	cleanInterval  = time.Minute // between deletions of what has no effect any more, such as expired sessions
)

// upkeep does the work that no request asks for, until ctx ends. A failure is logged and tried again.
func (s *Store) upkeep(ctx context.Context) {
	tick := time.NewTicker(upkeepInterval)
	defer tick.Stop()
	noted, cleaned := time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			s.try(context.WithoutCancel(ctx), s.KeepFirstRequest, "cannot note that somebody has made an authenticated request")
			s.try(context.WithoutCancel(ctx), s.KeepLastUses, "cannot note when credentials were last used")
			s.try(context.WithoutCancel(ctx), s.saveClock, "cannot write down the time")
			return
		case <-s.FirstRequest():
		case <-tick.C:
		}
		s.try(ctx, s.keepTime, "cannot write down the time")
		s.try(ctx, s.KeepFirstRequest, "cannot note that somebody has made an authenticated request")
		s.try(ctx, s.dropOrphans, "cannot drop the deliveries of removed subscriptions")
		s.try(ctx, s.sweep, "cannot look for what is older than storage.retention_events and storage.retention_audit")
		s.try(ctx, s.deleteOld, "cannot forget what is older than storage.retention_events and storage.retention_audit")
		if time.Since(cleaned) >= cleanInterval {
			cleaned = time.Now()
			s.try(ctx, s.dropSessions, "cannot delete sessions that have expired")
			s.try(ctx, s.dropStorageDays, "cannot delete the stored bytes of past days")
			s.try(ctx, s.dropPreviousSecrets, "cannot delete previous signing secrets whose overlap is over")
		}
		if time.Since(noted) >= usageInterval {
			noted = time.Now()
			s.try(ctx, s.KeepLastUses, "cannot note when credentials were last used")
		}
	}
}

// dropSessions deletes sessions that have expired, unless the clock is doubted.
func (s *Store) dropSessions(ctx context.Context) error {
	now, trusted := s.trustedTime()
	if !trusted {
		return nil
	}
	return s.DropSessions(ctx, now)
}

// try does one thing and logs what it fails with, unless that is the end of ctx.
func (s *Store) try(ctx context.Context, do func(context.Context) error, complaint string) {
	if err := do(ctx); err != nil && ctx.Err() == nil {
		s.log.Error(complaint, "error", err)
	}
}
