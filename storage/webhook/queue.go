package webhook

// Hold says that nothing is sent, whatever is due, until an operator releases the queue.
type Hold struct {
	Since  int64  // in milliseconds
	Reason string // as whoever held it wrote it
	Last   int64  // row id of the newest delivery by then: Discard drops none that came after it
}

// Queue is what waits to be sent, and whether it is held.
type Queue struct {
	Hold          *Hold // nil: what is due is sent
	Deliveries    int64
	Subscriptions int64
	Largest       []Queued // those for which most is waiting, at most MaxQueued of them
}

// MaxQueued is how many subscriptions a Queue lists.
const MaxQueued = 200

// Queued is what waits for one subscription, be it open or not.
type Queued struct {
	SubscriptionID string `db:"subscription_public_id"`
	OrganizationID string `db:"organization_public_id"`
	URL            string `db:"url"`
	Pending        int64  `db:"pending"`
	OldestDue      int64  `db:"oldest_due"` // in milliseconds; may lie in the future
}
