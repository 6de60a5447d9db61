package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// until waits until a member of the subscription has this value.
func (c caller) until(tb testing.TB, sub, member string, want any) {
	tb.Helper()
	var read object
	for range 200 {
		read = object{}
		c.must(tb, "GET", "/api/v1/webhooks/subscriptions/"+sub+"/", nil, &read)
		if fmt.Sprint(read[member]) == fmt.Sprint(want) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	tb.Fatalf("%s is %v, want %v", member, read[member], want)
}

// outage are settings with which an outage disables a subscription within a second.
var outage = []string{
	"KEYHOOK_WEBHOOKS_RETRY_BASE=10ms", "KEYHOOK_WEBHOOKS_RETRY_MAX=20ms", "KEYHOOK_WEBHOOKS_MAX_ATTEMPTS=2",
	"KEYHOOK_WEBHOOKS_FAILING_AFTER=2", "KEYHOOK_WEBHOOKS_DISABLED_AFTER=6",
}

// TestOutage has a receiver that is down. The server is killed while it is disabled. Then each command after an outage is run.
func TestOutage(t *testing.T) {
	t.Parallel()
	r := receive(t, http.StatusOK, 0)
	r.down.Store(true)
	dir := t.TempDir()
	p := start(t, dir, outage...)
	sub := p.subscribe(t, r.url, "order.created")
	p.publish(t, "order.created")
	p.until(t, sub, "pending_deliveries", 0) // so that one delivery is given up
	for range 5 {
		p.publish(t, "order.created")
	}
	p.until(t, sub, "status", "disabled")
	p.end(syscall.SIGKILL)
	p = start(t, dir, outage...)
	p.until(t, sub, "status", "disabled")
	for range 4 {
		succeed(t, dir, []string{"events", "publish", "order.created"}, "held        1", "notice      -")
	}
	succeed(t, dir, []string{"events", "publish", "order.unwanted"}, "notice      no_subscription")
	succeed(t, dir, []string{"subscriptions", "get", sub}, "failing_since")

	r.down.Store(false)
	var preview struct{ Deliveries, Pending int }
	p.must(t, "POST", "/api/v1/webhooks/subscriptions/"+sub+"/recover/", object{"dry_run": true}, &preview)
	if preview.Deliveries == 0 || preview.Deliveries+preview.Pending != 10 {
		t.Errorf("the preview is %+v", preview)
	}
	waiting, again := strconv.Itoa(preview.Pending), strconv.Itoa(preview.Deliveries)
	sent := []string{"deliveries  " + again, "pending     " + waiting}
	succeed(t, dir, []string{"subscriptions", "recover", sub, "--dry-run"}, sent...)
	p.until(t, sub, "status", "disabled")
	succeed(t, dir, []string{"subscriptions", "recover", sub, "--yes"}, sent...)
	p.until(t, sub, "pending_deliveries", 0)
	p.until(t, sub, "status", "healthy")
	r.mu.Lock()
	if len(r.events) != 10 {
		t.Errorf("%d of 10 events have arrived", len(r.events))
	}
	r.mu.Unlock()

	succeed(t, dir, []string{"subscriptions", "pause", sub})
	p.publish(t, "order.created")
	succeed(t, dir, []string{"subscriptions", "discard", sub, "--yes"}, "deliveries  1")
	p.publish(t, "order.created")
	before := r.requests()
	succeed(t, dir, []string{"subscriptions", "reactivate", sub})
	p.until(t, sub, "pending_deliveries", 0)
	if n := r.requests() - before; n != 1 {
		t.Errorf("%d requests after the discard, want 1", n)
	}
}
