package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"
)

// widely publishes 1,000 events to 1,000 subscriptions, ten events in a request. Each event has an idempotency key. Then it
// removes the subscriptions, so no delivery remains. It returns all events as one batch.
func widely(b *testing.B, t *organization) object {
	b.Helper()
	const subscriptions, inRequest = 1000, 10
	t.subscribeMany(b, subscriptions, receive(b, http.StatusNoContent, almostTimeout).url, "wide")
	var events []object
	for i := range 1000 {
		e := event("wide", object{})
		e["idempotency_key"] = fmt.Sprint(i)
		events = append(events, e)
	}
	for i := 0; i < len(events); i += inRequest {
		t.must(b, "POST", "/api/v1/events/batch/", object{"events": events[i : i+inRequest]}, nil)
	}
	for range subscriptions / 200 {
		var page struct{ Data []struct{ ID string } }
		t.must(b, "GET", "/api/v1/webhooks/subscriptions/?limit=200", nil, &page)
		for _, sub := range page.Data {
			t.must(b, "DELETE", "/api/v1/webhooks/subscriptions/"+sub.ID+"/", nil, nil)
		}
	}
	return object{"events": events}
}

// BenchmarkAttackWideEvents: one customer publishes to many subscriptions. Keyhook counts the deliveries again for each
// repeated idempotency key, and for each event of a list.
func BenchmarkAttackWideEvents(b *testing.B) {
	p := start(b, b.TempDir())
	v, attacker := p.victim(b), p.organization(b, "attacker")
	repetition := widely(b, attacker)
	for _, a := range []struct {
		name, method, path string
		body               any
	}{
		{"repeated keys", "POST", "/api/v1/events/batch/", repetition},
		{"list of events", "GET", "/api/v1/events/?limit=200", nil},
	} {
		b.Run(a.name, func(b *testing.B) {
			revoking := &revocations{organization: p.organization(b, "revoking "+a.name)}
			var own, theirs times
			attack{during: 15 * time.Second, lead: time.Second, act: func(ctx context.Context) {
				var all sync.WaitGroup
				all.Go(func() { revoking.run(ctx, b) })
				all.Go(func() {
					repeat(ctx, 1, func(ctx context.Context) { own.call(ctx, v.caller, "GET", "/api/v1/events/", nil) })
				})
				all.Go(func() {
					repeat(ctx, 4, func(ctx context.Context) { theirs.call(ctx, attacker.caller, a.method, a.path, a.body) })
				})
				all.Wait()
			}}.measure(b, p, v)
			revoking.report(b)
			own.report(b, "own-read")
			theirs.report(b, "attack")
		})
	}
}
