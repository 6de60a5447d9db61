package webhook

import "strings"

// Only selects the deliveries of a period that are sent again.
type Only string

// What can be sent again.
const (
	OnlyFailed Only = "failed" // all attempts failed, and the event neither arrived later nor is pending again
	OnlyMissed Only = "missed" // no delivery was made: the plan had no webhooks, or the subscription did not want the type yet
	OnlyAll    Only = "all"    // both
)

// Replay asks to send a subscription the events of a period that it has not received.
type Replay struct {
	Since        int64 // inclusive
	Until        int64 // exclusive; 0 is now
	EventTypes   Types // selects among the types that the subscription wants; empty selects all
	Only         Only
	WithoutAudit bool // leave out audit events
	DryRun       bool // only count
}

// Replayed counts the deliveries of a replay by the reason why the subscription has not received the event.
type Replayed struct {
	Exhausted int64 `db:"exhausted"`  // all attempts failed
	Plan      int64 `db:"plan"`       // the plan had no webhooks
	TypeAdded int64 `db:"type_added"` // the subscription did not want the type when the event was published
	// FilterChanged counts events older than the present filter, which they pass.
	FilterChanged int64 `db:"filter_changed"`
}

// Total returns the number of all deliveries.
func (r Replayed) Total() int64 { return r.Exhausted + r.Plan + r.TypeAdded + r.FilterChanged }

// Add adds other counts.
func (r *Replayed) Add(o Replayed) {
	r.Exhausted += o.Exhausted
	r.Plan += o.Plan
	r.TypeAdded += o.TypeAdded
	r.FilterChanged += o.FilterChanged
}

// RecoveryRequest asks to make a subscription work again after its receiver was repaired.
type RecoveryRequest struct {
	Since        int64 // in milliseconds; 0 is the start of the outage
	Activate     bool  // also activate a subscription that a person has paused
	WithoutAudit bool  // leave out audit events
	DryRun       bool  // only count
}

// Recovery says what the recovery of a subscription sends.
type Recovery struct {
	Deliveries int64 // new ones, of events whose deliveries ended exhausted
	Pending    int64 // that waited before
	Since      int64 // in milliseconds; deliveries that ended exhausted earlier are not sent again
	BlockedBy  Block // BlockedByHold if all of this waits for the release of the queue
}

// BulkRequest asks to send again what a list of events shows.
type BulkRequest struct {
	Events  EventFilter // with a State, which is neither AnyPending nor ForNobody
	Recover bool        // send only what has not arrived, and activate the subscriptions that failures have disabled
	DryRun  bool        // only count
}

// BulkResult says what a BulkRequest sends.
type BulkResult struct {
	Events        int64 // in the list
	Deliveries    int64 // new ones
	Subscriptions int64 // with a delivery in the state of the list
	Pending       int64 // deliveries to these subscriptions that waited before
	BlockedBy     Block // as in Recovery
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

// covers reports whether every type that matches b, a pattern or a type, also matches pattern a.
func covers(a, b string) bool {
	prefix, isPrefix := strings.CutSuffix(a, "*")
	return a == b || isPrefix && strings.HasPrefix(b, prefix)
}

// Preview says which of the newest events of an organization pass a filter. Sample are the ids of some of them, the newest first.
type Preview struct {
	Examined, Matched int
	Sample            []string
}
