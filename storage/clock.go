package storage

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/instance"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

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

// AcceptClock confirms that the clock is right, so that old rows are deleted again. It does nothing if the clock is
// trusted.
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
