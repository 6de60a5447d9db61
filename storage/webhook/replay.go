package webhook

import "strings"

// Only is what of a period is sent again.
type Only string

// What can be sent again.
const (
	OnlyFailed Only = "failed" // whose attempts were used up, and which neither has arrived since nor waits to be sent
	OnlyMissed Only = "missed" // what was never to be sent: the subscription was disabled, or the plan lacked webhooks
	OnlyAll    Only = "all"    // both
)

// Replay asks to send a subscription once more what it has not got of the events of a period.
type Replay struct {
	Since      int64 // inclusive
	Until      int64 // exclusive; 0 is the present
	EventTypes Types // narrows what the subscription wants; empty does not
	Only       Only
}

// Common lists the patterns of what both want, none of which another covers; nil where there is nothing.
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

// covers reports whether whatever matches pattern b matches a too.
func covers(a, b string) bool {
	prefix, isPrefix := strings.CutSuffix(a, "*")
	return a == b || isPrefix && strings.HasPrefix(b, prefix)
}
