package webhook

// Target is where and how a subscription's deliveries are sent at present.
type Target struct {
	Subscription   int64  // row id
	ID             string // public id
	Organization   int64  // row id
	OrganizationID string
	URL            string
	Secret         Secret
	Previous       Secret // signs beside Secret until PreviousUntil, in milliseconds; zero where there is none
	PreviousUntil  int64
	// RateLimitPerSecond is how many attempts may be made in a second; nil is as many as there are.
	RateLimitPerSecond *int64
	Health
	Open     bool   // active, not removed, the plan has webhooks, and the queue is not held
	Unusable string // why the secret cannot be unsealed; empty where it can
}

// Lane is a subscription with pending deliveries.
type Lane struct {
	Subscription int64 `db:"subscription_id"`
	Organization int64 `db:"organization_id"` // row id; 0 where the subscription is gone
	Pending      int64 `db:"pending"`
	DueAt        int64 `db:"due_at"` // the earliest
}

// Backlog is what waits to be sent, by the state of the subscriptions that it waits for. Closed ones are disabled, removed,
// or without a plan that has webhooks.
type Backlog struct {
	Healthy, Failing, Closed Waiting
	OldestDue                int64 // when the delivery became due that has waited longest for an open one; 0 where none waits
	Held                     bool  // the whole queue is; nothing is late then
}

// Waiting is how many deliveries wait, and for how many subscriptions.
type Waiting struct {
	Lanes, Deliveries int64
}

// Job is a pending delivery with all that sending it needs but the Target.
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
	Cause        Trigger `db:"cause"` // of the delivery
}

// Number is the number of the attempt that comes next, from 1.
func (j Job) Number() int { return j.Attempts + 1 }

// Trigger is why that attempt is made.
func (j Job) Trigger() Trigger {
	if j.Attempts > 0 {
		return ByRetry
	}
	return j.Cause
}

// Start asks to begin an attempt under the epoch that the asker believes in.
type Start struct {
	Delivery     int64
	Subscription int64
	Epoch        int64
	Number       int
	Trigger      Trigger
}

// Result is how an attempt ended, with what follows if it failed.
type Result struct {
	Attempt        int64
	Delivery       int64
	Subscription   int64
	Epoch          int64 // in which it began
	Number         int
	Trigger        Trigger
	Succeeded      bool
	ResponseStatus *int
	ResponseBody   string
	DurationMS     int64
	Failure        Failure // zero on success
	RetryAt        int64   // when the delivery is due again, should attempts be left
	ProbeAt        int64   // when the next probe is due, should the subscription be failing
}

// Settled is what a recorded result led to.
type Settled struct {
	State   DeliveryState
	DueAt   int64 // while Pending
	Health  Health
	Changed bool // Health.Status is not what it was before
}

// Watcher is told after a commit, in the order of commits, what matters to the dispatcher. It is called by the writer
// and must return at once.
type Watcher interface {
	// Fresh hands over new pending deliveries of one organization, bodies in hand.
	Fresh(jobs []Job)
	// Changed names the subscriptions whose Target may be another now, or whose pending deliveries have changed other
	// than by Fresh and Record. None named means any.
	Changed(subscriptions ...int64)
}
