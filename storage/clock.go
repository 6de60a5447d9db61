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

// The wall clock is input, and may be wrong. What the store has seen of it is kept in the file, so that a start can tell
// that it has jumped. While it is doubted, nothing is deleted by age: all that waits until the clock is right.

// clockInterval is how often the time is written to the file.
const clockInterval = time.Minute

// keptClock names the row of the instance that holds a clock.State.
const keptClock = "clock"

// wallClock is what the store knows of the wall clock. Its fields are guarded by mu.
type wallClock struct {
	mu      sync.Mutex
	state   clock.State
	at      time.Time // of the last observation; its monotonic reading does not jump
	saved   time.Time // when the state was last written
	changed bool      // since the state was last written, the clock has become doubted or trusted
}

// loadClock reads what the file says of the clock and compares it with the clock of today.
func (s *Store) loadClock(t *tx) error {
	text, err := instance(t, keptClock)
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
		s.log.Warn(after.Warning()) // of what an earlier start has found
	}
	return nil
}

// observeClock looks at the clock, tells the log where it has jumped, and returns what is known of it now.
func (s *Store) observeClock() clock.State {
	c := &s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	elapsed := now.Sub(c.at) // by the monotonic clock
	c.at = now
	was := c.state
	var change clock.Change
	c.state, change = was.Observe(elapsed, now.UnixMilli())
	if change == clock.Nothing {
		return c.state
	}
	c.changed = true
	shows, expected := now.UTC(), time.UnixMilli(was.Seen).Add(elapsed).UTC()
	switch change {
	case clock.Jumped:
		s.log.Warn(c.state.Warning(), "expected", expected, "clock", shows)
	case clock.Returned:
		s.log.Warn("The clock is where it was expected again. Old rows are deleted again.", "clock", shows)
	case clock.Confirmed:
		s.log.Warn("The clock has run for a day without a jump and is trusted. Old rows are deleted again.", "clock", shows)
	}
	return c.state
}

// trustedTime returns the present in milliseconds; ok is false while the clock is doubted. Whatever deletes by age asks
// it, so that no jump comes between the look and the deletion.
func (s *Store) trustedTime() (now int64, ok bool) {
	state := s.observeClock()
	return state.Seen, state.Trusted()
}

// Clock returns what is known of the wall clock, as of the last second.
func (s *Store) Clock() clock.State {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	return s.clock.state
}

// keepTime observes the clock, and writes it to the file once a minute, and whenever it has become doubted or trusted.
func (s *Store) keepTime(ctx context.Context) error {
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

// saveClock writes what is known of the clock. Where that fails, the next minute tries again.
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
	if _, err := t.Exec("INSERT OR REPLACE INTO instance (name, value) VALUES (?, ?)", keptClock, text); err != nil {
		return fmt.Errorf("keep time: %w", err)
	}
	return nil
}

// AcceptClock confirms that the clock is right, so that old rows are deleted again from now on. A clock that is not
// doubted stays as it is.
func (s *Store) AcceptClock(ctx context.Context, by access.Actor) error {
	return s.change(ctx, func(t *tx) error {
		doubted := s.Clock()
		if doubted.Trusted() {
			return nil
		}
		if err := writeClock(t, clock.State{Seen: doubted.Seen}); err != nil {
			return err
		}
		t.OnCommit(s.clockAccepted)
		return s.audit(t, by, 0, access.ClockAccepted, auditTarget{Type: "clock"}, map[string]any{
			"jump_seconds": int64(doubted.Jump() / time.Second), "last_trusted": string(webhook.AppendTime(nil, doubted.Doubt.Trusted)),
		})
	})
}

// clockAccepted ends the doubt.
func (s *Store) clockAccepted() {
	c := &s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Doubt, c.changed = nil, true // written again: upkeep may have written the doubt in the same transaction
	s.log.Warn("The clock was accepted. Old rows are deleted again.", "clock", time.UnixMilli(c.state.Seen).UTC())
}
