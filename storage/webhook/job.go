package webhook

// Target is what sending to a subscription needs: address, secrets, limit and health, as they are now.
type Target struct {
	Subscription   int64  // row id
	ID             string // public id
	Organization   int64  // row id
	OrganizationID string
	URL            string
	Secret         Secret
	Previous       Secret // also signs until PreviousUntil, in milliseconds; zero if there is none
	PreviousUntil  int64
	Headers        []Header // its own request headers
	// RateLimitPerSecond limits the attempts per second; nil is no limit.
	RateLimitPerSecond *int64
	Ordered            bool // one delivery at a time, in the order of publication
	Gate
	Unusable string // why the secret or a header cannot be decrypted; empty if both can
}

// Lane is a subscription with pending deliveries.
type Lane struct {
	Subscription int64 `db:"subscription_id"`
	Organization int64 `db:"organization_id"` // row id; 0 if the subscription was deleted
	DueAt        int64 `db:"due_at"`          // the earliest
}

// Backlog counts pending deliveries by the state of their subscriptions. Closed subscriptions are disabled or deleted, or
// their plan has no webhooks.
type Backlog struct {
	Healthy   Waiting `db:"healthy"`
	Failing   Waiting `db:"failing"`
	Closed    Waiting `db:"closed"`
	OldestDue int64   `db:"oldest_due"` // the earliest due time for an open subscription; 0 if nothing is pending
	Held      bool    `db:"-"`          // whether the queue is held; then nothing is late
}

// Waiting counts pending deliveries and their subscriptions.
type Waiting struct {
	Lanes      int64 `db:"lanes"`
	Deliveries int64 `db:"deliveries"`
}

// Job is a pending delivery with all that sending needs, except the Target.
type Job struct {
	Delivery     int64   `db:"id"`
	Subscription int64   `db:"subscription_id"`
	Organization int64   `db:"organization_id"` // row id
	Event        int64   `db:"event_id"`
	EventID      string  `db:"-"`
	EventType    string  `db:"event_type"`
	EventAt      int64   `db:"event_at"`
	Body         []byte  `db:"body"`
	Attempts     int     `db:"attempts"` // made before this one
	DueAt        int64   `db:"due_at"`
	Cause        Trigger `db:"cause"`    // of the delivery
	Sequence     int64   `db:"sequence"` // of an ordered subscription: the place in its order; 0: outside the order, as a redelivery
	Begun        bool    `db:"-"`        // the transaction that created the delivery has begun its first attempt
	Epoch        int64   `db:"-"`        // of the subscription then, if Begun
}

// Number returns the number of the next attempt, from 1.
func (j Job) Number() int { return j.Attempts + 1 }

// Trigger returns why the next attempt is made.
func (j Job) Trigger() Trigger {
	if j.Attempts > 0 {
		return ByRetry
	}
	return j.Cause
}

// AttemptRow returns the row id of an attempt. It contains the delivery and the number, so neither look-up needs an index. A
// delivery has less than 256 attempts.
func AttemptRow(delivery int64, number int) int64 { return delivery<<8 | int64(number) }

// DeliveryRow returns the row id of the delivery of an attempt.
func DeliveryRow(attempt int64) int64 { return attempt >> 8 }

// Start asks to begin an attempt. Epoch is the one that the caller knows; the store refuses an old epoch.
type Start struct {
	Delivery     int64
	Subscription int64
	Epoch        int64
	Number       int
	Trigger      Trigger
}

// Result is how an attempt ended, and when to try again if it failed.
type Result struct {
	Attempt        int64
	Delivery       int64
	Subscription   int64
	Epoch          int64 // in which the attempt began
	Number         int
	Trigger        Trigger
	Succeeded      bool
	ResponseStatus *int
	ResponseBody   string
	ResponseHeader string // see CutHeader
	DurationMS     int64
	Failure        Failure // zero on success
	RetryAt        int64   // when the delivery is due again, if it has attempts left
	ProbeAt        int64   // when the next probe is due, if the subscription is failing
}

// Settled says what changed when a result was recorded.
type Settled struct {
	State   DeliveryState
	DueAt   int64 // while Pending; the time of the end if Exhausted
	Health  Health
	Changed bool // whether Health.Status changed
}

// Watcher receives what matters to the dispatcher after each commit, in the order of commits. The writer calls it: it must return at once.
type Watcher interface {
	// TakePlace reports whether the first attempt of a new delivery may begin in the transaction that creates it. If so,
	// DeliveriesCreated passes the job with Begun set, or ReturnPlace says that the transaction was undone.
	TakePlace(organization, subscription int64) bool
	ReturnPlace(organization, subscription int64)
	// DeliveriesCreated passes new pending deliveries of one organization, with their bodies.
	DeliveriesCreated(jobs []Job)
	// SubscriptionsChanged names the subscriptions whose Target may have changed, or whose pending deliveries changed in another way
	// than by DeliveriesCreated and Record. No name means that any subscription may have changed.
	SubscriptionsChanged(subscriptions ...int64)
	// BodiesChanged names events whose bodies were replaced. No request with an old body begins after it returns.
	BodiesChanged(events []int64)
}
