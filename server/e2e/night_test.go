package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// In these tests, an hour takes 3.6 s: the settings are the defaults, divided by 1000. Only the attempts are fewer, so that some
// deliveries are given up.
const hour = 3600 * time.Millisecond

var thousandfold = []string{
	"KEYHOOK_WEBHOOKS_RETRY_BASE=15ms", "KEYHOOK_WEBHOOKS_RETRY_MAX=600ms", "KEYHOOK_WEBHOOKS_MAX_ATTEMPTS=2", "KEYHOOK_WEBHOOKS_POLL_INTERVAL=10ms",
}

// night is a server, its publisher and two receivers, one of which is down for a night.
type night struct {
	t         *testing.T
	dir       string
	settings  []string
	down      atomic.Bool
	mu        sync.Mutex
	server    *process
	published []string // ids of the accepted events
	got       [2]map[string]int
	requests  [2]int
}

// receiver starts receiver i. It counts what it accepts. Receiver 0 refuses everything while it is down.
func (n *night) receiver(i int) (url string) {
	n.got[i] = map[string]int{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		sleep(q.Context(), 30*time.Millisecond) // so that a kill hits attempts in progress
		n.mu.Lock()
		defer n.mu.Unlock()
		n.requests[i]++
		if i == 0 && n.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		n.got[i][q.Header.Get("X-Service-Event-Id")]++
	}))
	n.t.Cleanup(s.Close)
	return s.URL + "/"
}

func (n *night) current() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.server
}

// publish publishes an event each minute, as a host application does: it repeats a request without an answer, with the same
// idempotency key.
func (n *night) publish(ctx context.Context) {
	tick := time.NewTicker(hour / 60)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		body := event("order.created", object{"n": i})
		body["idempotency_key"] = fmt.Sprint("event-", i)
		for ctx.Err() == nil {
			a, err := n.current().call(context.WithoutCancel(ctx), "POST", "/api/v1/events/", body)
			var made struct{ ID string }
			if err == nil && a.status == http.StatusAccepted && json.Unmarshal(a.body, &made) == nil {
				n.mu.Lock()
				n.published = append(n.published, made.ID)
				n.mu.Unlock()
				break
			}
			sleep(ctx, 10*time.Millisecond)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// received returns the number of events that receiver 0 has accepted.
func (n *night) received() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.got[0])
}

// accepted returns the number of events that the server has accepted.
func (n *night) accepted() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.published)
}

// kill ends the server with SIGKILL, and starts it again.
func (n *night) kill() {
	n.server.end(syscall.SIGKILL)
	p := start(n.t, n.dir, n.settings...)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.server = p
}

// recovery is the response to a recovery.
type recovery struct{ Deliveries, Pending int }

// TestANightsOutage has a receiver that is down for eight hours, at a thousand times the speed. Two kills hit the server: while the
// subscription is failing, and while it recovers. The receiver gets every event all the same.
func TestANightsOutage(t *testing.T) {
	t.Parallel()
	channel, messages := alerts(t)
	n := &night{t: t, dir: t.TempDir(), settings: append([]string{"KEYHOOK_ALERTS_URLS=" + channel, "KEYHOOK_ALERTS_INTERVAL=2s"}, thousandfold...)}
	n.server = start(t, n.dir, n.settings...)
	sub := n.server.subscribe(t, n.receiver(0), "order.*")
	neighbour := n.server.subscribe(t, n.receiver(1), "order.*")
	day, end := context.WithCancel(t.Context())
	var publisher sync.WaitGroup
	publisher.Go(func() { n.publish(day) })
	defer publisher.Wait()
	defer end()
	path := "/api/v1/webhooks/subscriptions/" + sub + "/"

	sleep(t.Context(), hour)
	n.down.Store(true)
	downAt, before := time.Now(), n.accepted()
	n.server.until(t, sub, "status", "failing")
	n.kill()
	n.server.until(t, sub, "status", "disabled")
	disabledAfter := time.Since(downAt)
	sleep(t.Context(), 8*hour-disabledAfter)
	n.down.Store(false)
	inOutage := n.accepted() - before

	var preview, recovered recovery
	n.server.must(t, "POST", path+"recover/", object{"dry_run": true}, &preview)
	n.server.must(t, "POST", path+"recover/", nil, &recovered)
	for before := n.received(); n.received() < before+50; {
		sleep(t.Context(), time.Millisecond)
	}
	n.kill()
	sleep(t.Context(), hour)
	end()
	publisher.Wait()
	n.server.drained(t, sub)
	n.server.drained(t, neighbour)
	n.server.until(t, sub, "status", "healthy")

	n.check(sub, neighbour)
	t.Logf("disabled after %.0f minutes; published %d, held %d, given up %d, recovered %d, received %d with %d requests; the neighbour received %d with %d",
		disabledAfter.Seconds()*1000/60, len(n.published), preview.Pending, preview.Deliveries, recovered.Deliveries+recovered.Pending,
		len(n.got[0]), n.requests[0], len(n.got[1]), n.requests[1])
	if preview.Deliveries == 0 || recovered.Deliveries != preview.Deliveries || recovered.Pending < preview.Pending || recovered.Pending+recovered.Deliveries < inOutage {
		t.Errorf("%d events were accepted in the outage; the preview is %+v, the recovery %+v", inOutage, preview, recovered)
	}
	nextAlert(t, n.server, messages, "Disabled subscriptions: 1", sub)
	nextAlert(t, n.server, messages, "Recovered subscriptions: 1", sub)
	for len(messages) > 0 { // a kill after the message and before its record repeats it
		if another := <-messages; !strings.Contains(another, "Recovered subscriptions: 1") {
			t.Errorf("another alert: %s", another)
		}
	}
}

// check compares what was published with what arrived, and with what the server says about it.
func (n *night) check(subs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, sub := range subs {
		for _, id := range n.published {
			if n.got[i][id] == 0 {
				n.t.Errorf("%s was accepted and never reached receiver %d", id, i)
			}
		}
		if len(n.got[i]) != len(n.published) {
			n.t.Errorf("receiver %d got %d events, but %d were accepted", i, len(n.got[i]), len(n.published))
		}
		for _, id := range n.published {
			var explained struct{ Data []struct{ Verdict string } }
			n.server.must(n.t, "GET", "/api/v1/events/"+id+"/explain/?subscription_id="+sub, nil, &explained)
			if len(explained.Data) != 1 || explained.Data[0].Verdict != "delivered" {
				n.t.Errorf("%s to %s: %+v", id, sub, explained)
			}
		}
	}
	_, metrics := get(n.t, n.server.url+"/metrics")
	if !strings.Contains(metrics, `keyhook_deliveries_ended_total{state="expired"} 0`) {
		n.t.Error("deliveries have expired")
	}
}
