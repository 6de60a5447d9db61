package webhook

import "strings"

// SubscriptionFilter selects subscriptions, newest first. A zero field selects all. Before is the row id at which the page begins.
type SubscriptionFilter struct {
	Before   int64
	Limit    int
	Statuses []Status // any of them
	Paused   *bool    // whether a person has paused them
	Pending  *bool    // whether deliveries wait for them
	Text     string   // a part of the URL or of the description
}

// EventFilter selects events, newest first. A zero field selects all. Before is the row id at which the page begins.
type EventFilter struct {
	Before         int64
	Limit          int
	Type           string // a type, or a prefix such as "user.*"
	Since          int64  // inclusive
	Until          int64  // exclusive
	IdempotencyKey string
	WithoutAudit   bool       // leave out audit events
	State          EventState // of any delivery
	Subscription   string     // public id; only deliveries to it count, and without a State, one must exist
}

// EventState is a state of deliveries by which lists of events are filtered.
type EventState string

// The states. Expired deliveries are pending too: retention is about to delete them.
const (
	AnyDelivered EventState = "delivered"
	AnyPending   EventState = "pending"
	AnyExhausted EventState = "exhausted"
	AnyDropped   EventState = "dropped"
	AnyExpired   EventState = "expired"
	ForNobody    EventState = "nobody" // there is no delivery
)

// TypeRange returns the bounds of the types that the filter selects, in the order of bytes: the first, inclusive, and an end, exclusive.
func (f EventFilter) TypeRange() (first, end string) {
	switch prefix, isPrefix := strings.CutSuffix(f.Type, "*"); {
	case f.Type == "":
		return "", "\x7f" // types have only ASCII characters
	case isPrefix:
		return prefix, strings.TrimSuffix(prefix, ".") + "/" // the character after the dot
	}
	return f.Type, f.Type + "\x00"
}

// SubscriptionCounts counts subscriptions by status.
type SubscriptionCounts struct {
	Healthy  int64 `db:"healthy"`
	Failing  int64 `db:"failing"`
	Disabled int64 `db:"disabled"`
	Paused   int64 `db:"paused"` // of the disabled ones
}

// Add counts a subscription n times. A negative n removes it.
func (c *SubscriptionCounts) Add(h Health, n int64) {
	switch h.Status {
	case Healthy:
		c.Healthy += n
	case Failing:
		c.Failing += n
	case Disabled:
		c.Disabled += n
	}
	if h.ByPerson() {
		c.Paused += n
	}
}

// FeedPosition is how far a reader of a feed has read. The zero value is no position.
type FeedPosition struct {
	Row int64 `db:"row"` // of the last event that was looked at
	At  int64 `db:"-"`   // its time; 0 if it is not known
	// Since is the time at which the reader began, if it has not come to the end of the feed since. Earlier events may follow Row.
	Since int64 `db:"-"`
	// Expired is the last event that was deleted when the reader began, if that is later than Row: a wrong clock leaves a gap.
	Expired int64 `db:"expired"`
}

// FeedRequest asks for events of a feed. Without After and Since, it begins at the creation of the subscription.
type FeedRequest struct {
	After        FeedPosition
	Since        int64 // time of the events
	Limit        int
	WithoutAudit bool // the reader may not read audit events
}

// FeedPage is a part of a feed, oldest event first. Next is how far it goes, also if it has no event. More says that the next read
// may find events at once.
type FeedPage struct {
	Target Target // signs the events
	Events []Job
	Next   FeedPosition
	More   bool
	Since  int64 // the time at which the read of these events began; 0 if it has none
}
