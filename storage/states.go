package storage

// The numbers of package webhook as statements write them. SQLite uses a partial index only where the statement has the
// number itself in it, and not a parameter.
const (
	statePending   = "0" // webhook.Pending
	stateDelivered = "1" // webhook.Delivered
	stateExhausted = "2" // webhook.Exhausted
	stateDropped   = "3" // webhook.Dropped

	outcomeSending     = "0" // webhook.Sending
	outcomeFailed      = "2" // webhook.Failed
	outcomeInterrupted = "3" // webhook.Interrupted

	causeEvent = "0" // webhook.ByEvent
	causeHand  = "2" // webhook.ByHand
	causeTest  = "3" // webhook.ByTest
)

// firstPending selects the row id of the pending delivery that is due first, of the subscription that an expression names.
func firstPending(subscription string) string {
	return `SELECT d.id FROM deliveries d INDEXED BY deliveries_pending
		WHERE d.subscription_id = ` + subscription + ` AND d.state = ` + statePending + ` ORDER BY d.due_at LIMIT 1`
}
