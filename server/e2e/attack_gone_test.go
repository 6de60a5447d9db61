package e2e

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// BenchmarkAttackGoneRows: one customer has made and removed 500,000 subscriptions and keys, which takes an hour on the
// plan growth. A search for the live ones must not read all of them.
func BenchmarkAttackGoneRows(b *testing.B) {
	dir := b.TempDir()
	p := start(b, dir)
	attacker := p.organization(b, "attacker")
	attacker.subscribe(b, closedPort(b), "gone")
	p.end(terminate)
	bury(b, filepath.Join(dir, "keyhook.db"), attacker.id, 500_000)
	p = start(b, dir)
	attacker.base = p.url
	v := p.victim(b)
	for _, a := range []struct {
		name, method, path string
		body               object
	}{
		{"list subscriptions", "GET", "/api/v1/webhooks/subscriptions/", nil},
		{"list keys", "GET", "/api/v1/api-keys/", nil},
		{"create keys", "POST", "/api/v1/api-keys/", object{"name": "one more", "scope": "events:read"}},
		{"create subscriptions", "POST", "/api/v1/webhooks/subscriptions/", object{"url": closedPort(b), "event_types": []string{"gone"}}},
	} {
		b.Run(a.name, func(b *testing.B) {
			var own, theirs times
			var body any // a nil map would be sent as null
			if a.body != nil {
				body = a.body
			}
			attack{during: 8 * time.Second, lead: time.Second, act: func(ctx context.Context) {
				var all sync.WaitGroup
				all.Go(func() {
					repeat(ctx, 1, func(ctx context.Context) {
						own.call(ctx, v.caller, "GET", "/api/v1/webhooks/subscriptions/", nil)
						sleep(ctx, 10*time.Millisecond)
					})
				})
				all.Go(func() {
					repeat(ctx, 8, func(ctx context.Context) { theirs.call(ctx, attacker.caller, a.method, a.path, body) })
				})
				all.Wait()
			}}.measure(b, p, v)
			own.report(b, "own-read")
			theirs.report(b, "attack")
		})
	}
}
