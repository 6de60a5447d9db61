package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// batch is a batch of n events of a type.
func batch(n int, eventType string) object {
	return object{"events": slices.Repeat([]object{event(eventType, object{})}, n)}
}

// largestBatch publishes the largest accepted batch for 1,000 subscriptions, and returns its number of events. That is 1,000, or
// 10 if a request may create at most 10,000 deliveries.
func (t *organization) largestBatch(tb testing.TB, eventType string) int {
	tb.Helper()
	for _, n := range []int{1000, 10} {
		a, err := t.call(tb.Context(), "POST", "/api/v1/events/batch/", batch(n, eventType))
		if err != nil {
			tb.Fatal(err)
		}
		if a.status == http.StatusAccepted {
			return n
		}
	}
	tb.Fatal("no batch is taken")
	return 0
}

// revocations creates and revokes a key twice a second, and measures how long each revocation takes. A revoked key must not be
// accepted.
type revocations struct {
	*organization
	took latencies
	bad  int // keys that were accepted after they had been revoked
}

func (r *revocations) run(ctx context.Context, tb testing.TB) {
	for sleep(ctx, 500*time.Millisecond) {
		var key struct{ ID, Key string }
		if r.try(ctx, "POST", "/api/v1/api-keys/", object{"name": "short", "scope": "events:read"}, &key) != nil {
			continue
		}
		begin := time.Now()
		if r.try(ctx, "DELETE", "/api/v1/api-keys/"+key.ID+"/", nil, nil) != nil {
			continue // what cannot be revoked in a minute shows among the victim's figures, too
		}
		r.took = append(r.took, time.Since(begin))
		holder := r.caller
		holder.authorization = "ApiKey " + key.Key
		if a, err := holder.call(ctx, "GET", "/api/v1/whoami/", nil); err == nil && a.status != http.StatusUnauthorized {
			r.bad++
		}
	}
	r.took.sort()
}

func (r *revocations) report(b *testing.B) {
	b.ReportMetric(ms(r.took.part(0.5)), "revocation-p50-ms")
	b.ReportMetric(ms(r.took.part(0.99)), "revocation-p99-ms")
	if len(r.took) == 0 || r.bad > 0 {
		b.Errorf("%d keys were revoked, %d of them accepted afterwards", len(r.took), r.bad)
	}
}

// BenchmarkAttackFanOut: one customer publishes the largest allowed batches to 1,000 subscriptions from four connections.
// The victim publishes, and a third customer revokes keys.
func BenchmarkAttackFanOut(b *testing.B) {
	p := start(b, b.TempDir())
	v, attacker, revoking := p.victim(b), p.organization(b, "attacker"), &revocations{organization: p.organization(b, "revoking")}
	attacker.subscribeMany(b, 1000, receive(b, http.StatusNoContent, almostTimeout).url, "wide")
	n := attacker.largestBatch(b, "wide")
	body := batch(n, "wide")
	b.Logf("%d events for 1,000 subscriptions in each request", n)
	var seen outcomes
	attack{during: 20 * time.Second, grace: 60 * time.Second, act: func(ctx context.Context) {
		var all sync.WaitGroup
		all.Go(func() { revoking.run(ctx, b) })
		all.Go(func() {
			repeat(ctx, 4, func(ctx context.Context) {
				if a, err := attacker.call(ctx, "POST", "/api/v1/events/batch/", body); err == nil {
					seen.add(fmt.Sprintf("%d %s", a.status, a.code()))
				}
			})
		})
		all.Wait()
	}}.measure(b, p, v)
	revoking.report(b)
	b.Logf("answers: %v", seen.count)
	b.ReportMetric(float64(p.size(b, ""))/1e6, "db-MB")
}

// BenchmarkAttackManyTypes: one customer publishes batches of 1,000 events, each of a type of its own, from two connections. All of its
// 1,000 subscriptions or feeds want all of them, so the batches are refused.
func BenchmarkAttackManyTypes(b *testing.B) {
	var events []object
	for i := range 1000 {
		events = append(events, event(fmt.Sprintf("many.t%d", i), object{}))
	}
	for name, url := range map[string]string{"subscriptions": "https://example.com/", "feeds": ""} {
		b.Run(name, func(b *testing.B) {
			p := start(b, b.TempDir())
			v, attacker := p.victim(b), p.organization(b, "attacker")
			attacker.subscribeMany(b, 1000, url, "many.*")
			var seen outcomes
			attack{during: 15 * time.Second, act: func(ctx context.Context) {
				repeat(ctx, 2, func(ctx context.Context) {
					if a, err := attacker.call(ctx, "POST", "/api/v1/events/batch/", object{"events": events}); err == nil {
						seen.add(fmt.Sprintf("%d %s", a.status, a.code()))
					}
				})
			}}.measure(b, p, v)
			b.Logf("answers: %v", seen.count)
		})
	}
}

// waiting gives a customer n subscriptions that are disabled, and publishes events that wait for all of them. It returns their ids.
func (t *organization) waiting(tb testing.TB, n, events int) []string {
	tb.Helper()
	ids := make([]string, n)
	for i := range ids {
		var made struct{ ID string }
		t.must(tb, "POST", "/api/v1/webhooks/subscriptions/", object{"url": closedPort(tb), "event_types": []string{"waits"}, "is_active": false}, &made)
		ids[i] = made.ID
	}
	for left := events; left > 0; left -= min(left, 400) {
		t.must(tb, "POST", "/api/v1/events/batch/", batch(min(left, 400), "waits"), nil)
	}
	return ids
}

// BenchmarkAttackOrder: 100 connections make 20 subscriptions ordered and unordered, each of which has 9,500 pending deliveries. So a
// small request changes or reads thousands of rows.
func BenchmarkAttackOrder(b *testing.B) {
	p := start(b, b.TempDir())
	v, attacker := p.victim(b), p.organization(b, "attacker")
	ids := attacker.waiting(b, 20, 9500)
	var seen outcomes
	var turn atomic.Int64
	attack{act: func(ctx context.Context) {
		repeat(ctx, 100, func(ctx context.Context) {
			n := int(turn.Add(1))
			change := object{"ordered": n/len(ids)%2 == 0}
			if a, err := attacker.call(ctx, "PATCH", "/api/v1/webhooks/subscriptions/"+ids[n%len(ids)]+"/", change); err == nil {
				seen.add(fmt.Sprintf("%d %s", a.status, a.code()))
			}
		})
	}}.measure(b, p, v)
	b.Logf("answers: %v", seen.count)
}

// BenchmarkAttackRefusedChanges: 16 connections send changes that are refused because too many deliveries are pending.
func BenchmarkAttackRefusedChanges(b *testing.B) {
	p := start(b, b.TempDir())
	v, attacker := p.victim(b), p.organization(b, "attacker")
	ids := attacker.waiting(b, 1, 10_001)
	var seen outcomes
	attack{act: func(ctx context.Context) {
		repeat(ctx, 16, func(ctx context.Context) {
			change := object{"event_types": []string{"waits", "other"}, "ordered": true}
			if a, err := attacker.call(ctx, "PATCH", "/api/v1/webhooks/subscriptions/"+ids[0]+"/", change); err == nil {
				seen.add(fmt.Sprintf("%d %s", a.status, a.code()))
			}
		})
	}}.measure(b, p, v)
	b.Logf("answers: %v", seen.count)
}

// BenchmarkAttackFailTogether: 1,500 subscriptions to every type fail at once, so each could get events about the failures of all others.
func BenchmarkAttackFailTogether(b *testing.B) {
	p := start(b, b.TempDir())
	v, attacker := p.victim(b), p.organization(b, "attacker")
	attacker.subscribeMany(b, 1500, closedPort(b))
	before := p.pending(b) // each gets events about the subscriptions that were created after it
	attack{during: 30 * time.Second, act: func(ctx context.Context) {
		for range 5 { // webhooks.failing_after
			_ = attacker.try(ctx, "POST", "/api/v1/events/", event("nobody.listens", object{}), nil) // the figures show a failure
		}
		<-ctx.Done()
	}}.measure(b, p, v)
	b.ReportMetric(p.pending(b)-before, "new-pending-deliveries")
	b.ReportMetric(float64(p.size(b, ""))/1e6, "db-MB")
}

// pending returns the number of pending deliveries of all organizations.
func (p *process) pending(tb testing.TB) float64 {
	tb.Helper()
	var queue struct {
		Pending float64 `json:"pending_deliveries"`
	}
	p.must(tb, "GET", "/api/v1/queue/", nil, &queue)
	return queue.Pending
}

// A request for more deliveries than a request may make is refused, with the name of the bound; nothing is kept of it.
func TestAttackFanOut(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	attacker := p.organization(t, "attacker")
	attacker.subscribeMany(t, 101, closedPort(t), "wide")
	a, err := attacker.call(t.Context(), "POST", "/api/v1/events/batch/", batch(100, "wide"))
	if err != nil || a.status != http.StatusUnprocessableEntity || a.code() != "too_many_deliveries" {
		t.Errorf("10,100 deliveries: %d %s, %v", a.status, a.code(), err)
	}
	var events struct{ Data []object }
	attacker.must(t, "GET", "/api/v1/events/", nil, &events)
	for _, e := range events.Data {
		if e["type"] == "wide" {
			t.Fatalf("an event of the refused request was kept: %v", e)
		}
	}
	attacker.must(t, "POST", "/api/v1/events/batch/", batch(99, "wide"), nil)
}
