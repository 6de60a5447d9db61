package webhook

import "time"

// Gate is everything that decides whether a subscription receives events, and whether its deliveries are sent. Nothing else decides
// that. The zero value is shut. delivery.GateColumns and delivery.Deleted read a gate, and delivery.Why is Why in SQL.
type Gate struct {
	Health
	Webhooks  bool `db:"webhooks"` // whether the plan of its organization has webhooks
	Deleted   bool `db:"deleted"`  // whether the subscription is deleted, or its organization is closed
	QueueHeld bool `db:"-"`        // whether an operator has stopped all sending
	// ProbedEvery is Policy.ProbeDisabled: the interval of the probes of subscriptions that failures have disabled; 0 means none.
	ProbedEvery time.Duration `db:"-"`
}

// Block is the reason why nothing is sent to a subscription. Each block ends in another way.
type Block string

// The blocks. NotBlocked is the zero value.
const (
	NotBlocked        Block = ""
	BlockedByDeletion Block = "deleted"    // nothing ends it
	BlockedByPause    Block = "paused"     // its owner has disabled it, perhaps after failures had
	BlockedByFault    Block = "disabled"   // failures have disabled it
	BlockedByPlan     Block = "plan"       // the plan has no webhooks
	BlockedByHold     Block = "queue_held" // an operator has stopped all sending
)

// Blocks are all blocks of subscriptions that exist, in the order in which Why looks for them. NotBlocked comes first.
func Blocks() []Block {
	return []Block{NotBlocked, BlockedByPause, BlockedByFault, BlockedByPlan, BlockedByHold}
}

// Receives reports whether a new event makes a delivery. While something else blocks the subscription, the delivery waits.
func (g Gate) Receives() bool { return g.Webhooks && !g.Deleted }

// Sends reports whether an attempt may begin now. To a failing subscription, and to a disabled one, it is a probe.
func (g Gate) Sends(now int64) bool { return g.Why() == NotBlocked || g.probeIsDue(now) }

// Shut reports whether nothing is sent until somebody changes something: the subscription, its plan, or the hold of the queue. A
// gate that is neither shut nor sends now waits for a probe.
func (g Gate) Shut() bool { return g.Why() != NotBlocked && !g.GetsProbe() }

// Why returns the first reason why nothing is sent: the subscription itself comes before its plan, and the whole queue comes last.
func (g Gate) Why() Block {
	switch {
	case g.Deleted:
		return BlockedByDeletion
	case g.ByPerson():
		return BlockedByPause
	case g.Status == Disabled:
		return BlockedByFault
	case !g.Webhooks:
		return BlockedByPlan
	case g.QueueHeld:
		return BlockedByHold
	}
	return NotBlocked
}

// GetsProbe reports whether failures have disabled the subscription, and it gets probes. Its other deliveries wait.
func (g Gate) GetsProbe() bool {
	return g.Why() == BlockedByFault && g.ProbedEvery > 0 && g.Webhooks && !g.QueueHeld
}

// probeIsDue reports whether a disabled subscription may get a probe now. A time further away than ProbedEvery was set under a
// longer interval, or before the clock was set back. It counts as due.
func (g Gate) probeIsDue(now int64) bool {
	return g.GetsProbe() && (g.ProbeAt <= now || g.ProbeAt > now+g.ProbedEvery.Milliseconds())
}

// Schedule says when the deliveries of a subscription are sent. The zero value sends none, like a deleted subscription.
type Schedule struct {
	Subscription
	First *int64 `db:"first"` // row id of the pending delivery that comes first; nil if none is pending
}

// NextAttempt returns the time of the next attempt of a delivery with that row id and due time. It returns nil if the delivery waits for
// anything but a time after now: for a change of the subscription, its plan or the queue, for the probe of another delivery,
// or for a free slot.
func (s Schedule) NextAttempt(delivery int64, due *int64, now int64) *int64 {
	if due == nil || s.Shut() {
		return nil
	}
	at := *due
	if s.Status != Healthy {
		if s.First == nil || delivery != *s.First {
			return nil
		}
		at = max(at, s.ProbeAt)
	}
	if s.probeIsDue(now) {
		at = *due
	}
	if at <= now {
		return nil
	}
	return &at
}
