package webhook

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
