package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The wall clock is input and may be wrong. The file contains the last observations, so that a start notices a jump.
// While the clock is in doubt, nothing is deleted by age.

// clockInterval is how often the clock is saved.
const clockInterval = time.Minute

// clockName is the row of table instance with the clock.State.
const clockName = "clock"

// wallClock is the state of the wall clock. mu guards its fields.
type wallClock struct {
	mu      sync.Mutex
	state   clock.State
	at      time.Time // time of the last observation; its monotonic reading does not jump
	saved   time.Time // when the state was last saved
	changed bool      // the clock became doubtful or trusted since the state was last saved
}

// loadClock reads the saved state and compares it with the clock now.
func (s *Store) loadClock(t *tx) error {
	text, err := instanceValue(t, clockName)
	if err != nil {
		return err
	}
	if text != nil {
		if err := json.Unmarshal(text, &s.clock.state); err != nil {
			return fmt.Errorf("read clock: %w", err)
		}
	}
	s.clock.at = time.Now()
	before := s.clock.state
	after := s.observeClock()
	if !before.Trusted() && !after.Trusted() && before.Doubt.Since == after.Doubt.Since {
		s.log.Warn(after.Warning()) // the jump was found by an earlier start
	}
	return nil
}

// observeClock observes the clock, logs a jump, and returns the new state.
func (s *Store) observeClock() clock.State {
	c := &s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	elapsed := now.Sub(c.at) // by the monotonic clock
	c.at = now
	before := c.state
	var change clock.Change
	c.state, change = before.Observe(elapsed, now.UnixMilli())
	if change == clock.Nothing {
		return c.state
	}
	c.changed = true
	current, expected := now.UTC(), time.UnixMilli(before.Seen).Add(elapsed).UTC()
	switch change {
	case clock.Jumped:
		s.log.Warn(c.state.Warning(), "expected", expected, "clock", current)
	case clock.Returned:
		s.log.Warn("The clock is back at the expected time. Old rows are deleted again.", "clock", current)
	case clock.Confirmed:
		s.log.Warn("The clock has run for a day without a jump and is trusted. Old rows are deleted again.", "clock", current)
	}
	return c.state
}

// trustedTime returns the time in milliseconds. ok is false while the clock is in doubt. Everything that deletes by age
// must call it, so that no jump can happen between the check and the deletion.
func (s *Store) trustedTime() (now int64, ok bool) {
	state := s.observeClock()
	return state.Seen, state.Trusted()
}

// Clock returns the state of the wall clock, at most a second old.
func (s *Store) Clock() clock.State {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	return s.clock.state
}

// updateClock observes the clock. It saves the state once a minute, and when the clock becomes doubtful or trusted.
func (s *Store) updateClock(ctx context.Context) error {
	s.observeClock()
	c := &s.clock
	c.mu.Lock()
	due := c.changed || time.Since(c.saved) >= clockInterval
	c.mu.Unlock()
	if !due {
		return nil
	}
	return s.saveClock(ctx)
}

// saveClock saves the state of the clock. If that fails, it is tried again a minute later.
func (s *Store) saveClock(ctx context.Context) error {
	c := &s.clock
	c.mu.Lock()
	state := c.state
	c.saved, c.changed = time.Now(), false
	c.mu.Unlock()
	return s.change(ctx, func(t *tx) error { return writeClock(t, state) })
}

func writeClock(t *tx, state clock.State) error {
	text, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encode clock: %w", err)
	}
	return setInstanceValue(t, clockName, text)
}

// AcceptClock confirms that the clock is right, so that old rows are deleted again. It does nothing if the clock is
// trusted.
func (s *Store) AcceptClock(ctx context.Context, by access.Actor) error {
	return s.change(ctx, func(t *tx) error {
		state := s.Clock()
		if state.Trusted() {
			return nil
		}
		if err := writeClock(t, clock.State{Seen: state.Seen}); err != nil {
			return err
		}
		t.OnCommit(s.endClockDoubt)
		return s.audit(t, by, 0, access.ClockAccepted, auditTarget{Type: "clock"}, map[string]any{
			"jump_seconds": int64(state.Jump() / time.Second), "last_trusted": string(webhook.AppendTime(nil, state.Doubt.Trusted)),
		})
	})
}

// endClockDoubt ends the doubt.
func (s *Store) endClockDoubt() {
	c := &s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Doubt, c.changed = nil, true // save it again, because upkeep may have saved the doubt in the same transaction
	s.log.Warn("The clock was accepted. Old rows are deleted again.", "clock", time.UnixMilli(c.state.Seen).UTC())
}
