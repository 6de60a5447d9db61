package webhook

// Status is the health of a subscription.
type Status string

// The states of a subscription. Anything but Disabled is active.
const (
	Healthy  Status = "healthy"  // attempts run in parallel
	Failing  Status = "failing"  // one probe at a time; the rest waits
	Disabled Status = "disabled" // nothing is sent; what is due stays pending
)

// Policy holds the limits of delivery and health. All are settings.
type Policy struct {
	MaxAttempts   int // attempts of one delivery in total
	FailingAfter  int // consecutive failures that make a subscription failing
	DisabledAfter int // consecutive failures that disable it
}

// DefaultPolicy holds the limits of the interface.
func DefaultPolicy() Policy { return Policy{MaxAttempts: 5, FailingAfter: 5, DisabledAfter: 15} }

// Health is the state machine of a subscription. Its methods return the next state and change nothing; the holder of
// the transaction writes it down. Always: Disabled or Failing has a LastError.
//
// Epoch names the conditions under which attempts begin: it grows with every change of status, address or secret. An
// attempt counts only under the epoch in which it began. So a burst in flight when an endpoint dies makes the
// subscription failing, and never disabled; what was begun before a repair does not spoil it.
type Health struct {
	Status              Status `db:"status"`
	ConsecutiveFailures int    `db:"consecutive_failures"` // failed attempts since the last success
	LastError           string `db:"last_error"`           // why; empty while nothing is wrong
	Epoch               int64  `db:"epoch"`
	ProbeAt             int64  `db:"probe_at"` // while Failing: the next probe, in milliseconds; otherwise 0
}

// Succeed returns the state after an attempt that began in epoch and got a 2xx answer.
func (h Health) Succeed(epoch int64) Health {
	if epoch != h.Epoch || h.Status == Disabled {
		return h
	}
	return h.to(Healthy, 0, "", 0)
}

// Fail returns the state after an attempt that began in epoch and failed for the given reason. probeAt is the time of
// the next probe should the subscription be failing then.
func (h Health) Fail(epoch int64, reason string, probeAt int64, p Policy) Health {
	if epoch != h.Epoch || h.Status == Disabled {
		return h
	}
	failures := h.ConsecutiveFailures + 1
	switch {
	case h.Status == Failing && failures >= p.DisabledAfter:
		return h.to(Disabled, failures, reason, 0)
	case failures >= p.FailingAfter:
		return h.to(Failing, failures, reason, probeAt)
	}
	return h.to(Healthy, failures, reason, 0)
}

// Activate returns the state after its owner has set is_active to true: healthy, whatever it was, with a clean count.
func (h Health) Activate() Health { return h.to(Healthy, 0, "", 0) }

// Deactivate returns the state after its owner, named by, has set is_active to false. The count stays for the record.
func (h Health) Deactivate(by string) Health {
	if h.Status == Disabled {
		return h
	}
	return h.to(Disabled, h.ConsecutiveFailures, "deactivated by "+by, 0)
}

// Renew returns the same state in a new epoch: attempts begun before no longer count.
func (h Health) Renew() Health {
	h.Epoch++
	return h
}

func (h Health) to(s Status, failures int, reason string, probeAt int64) Health {
	if s != h.Status {
		h.Epoch++
	}
	h.Status, h.ConsecutiveFailures, h.LastError, h.ProbeAt = s, failures, reason, probeAt
	return h
}
