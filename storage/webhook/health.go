package webhook

import "time"

// Status is the health of a subscription.
type Status string

// The states of a subscription. Anything but Disabled is active.
const (
	Healthy  Status = "healthy"  // attempts run in parallel
	Failing  Status = "failing"  // one probe at a time; all other deliveries wait
	Disabled Status = "disabled" // nothing is sent, except rare probes if the policy asks for them; deliveries stay pending
)

// Policy has the limits of attempts and of health. All are settings.
type Policy struct {
	MaxAttempts   int // attempts of one delivery
	FailingAfter  int // consecutive failures after which a subscription is failing
	DisabledAfter int // consecutive failures after which it is disabled

	// ProbeDisabled is how often a subscription that failures have disabled gets a probe; 0 means never.
	ProbeDisabled time.Duration
}

// DefaultPolicy returns the default limits.
func DefaultPolicy() Policy { return Policy{MaxAttempts: 5, FailingAfter: 5, DisabledAfter: 15} }

// Health is the state machine of a subscription. Its methods return the next state and change nothing. The caller writes the
// next state in its transaction. A Disabled or Failing subscription always has a LastError.
//
// Epoch grows with every change of status, URL or secret. An attempt counts only in the epoch in which it began. So a burst of attempts in
// flight when an endpoint dies makes the subscription failing, but not disabled. And an attempt from before a repair cannot undo the repair.
type Health struct {
	Status              Status `db:"status"`
	ConsecutiveFailures int    `db:"consecutive_failures"` // failed attempts since the last success
	FailingSince        int64  `db:"failing_since"`        // the first of them, in milliseconds; 0 if there is none
	LastError           string `db:"last_error"`           // empty while nothing is wrong
	Epoch               int64  `db:"epoch"`
	ProbeAt             int64  `db:"probe_at"` // time of the next probe, in milliseconds; 0 if there is none, and neverProbe
	Paused              bool   `db:"paused"`   // Disabled by its owner, not by failures
}

// Succeed returns the state after an attempt that began in epoch and got a 2xx response. In the epoch of a Disabled
// subscription, only a probe begins.
func (h Health) Succeed(epoch int64) Health {
	if epoch != h.Epoch || h.ByPerson() {
		return h
	}
	return h.to(Healthy, 0, "", 0)
}

// Fail returns the state after an attempt that began in epoch and failed at a time for the given reason. probeAt is the time
// of the next probe if the subscription is failing then. A failed probe of a Disabled subscription leaves it Disabled.
func (h Health) Fail(epoch int64, reason string, at, probeAt int64, p Policy) Health {
	if epoch != h.Epoch || h.ByPerson() {
		return h
	}
	if h.FailingSince == 0 || at < h.FailingSince { // earlier if the clock was set back, so that a recovery finds all failures
		h.FailingSince = at
	}
	failures := h.ConsecutiveFailures + 1
	switch {
	case h.Status == Disabled || h.Status == Failing && failures >= p.DisabledAfter:
		if probeAt = 0; p.ProbeDisabled > 0 {
			probeAt = at + p.ProbeDisabled.Milliseconds()
		}
		return h.to(Disabled, failures, reason, probeAt)
	case h.Status == Failing || failures >= p.FailingAfter: // only a success heals, also after FailingAfter has become larger
		return h.to(Failing, failures, reason, probeAt)
	}
	return h.to(Healthy, failures, reason, 0)
}

// neverProbe is the ProbeAt of a subscription that failures have disabled, and that its owner has switched off then.
const neverProbe = -1

// ByPerson reports whether a person has set is_active to false: while the subscription was active, or after failures had disabled it.
func (h Health) ByPerson() bool { return h.Paused || h.ProbeAt == neverProbe }

// Activate returns the state after the owner has set is_active to true: healthy, without failures.
func (h Health) Activate() Health { return h.to(Healthy, 0, "", 0) }

// DeactivatedBy is how the last error of a subscription begins that a user has deactivated. The name of the user follows.
const DeactivatedBy = "deactivated by "

// Deactivate returns the state after by has set is_active to false: Paused. The count of failures stays as it is. A
// subscription that failures have disabled keeps its reason, and gets no more probes.
func (h Health) Deactivate(by string) Health {
	switch {
	case h.ByPerson():
		return h
	case h.Status == Disabled:
		h = h.Renew() // so that a probe in progress does not bring it back
		h.ProbeAt = neverProbe
		return h
	}
	h = h.to(Disabled, h.ConsecutiveFailures, DeactivatedBy+by, 0)
	h.Paused = true
	return h
}

// Action returns what makes a subscription work again; empty if it is Healthy.
func (h Health) Action() Action {
	switch {
	case h.Status == Healthy:
		return ""
	case h.ByPerson():
		return ActionReactivate
	}
	return ActionRecover
}

// Renew returns the same state in a new epoch, so results of earlier attempts no longer count.
func (h Health) Renew() Health {
	h.Epoch++
	return h
}

func (h Health) to(s Status, failures int, reason string, probeAt int64) Health {
	if s != h.Status {
		h.Epoch++
	}
	if failures == 0 {
		h.FailingSince = 0
	}
	h.Status, h.ConsecutiveFailures, h.LastError, h.ProbeAt, h.Paused = s, failures, reason, probeAt, false
	return h
}
