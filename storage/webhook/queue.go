package webhook

// Hold says that Keyhook sends nothing until an operator releases the queue.
type Hold struct {
	Since  int64  // in milliseconds
	Reason string // the text that the operator gave
	Last   int64  // row id of the newest delivery at that time; discarding the queue drops no later ones
}

// Queue describes the pending deliveries, and says whether the queue is held.
type Queue struct {
	Hold          *Hold // nil if the queue is not held
	Deliveries    int64
	Subscriptions int64
	Largest       []Queued // the subscriptions with the most pending deliveries, at most MaxQueued
}

// MaxQueued is how many subscriptions a Queue lists.
const MaxQueued = 200

// Queued describes the pending deliveries of one subscription in any status.
type Queued struct {
	SubscriptionID         string  `db:"subscription_public_id"`
	OrganizationID         string  `db:"organization_public_id"`
	OrganizationExternalID *string `db:"organization_external_id"`
	OrganizationName       string  `db:"organization_name"`
	URL                    string  `db:"url"`
	Pending                int64   `db:"pending"`
	OldestDue              int64   `db:"oldest_due"` // in milliseconds; may be in the future
}
