package webhook

import (
	"time"

	"github.com/keyhook/keyhook/storage/filter"
)

// EventFacts is what is stored about an event, for the explanation of its deliveries.
type EventFacts struct {
	RowID    int64  `db:"id"`
	Type     string `db:"type"`
	At       int64  `db:"created_at"`
	About    int64  `db:"about"`     // the subscription that the event is about, by row id; 0 if there is none
	AboutURL string `db:"about_url"` // its URL now
	IsTest   bool   `db:"is_test"`   // a test of one subscription
	// PlanLacked says that the plan of the organization had no webhooks when the event was published.
	PlanLacked bool   `db:"plan_lacked"`
	Plan       string `db:"plan"` // the plan now
	// WebhookPlan is a plan with webhooks that has API keys too if Plan has them; empty if there is none.
	WebhookPlan string `db:"webhook_plan"`
	Hold        *Hold  `db:"-"`
	// Kept is how long events are kept; 0 means forever.
	Kept time.Duration `db:"-"`
	// Expired says that the event is older than that and no open subscription waits for it. So it is being deleted.
	Expired bool `db:"expired"`
}

// ReceiverFacts is what is stored about an event and one subscription of its organization.
type ReceiverFacts struct {
	Schedule
	Birth     int64  `db:"birth"` // row id of the event about the subscription's creation
	DeletedAt *int64 `db:"deleted_at"`
	// Deliveries of the event to the subscription, those that came furthest first, and of these the newest. There may be others.
	Deliveries []DeliveryFacts `db:"-"`
	Front      *FrontFacts     `db:"-"` // nil if the subscription is not ordered, or nothing is pending
	// Missed is the condition of the present filter that the event does not fulfil; nil if it passes, or has a delivery and the filter is older.
	Missed *filter.Miss `db:"-"`
}

// FrontFacts is the delivery of an ordered subscription for which all others wait: the one in progress, or the first in order.
type FrontFacts struct {
	Event    int64  // row id
	EventID  string // its public id
	EventAt  int64  // when it was published
	SharesAt bool   // the event behind it has the same time, so a discard would drop both
	Sending  bool   // an attempt is in progress, since DueAt
	Attempts int    // that ended
	DueAt    int64
}

// DeliveryFacts is a delivery of the event with its last attempt that ended.
type DeliveryFacts struct {
	RowID    int64
	State    DeliveryState
	Sending  bool // an attempt is in progress, since DueAt
	Cause    Trigger
	Attempts int // that ended
	DueAt    int64
	Last     *Attempt // nil if none ended
	// OutOfOrder says that the subscription is ordered, but this delivery is a redelivery, which does not wait for others.
	OutOfOrder bool
}

// ReceiverFilter selects subscriptions of an organization, newest first. ID selects one subscription, which may be deleted.
// Otherwise subscriptions that were deleted before the event are left out.
type ReceiverFilter struct {
	Before int64 // row id at which the page begins
	Limit  int
	ID     string
}
