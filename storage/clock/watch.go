package clock

import (
	"log/slog"
	"sync"
	"time"
)

// saveInterval is how often the state is saved.
const saveInterval = time.Minute

// Watch observes the wall clock and logs its jumps. Its methods may be called at the same time.
type Watch struct {
	log *slog.Logger

	mu    sync.Mutex // guards the fields below
	state State
	at    time.Time // time of the last observation by the monotonic clock; its wall reading may be wrong
	saved time.Time // when the state was last saved; zero: it must be saved at once
}

// NewWatch returns a watch that knows nothing.
func NewWatch(log *slog.Logger) *Watch { return &Watch{log: log} }

// Start compares the clock with the saved state of an earlier process.
func (w *Watch) Start(saved State) {
	w.Set(saved)
	now := w.Observe()
	if !saved.Trusted() && !now.Trusted() && saved.Doubt.Since == now.Doubt.Since {
		w.log.Warn(now.Warning()) // the jump was found by an earlier start
	}
}

// Set replaces the state, as if it was just observed.
func (w *Watch) Set(state State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state, w.at, w.saved = state, time.Now(), time.Time{}
}

// Observe observes the clock, logs a jump, and returns the new state.
func (w *Watch) Observe() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	elapsed := time.Since(w.at) // by the monotonic clock, which a time after March 2157 lacks; so at keeps its reading
	w.at = w.at.Add(elapsed)
	elapsed = max(elapsed, 0) // a process that began after March 2157 has no monotonic reading
	before := w.state
	var change Change
	w.state, change = before.Observe(elapsed, now.UnixMilli())
	if change == Nothing {
		return w.state
	}
	w.saved = time.Time{}
	current, expected := now.UTC(), time.UnixMilli(before.Seen).Add(elapsed).UTC()
	switch change {
	case Jumped:
		w.log.Warn(w.state.Warning(), "expected", expected, "clock", current)
	case Returned:
		w.log.Warn("The clock is back at the expected time. Old rows are deleted again.", "clock", current)
	case Confirmed:
		w.log.Warn("The clock has run for a day without a jump and is trusted. Old rows are deleted again.", "clock", current)
	}
	return w.state
}

// TrustedTime returns the time in milliseconds. ok is false while the clock is in doubt. Everything that deletes by age
// must call it, so that no jump can happen between the check and the deletion.
func (w *Watch) TrustedTime() (now int64, ok bool) {
	state := w.Observe()
	return state.Seen, state.Trusted()
}

// SaveDue reports whether the state must be saved: once a minute, and when the clock becomes doubtful or trusted.
func (w *Watch) SaveDue() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.saved) >= saveInterval
}

// StateToSave returns the state that the caller saves now. If that fails, saving is due again a minute later.
func (w *Watch) StateToSave() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.saved = time.Now()
	return w.state
}

// Accept ends the doubt.
func (w *Watch) Accept() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state.Doubt, w.saved = nil, time.Time{} // saved again, because the doubt may have been saved meanwhile
	w.log.Warn("The clock was accepted. Old rows are deleted again.", "clock", time.UnixMilli(w.state.Seen).UTC())
}
