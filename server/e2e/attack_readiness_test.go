package e2e

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"
)

// probe asks /readyz without a credential from n connections until ctx ends.
func probe(ctx context.Context, p *process, t *times, n int, pause time.Duration) {
	anonymous := newCaller(p.url, "")
	repeat(ctx, n, func(ctx context.Context) {
		t.call(ctx, anonymous, "GET", "/readyz/", nil)
		sleep(ctx, pause)
	})
}

// BenchmarkAttackSlowReceiver: a receiver that takes 1.5 s for each answer has 2,000 events to take, which lasts minutes.
// The process is well, so /readyz must not say otherwise: an orchestrator would end it.
func BenchmarkAttackSlowReceiver(b *testing.B) {
	p := start(b, b.TempDir())
	v, attacker := p.victim(b), p.organization(b, "attacker")
	attacker.subscribe(b, receive(b, http.StatusNoContent, 1500*time.Millisecond).url, "slow")
	var asked times
	attack{during: 80 * time.Second, act: func(ctx context.Context) {
		for range 2 {
			_ = attacker.try(ctx, "POST", "/api/v1/events/batch/", batch(1000, "slow"), nil) // the figures show a failure
		}
		probe(ctx, p, &asked, 1, time.Second)
	}}.measure(b, p, v)
	asked.report(b, "readyz")
}

// BenchmarkAttackReadiness: anybody asks /readyz from eight connections while many subscriptions have something pending.
func BenchmarkAttackReadiness(b *testing.B) {
	for _, n := range []int{20_000, 300_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dir := b.TempDir()
			p := start(b, dir)
			p.organization(b, "waiting").subscribe(b, closedPort(b), "waiting")
			p.end(terminate)
			multiply(b, filepath.Join(dir, "keyhook.db"), n)
			p = start(b, dir)
			v := p.victim(b)
			var asked times
			attack{act: func(ctx context.Context) { probe(ctx, p, &asked, 8, 0) }}.measure(b, p, v)
			asked.report(b, "readyz")
		})
	}
}
