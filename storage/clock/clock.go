// Package clock owns the judgment of the wall clock: whether it agrees with what was seen of it before. It reads no clock
// and keeps nothing.
package clock

import (
	"fmt"
	"math"
	"time"
)

const (
	// Tolerance is the largest jump of the wall clock that is not doubted.
	Tolerance = time.Hour
	// Steady is how long a clock that has jumped must run without another jump before it is trusted again. A stop that is
	// no longer than this does not start the count anew: a machine that is off every night would never get there.
	Steady = 24 * time.Hour
)

// State is what is known of the wall clock. The zero value knows nothing. Times are milliseconds since the epoch.
type State struct {
	Seen  int64  `json:"seen"` // the last time that the clock has shown
	Doubt *Doubt `json:"doubt,omitempty"`
}

// Doubt says that the clock has jumped, and that nobody has confirmed the new time yet.
type Doubt struct {
	Since    int64         `json:"since"`    // when the last jump was found, by the new time
	Trusted  int64         `json:"trusted"`  // the last time before the first jump
	Expected int64         `json:"expected"` // what the clock would show now without the jump; the time of a stop is not known, so not in it
	Agreed   time.Duration `json:"agreed"`   // how long the clock has run without another jump
}

// Change is what an observation has changed.
type Change int

// The changes.
const (
	Nothing   Change = iota
	Jumped           // the clock is doubted, or doubted anew
	Returned         // the clock shows again what it would without the jump
	Confirmed        // the clock has run without a jump for as long as Steady
)

// Observe returns the state once the clock shows now. The elapsed time since the last observation comes from a clock that
// does not jump; it is 0 at a start, where nobody knows.
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
	doubt := *s.Doubt // a copy: states are shared
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

// Trusted reports whether the clock is not doubted.
func (s State) Trusted() bool { return s.Doubt == nil }

// Jump is how far the clock is ahead of what was expected; negative where it is behind, 0 where it is trusted.
func (s State) Jump() time.Duration {
	if s.Doubt == nil {
		return 0
	}
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(max(s.Seen-s.Doubt.Expected, -most), most)) * time.Millisecond
}

// TrustedAt is when a doubted clock is trusted again by itself, if it runs on without another jump and without a stop.
func (s State) TrustedAt() int64 {
	if s.Doubt == nil {
		return s.Seen
	}
	return s.Seen + (Steady - s.Doubt.Agreed).Milliseconds()
}

// Warning tells an operator what a doubted clock means; empty where the clock is trusted. Anybody may read it.
func (s State) Warning() string {
	if s.Doubt == nil {
		return ""
	}
	direction, normal := "ahead", " After a long stop or a restore this is normal."
	if s.Jump() < 0 {
		direction, normal = "back", ""
	}
	return fmt.Sprintf("The clock has jumped %s %s since %s, the last trusted time.%s Nothing is deleted by age for now. "+
		"If the clock is wrong, set it right. If it is right, do nothing: deleting starts again at %s.",
		rough(s.Jump().Abs()), direction, stamp(s.Doubt.Trusted), normal, stamp(s.TrustedAt()))
}

func stamp(at int64) string { return time.UnixMilli(at).UTC().Format(time.RFC3339) }

// rough writes a duration as people say it.
func rough(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%d days", (d+day/2)/day)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", (d+time.Hour/2)/time.Hour)
	}
	return fmt.Sprintf("%d minutes", (d+time.Minute/2)/time.Minute)
}
