package webhook

import "strings"

// Only selects the deliveries of a period that are sent again.
type Only string

// What can be sent again.
const (
	OnlyFailed Only = "failed" // all attempts failed, and the event neither arrived later nor is pending again
	OnlyMissed Only = "missed" // no delivery was made: the subscription was disabled, or the plan had no webhooks
	OnlyAll    Only = "all"    // both
)

// Replay asks to send a subscription the events of a period that it has not received.
type Replay struct {
	Since      int64 // inclusive
	Until      int64 // exclusive; 0 is now
	EventTypes Types // selects among the types that the subscription wants; empty selects all
	Only       Only
}

// Common lists patterns for the types that both want. No pattern covers another; nil if there are none.
func (t Types) Common(other Types) []string {
	var common []string
	patterns := other.Patterns()
	for _, a := range t.Patterns() {
		for _, b := range patterns {
			switch {
			case covers(b, a):
				common = append(common, a)
			case covers(a, b):
				common = append(common, b)
			}
		}
	}
	return common
}

// covers reports whether every type that matches pattern b also matches a.
func covers(a, b string) bool {
	prefix, isPrefix := strings.CutSuffix(a, "*")
	return a == b || isPrefix && strings.HasPrefix(b, prefix)
}
