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

// PendingSummary says how many deliveries are pending, and why they wait.
type PendingSummary struct {
	Statuses SubscriptionCounts
	Blocked  []BlockedPending // in the order of Blocks, without those that block no pending delivery
}

// BlockedPending counts the pending deliveries of the subscriptions that have the same block.
type BlockedPending struct {
	By            Block `db:"blocked_by"`    // NotBlocked: they are sent when they are due
	Subscriptions int64 `db:"subscriptions"` // that have pending deliveries
	Deliveries    int64 `db:"deliveries"`
	OldestDue     int64 `db:"oldest_due"` // in milliseconds; may be in the future; 0 if no delivery is pending any more
}

// Plus returns the counts of both, with the block of the second.
func (b BlockedPending) Plus(more BlockedPending) BlockedPending {
	more.Subscriptions += b.Subscriptions
	more.Deliveries += b.Deliveries
	if more.OldestDue == 0 || b.OldestDue != 0 && b.OldestDue < more.OldestDue {
		more.OldestDue = b.OldestDue
	}
	return more
}
