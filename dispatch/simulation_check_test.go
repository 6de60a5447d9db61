package dispatch_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The simulations make these checks while they run, and at the end.

// silent checks that nothing is sent to some receivers for a time.
func (m *simulation) silent(why string, d time.Duration, hosts ...string) {
	synctest.Wait()
	before := map[string]int{}
	for _, host := range hosts {
		before[host] = len(m.requests(host))
	}
	time.Sleep(d)
	for _, host := range hosts {
		if n := len(m.requests(host)) - before[host]; n != 0 {
			m.t.Errorf("%d requests to %s %s", n, host, why)
		}
	}
}

// checkProbe checks that a failing subscription gets nothing before its probe is due, and then only the probe.
func (m *simulation) checkProbe(sub webhook.Subscription, host string) {
	failing := m.health(m.t, sub)
	wait := time.Duration(failing.ProbeAt-time.Now().UnixMilli()) * time.Millisecond
	if failing.Status != webhook.Failing || wait <= 0 || wait > 30*time.Second {
		return
	}
	m.silent("before its probe is due", wait-time.Millisecond, host)
	before := len(m.requests(host))
	time.Sleep(time.Second)
	if n := len(m.requests(host)) - before; n > 1 && m.health(m.t, sub).Epoch == failing.Epoch {
		m.t.Errorf("%d requests to %s when its probe is due", n, host)
	}
}

// limitRate sets the rate limit of a subscription, and checks that it holds. 0 is no limit.
func (m *simulation) limitRate(sub webhook.Subscription, host string, perSecond int64) {
	m.setRateLimit(m.t, sub, perSecond)
	synctest.Wait()
	before := len(m.requests(host))
	m.publish(m.t, 10)
	time.Sleep(2 * time.Second)
	if n := len(m.requests(host)) - before; perSecond > 0 && int64(n) > 2*perSecond+perSecond/10+2 {
		m.t.Errorf("%d requests to %s in two seconds, and its limit is %d per second", n, host, perSecond)
	}
}

// discard drops everything that waits for a receiver, and checks that nothing of it is sent.
func (m *simulation) discard(sub webhook.Subscription, host string) {
	if _, err := m.Queue.Discard(context.Background(), m.actor(), m.org(), sub.ID, 0); err != nil {
		m.t.Error(err)
	}
	if m.file.Policy.ProbeDisabled > 0 { // a recovery may send more
		return
	}
	if n := m.health(m.t, sub).PendingDeliveries; n != 0 {
		m.t.Errorf("%d deliveries to %s are pending after a discard", n, host)
	}
	m.silent("after a discard", 3*time.Minute, host)
}

// checkHealth checks that a subscription has no more failures than are on record since the first of them. That failure is recorded
// later than it happened if the store fails.
func (m *simulation) checkHealth(sub webhook.Subscription) {
	now, failures := m.health(m.t, sub), 0
	for _, a := range m.attempts(m.t, sub) {
		if a.Outcome == webhook.Failed && a.Trigger != webhook.ByTest && a.AttemptedAt+a.DurationMS >= now.FailingSince-30_000 {
			failures++
		}
	}
	if now.ConsecutiveFailures > failures {
		m.t.Errorf("%s has %d consecutive failures, and %d are on record", now.URL, now.ConsecutiveFailures, failures)
	}
}

// checkRetries checks that each retry of a delivery came as late as the backoff and the receiver say. The receivers ask for 40 seconds
// with status 503. A retry waits no longer after a recovery at one of these times.
func checkRetries(t *testing.T, attempts []webhook.Attempt, recovered ...int64) {
	last := map[int64]webhook.Attempt{}
	for _, a := range attempts {
		if before := last[a.RowID>>8]; before.Outcome == webhook.Failed {
			least := min(15*time.Second<<(2*(before.Number-1)), 10*time.Minute) * 8 / 10
			if before.ResponseStatus != nil && *before.ResponseStatus == 503 {
				least = max(least, 40*time.Second)
			}
			if waited := time.Duration(a.AttemptedAt-before.AttemptedAt-before.DurationMS) * time.Millisecond; waited < least-time.Millisecond &&
				!slices.ContainsFunc(recovered, func(at int64) bool { return before.AttemptedAt <= at && at <= a.AttemptedAt }) {
				t.Errorf("attempt %d of %s began %s after the end of the one before, and not %s", a.Number, a.EventID, waited, least)
			}
		}
		last[a.RowID>>8] = a
	}
}

// checkPrompt checks that pending deliveries are sent as soon as their subscription is active again, and retries as soon as they are
// due. The dispatcher would find them later too, in its list of all pending deliveries, so the list fails here.
func (m *simulation) checkPrompt() {
	m.faults.fail(true, "Lanes")
	defer m.faults.fail(false, "Lanes")
	each := func(do func(*simulatedReceiver)) {
		for _, sub := range m.subs {
			if m.owner = sub.owner; !sub.deleted {
				do(sub)
				synctest.Wait()
			}
		}
	}
	set := func(behaviour string) func(*simulatedReceiver) {
		return func(sub *simulatedReceiver) {
			sub.mu.Lock()
			sub.behaviour = behaviour
			sub.mu.Unlock()
		}
	}
	before := map[string]int{}
	each(set("fails"))
	each(func(sub *simulatedReceiver) { m.setActive(m.t, sub.Subscription, false) })
	for _, sub := range m.subs[:2] { // one of each organization
		m.owner = sub.owner
		m.publish(m.t, 1)
	}
	each(func(sub *simulatedReceiver) {
		before[sub.host] = len(m.requests(sub.host))
		m.setActive(m.t, sub.Subscription, true)
	})
	arrive := func(n int, d time.Duration) {
		time.Sleep(d)
		each(func(sub *simulatedReceiver) {
			if got := len(m.requests(sub.host)) - before[sub.host]; got != n {
				m.t.Errorf("%d requests to %s, want %d", got, sub.host, n)
			}
		})
	}
	arrive(1, time.Second)
	each(set("well"))
	arrive(2, 19*time.Second) // the first retry follows after 12 to 18 seconds
}

// usedSecret is a secret of a subscription, and since when it signs.
type usedSecret struct {
	since time.Time
	webhook.Secret
}

// checkSignatures checks that each request is signed with the secret of its time.
func (m *simulation) checkSignatures(sub *simulatedReceiver) {
	for _, q := range m.requests(sub.host) {
		var err error
		for i, secret := range sub.secrets {
			if i == 0 || secret.since.Before(q.at) {
				err = signature.Verify(secret.Reveal(), q.header, []byte(q.body), q.at, 2*time.Second)
			} else if secret.since.Equal(q.at) { // the one before may have signed
				return
			}
		}
		if err != nil {
			m.t.Errorf("a request to %s at %s: %v", sub.host, q.at, err)
		}
	}
}
