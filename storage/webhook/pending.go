package webhook

// PendingSummary says how many deliveries are pending, and why they wait.
type PendingSummary struct {
	Statuses SubscriptionCounts
	Blocked  []BlockedPending // in the order of Blocks, without those that block no pending delivery
}

// BlockedPending counts the pending deliveries of the subscriptions that have the same block.
type BlockedPending struct {
	By            Block // NotBlocked: they are sent when they are due
	Subscriptions int64 // that have pending deliveries
	Deliveries    int64
	OldestDue     int64 // in milliseconds; may be in the future; 0 if no delivery is pending any more
}

// Blocks are all blocks, in the order in which BlockedBy looks for them. NotBlocked comes first.
func Blocks() []Block {
	return []Block{NotBlocked, BlockedByPause, BlockedByFault, BlockedByPlan, BlockedByHold}
}
