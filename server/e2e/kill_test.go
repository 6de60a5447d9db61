package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"
)

// For a long run: go test ./server/e2e -run '^TestKill$' -kills 500 -timeout 60m -v. Under the race detector all is ten times as slow,
// and it finds what runs concurrently rather than what a kill interrupts.
var kills = flag.Int("kills", map[bool]int{false: 50, true: 2}[underRace], "how often TestKill kills the server")

// TestKill kills the server again and again while events are published and delivered, and while writes of every other kind are in
// flight. Whatever was acknowledged is there after each start, and at the end the accepted events, the requests that arrived and the
// attempts on record agree.
func TestKill(t *testing.T) {
	t.Parallel()
	receiver, other, dir := receive(t, http.StatusOK, 0), receive(t, http.StatusOK, 0), t.TempDir()
	p := start(t, dir)
	sub := p.subscribe(t, receiver.url, "a")
	moved := &movedSubscription{id: p.subscribe(t, other.url, "b"), accepted: map[string]bool{}}
	accepted, values, keys := map[string]bool{}, registers(sub), &madeKeys{state: map[string]keyState{}}
	for range *kills {
		ctx, cancel := context.WithCancel(t.Context())
		enough, wanted := make(chan struct{}), 20+rand.IntN(150)
		var mu sync.Mutex
		var writers sync.WaitGroup
		writers.Go(func() {
			repeat(ctx, 4, func(ctx context.Context) {
				id := p.tryPublish(ctx, "a")
				if id == "" {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				accepted[id] = true
				if wanted--; wanted == 0 {
					close(enough)
				}
			})
		})
		for _, r := range values {
			writers.Go(func() { repeat(ctx, 1, func(ctx context.Context) { r.raise(ctx, p) }) })
		}
		writers.Go(func() { repeat(ctx, 1, func(ctx context.Context) { keys.write(ctx, p) }) })
		writers.Go(func() { repeat(ctx, 1, func(ctx context.Context) { moved.write(ctx, p) }) })
		await(t, enough)
		p.end(syscall.SIGKILL)
		cancel()
		writers.Wait()
		p = start(t, dir)
		for _, r := range values {
			r.check(t, p)
		}
		keys.check(t, p)
	}
	p.must(t, "POST", "/api/v1/queue/release/", nil, nil)
	p.drained(t, sub)
	receiver.compare(t, accepted, p.attempts(t, sub))
	moved.check(t, p, other)
	for _, r := range values {
		t.Logf("%s was written %d times, %d acknowledged", r.path, r.sent, r.acknowledged)
	}
	t.Logf("%d kills; %d keys made, %d withdrawn; %d other writes to the queue, %d acknowledged", *kills, keys.made, keys.withdrawn, moved.sent, moved.acknowledged)
}

// tryPublish publishes an event and returns its id, or "" if it was not accepted.
func (c caller) tryPublish(ctx context.Context, eventType string) string {
	a, err := c.call(context.WithoutCancel(ctx), "POST", "/api/v1/events/", event(eventType, object{}))
	var made struct{ ID string }
	if err != nil || a.status != http.StatusAccepted || json.Unmarshal(a.body, &made) != nil {
		return ""
	}
	return made.ID
}

// register is a field whose number one writer raises by one with each write. After a kill it has at least the last acknowledged
// number, and at most the last one that was sent.
type register struct {
	method, path       string
	body               func(n string) any
	field              string
	readPath           string
	sent, acknowledged int
}

// registers returns a field of each sort of row that a customer or an operator changes.
func registers(subscription string) []*register {
	described := func(n string) any { return object{"description": n} }
	return []*register{
		{method: "PATCH", path: "/api/v1/webhooks/subscriptions/" + subscription + "/", field: "description", body: described},
		{method: "PUT", path: "/api/v1/event-types/a/", field: "description", body: described},
		{method: "PUT", path: "/api/v1/organizations/customer-1/", field: "name", body: func(n string) any { return object{"name": n, "plan": "growth"} }},
		{method: "PUT", path: "/api/v1/users/user-1/", field: "name", body: func(n string) any { return object{"name": n} }},
		{
			method: "POST", path: "/api/v1/apply/", field: "name", readPath: "/api/v1/organizations/customer-2/",
			body: func(n string) any {
				return object{"document": object{"organizations": []object{{"external_id": "customer-2", "name": n, "plan": "growth"}}}}
			},
		},
	}
}

// raise writes the next number.
func (r *register) raise(ctx context.Context, p *process) {
	r.sent++
	if p.try(context.WithoutCancel(ctx), r.method, r.path, r.body(fmt.Sprint(r.sent)), nil) == nil {
		r.acknowledged = r.sent
	}
}

// check reads the number.
func (r *register) check(t *testing.T, p *process) {
	t.Helper()
	path := r.readPath
	if path == "" {
		path = r.path
	}
	var fields map[string]any
	n := 0
	if err := p.try(t.Context(), "GET", path, nil, &fields); err == nil {
		_, err = fmt.Sscan(fmt.Sprint(fields[r.field]), &n)
		if err != nil && r.acknowledged > 0 {
			t.Fatalf("%s of %s: %v", r.field, path, err)
		}
	}
	if n < r.acknowledged || n > r.sent {
		t.Fatalf("%s of %s is %d; %d was acknowledged, %d was sent", r.field, path, n, r.acknowledged, r.sent)
	}
}

type keyState int

const (
	keyMade keyState = iota
	keyWithdrawn
	keyInDoubt // the server was killed during its revocation
)

// madeKeys are API keys by their secret. Half of them are revoked.
type madeKeys struct {
	state           map[string]keyState // of those since the last check
	made, withdrawn int
}

// write makes two keys and revokes one.
func (k *madeKeys) write(ctx context.Context, p *process) {
	ctx = context.WithoutCancel(ctx)
	for range 2 {
		var key struct{ ID, Key string }
		if p.try(ctx, "POST", "/api/v1/api-keys/", object{"name": "kill", "scope": "events:read"}, &key) != nil {
			return
		}
		k.made++
		k.state[key.Key] = keyMade
		if k.made%2 == 0 {
			continue
		}
		k.state[key.Key] = keyInDoubt
		if p.try(ctx, "DELETE", "/api/v1/api-keys/"+key.ID+"/", nil, nil) == nil {
			k.withdrawn++
			k.state[key.Key] = keyWithdrawn
		}
	}
}

// check verifies all keys since the last check, and revokes nothing: the last ones still count against the plan.
func (k *madeKeys) check(t *testing.T, p *process) {
	t.Helper()
	want := map[keyState]string{keyMade: "valid", keyWithdrawn: "key_revoked"}
	for secret, state := range k.state {
		var verdict struct{ Code string }
		p.must(t, "POST", "/api/v1/auth/verify/", object{"key": secret}, &verdict)
		if state != keyInDoubt && verdict.Code != want[state] {
			t.Fatalf("a key is %s after a kill, want %s", verdict.Code, want[state])
		}
	}
	clear(k.state)
}

// movedSubscription is a subscription whose deliveries are paused, discarded, recovered, replayed, redelivered and held.
type movedSubscription struct {
	id                 string
	accepted           map[string]bool
	sent, acknowledged int
	refused            []string
}

// write publishes an event and makes one of the other writes.
func (m *movedSubscription) write(ctx context.Context, p *process) {
	if id := p.tryPublish(ctx, "b"); id != "" {
		m.accepted[id] = true
	}
	path, recently := "/api/v1/webhooks/subscriptions/"+m.id+"/", time.Now().Add(-time.Second).UTC().Format(time.RFC3339)
	writes := []struct {
		method, path string
		body         any
	}{
		{"PATCH", path, object{"is_active": false}},
		{"POST", path + "discard/", object{}},
		{"PATCH", path, object{"is_active": true}},
		{"POST", path + "replay/", object{"since": recently}},
		{"POST", "/api/v1/webhooks/redeliver/", object{"event_type": "b", "state": "delivered", "since": recently}},
		{"POST", "/api/v1/queue/hold/", object{"reason": "kill"}},
		{"POST", "/api/v1/queue/release/", nil},
		{"POST", path + "recover/", object{"activate": true}},
		{"POST", path + "rotate-secret/", object{"force": true}},
		{"POST", path + "test/", object{}},
	}
	w := writes[m.sent%len(writes)]
	m.sent++
	a, err := p.call(context.WithoutCancel(ctx), w.method, w.path, w.body)
	switch {
	case err != nil: // killed
	case a.status < 300:
		m.acknowledged++
	case a.code() == "queue_held": // the release was killed
	default:
		m.refused = append(m.refused, fmt.Sprintf("%s %s: %d %.300s", w.method, w.path, a.status, a.body))
	}
}

// check compares the accepted events with the list, and the requests that arrived with the attempts on record. An event has several
// deliveries here, so only their number can agree.
func (m *movedSubscription) check(t *testing.T, p *process, r *receiver) {
	t.Helper()
	if len(m.refused) > 0 {
		t.Errorf("%d writes were refused, as %s", len(m.refused), m.refused[0])
	}
	p.must(t, "PATCH", "/api/v1/webhooks/subscriptions/"+m.id+"/", object{"is_active": true}, nil)
	p.drained(t, m.id)
	for cursor := ""; ; {
		var page struct {
			Data       []struct{ ID string }
			NextCursor *string `json:"next_cursor"`
		}
		p.must(t, "GET", "/api/v1/events/?type=b&limit=200"+cursor, nil, &page)
		for _, e := range page.Data {
			delete(m.accepted, e.ID)
		}
		if page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *page.NextCursor
	}
	if len(m.accepted) > 0 {
		t.Errorf("%d accepted events are lost: %v", len(m.accepted), m.accepted)
	}
	recorded := 0
	for _, n := range p.attempts(t, m.id) {
		recorded += n
	}
	if r.requests() > recorded {
		t.Errorf("%d requests arrived, and %d attempts are on record", r.requests(), recorded)
	}
}
