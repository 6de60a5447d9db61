package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// almostTimeout is how long a receiver may take to answer and still be healthy: webhooks.timeout is 15 s.
const almostTimeout = 14 * time.Second

// BenchmarkAttackSlowSubscriptions: one customer makes many subscriptions to a receiver that is slow but healthy, and
// publishes to all of them. 5,000 is the most that any plan allows.
func BenchmarkAttackSlowSubscriptions(b *testing.B) {
	for _, n := range []int{300, 1500, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := start(b, b.TempDir())
			v, attacker := p.victim(b), p.organization(b, "attacker")
			attacker.subscribeMany(b, n, receive(b, http.StatusNoContent, almostTimeout).url, "slow")
			attack{
				lead: 5 * time.Second, during: 30 * time.Second, grace: 60 * time.Second,
				act: func(ctx context.Context) {
					// A little less than a second, so that publications meet the rounds of the dispatcher that nothing else causes.
					for attacker.try(ctx, "POST", "/api/v1/events/", event("slow", object{}), nil) == nil && sleep(ctx, 990*time.Millisecond) {
					}
				},
			}.measure(b, p, v)
		})
	}
}

// The attacker's receivers never answer in time. The victim's deliveries still arrive within seconds. Before slots were
// shared between organizations, half of them took more than 40 s.
func TestAttackSlowSubscriptions(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	v, attacker := p.victim(t), p.organization(t, "attacker")
	attacker.subscribeMany(t, 300, receive(t, http.StatusNoContent, almostTimeout).url, "slow")
	for range 3 {
		attacker.must(t, "POST", "/api/v1/events/", event("slow", object{}), nil)
	}
	if f := v.publishFor(t.Context(), 2*time.Second, 10*time.Second); f.failed() > 0 || f.missing > 0 {
		t.Errorf("the victim noticed: %s", f)
	}
}
