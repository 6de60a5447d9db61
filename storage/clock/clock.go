// Package clock decides whether to trust the wall clock, by comparing it with its earlier values. It stores nothing: the caller saves
// the state.
package clock

import (
	"fmt"
	"math"
	"time"
)

const (
	// Tolerance is the largest jump of the wall clock that causes no doubt.
	Tolerance = time.Hour
	// Steady is how long a clock must run without another jump before it is trusted again. A stop of at most this time does
	// not restart the count. Otherwise a machine that is off every night would never trust its clock.
	Steady = 24 * time.Hour
)

// State is what is known about the wall clock. The zero value knows nothing. Times are milliseconds since the epoch.
type State struct {
	Seen  int64  `json:"seen"` // the last observed time
	Doubt *Doubt `json:"doubt,omitempty"`
}

// Doubt says that the clock jumped, and that the new time is not confirmed.
type Doubt struct {
	Since    int64         `json:"since"`    // when the last jump was observed, in the new time
	Trusted  int64         `json:"trusted"`  // the last time before the first jump
	Expected int64         `json:"expected"` // the time now without the jump; it does not include stops, whose length is unknown
	Agreed   time.Duration `json:"agreed"`   // how long the clock has run without another jump
}

// Change is the result of an observation.
type Change int

// The changes.
const (
	Nothing   Change = iota
	Jumped           // the clock jumped, for the first time or again
	Returned         // the clock is back at the expected time
	Confirmed        // the clock ran without a jump for as long as Steady
)

// Observe returns the state after the clock shows now. elapsed is the time since the last observation, from a clock that does
// not jump. It is 0 at a start, because the length of a stop is unknown.
func (s State) Observe(elapsed time.Duration, now int64) (State, Change) {
	switch {
	case s == State{}:
		return State{Seen: now}, Nothing
	case s.Doubt == nil:
		expected := s.Seen + elapsed.Milliseconds()
		if near(now, expected) {
			return State{Seen: now}, Nothing
		}
		return State{Seen: now, Doubt: &Doubt{Since: now, Trusted: s.Seen, Expected: expected}}, Jumped
	}
	doubt := *s.Doubt // a copy, because states are shared
	doubt.Expected += elapsed.Milliseconds()
	ahead := now - s.Seen - elapsed.Milliseconds()
	switch {
	case near(now, doubt.Expected):
		return State{Seen: now}, Returned
	case near(ahead, 0):
		if doubt.Agreed += elapsed; doubt.Agreed >= Steady {
			return State{Seen: now}, Confirmed
		}
		return State{Seen: now, Doubt: &doubt}, Nothing
	}
	if doubt.Since = now; ahead < 0 || ahead > Steady.Milliseconds() {
		doubt.Agreed = 0
	}
	return State{Seen: now, Doubt: &doubt}, Jumped
}

func near(a, b int64) bool { return max(a-b, b-a) <= Tolerance.Milliseconds() }

// Trusted reports whether there is no doubt.
func (s State) Trusted() bool { return s.Doubt == nil }

// Jump returns how far the clock is ahead of the expected time. It is negative for a clock behind, and 0 for a trusted one.
func (s State) Jump() time.Duration {
	if s.Doubt == nil {
		return 0
	}
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(max(s.Seen-s.Doubt.Expected, -most), most)) * time.Millisecond
}

// TrustedAt returns when the clock is trusted again, if it runs without another jump and without a stop.
func (s State) TrustedAt() int64 {
	if s.Doubt == nil {
		return s.Seen
	}
	return s.Seen + (Steady - s.Doubt.Agreed).Milliseconds()
}

// Warning tells an operator what the doubt means. It is empty for a trusted clock. It is public.
func (s State) Warning() string {
	if s.Doubt == nil {
		return ""
	}
	direction, normal := "ahead", " After a long stop or a restore this is normal."
	if s.Jump() < 0 {
		direction, normal = "back", ""
	}
	return fmt.Sprintf("The clock has jumped %.1f hours %s since %s, the last trusted time.%s Nothing is deleted by age for now. "+
		"If the clock is wrong, set it right. If it is right, do nothing: deleting starts again at %s.",
		s.Jump().Abs().Hours(), direction, stamp(s.Doubt.Trusted), normal, stamp(s.TrustedAt()))
}

func stamp(at int64) string { return time.UnixMilli(at).UTC().Format(time.RFC3339) }
