package e2e

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"
)

// orderedLog is a receiver that fails now and then, and notes the numbers of the events in the order of their requests.
type orderedLog struct {
	mu        sync.Mutex
	running   int
	peak      int
	numbers   []int
	succeeded []bool
}

func (r *orderedLog) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var body struct{ Data struct{ N int } }
	err := json.NewDecoder(req.Body).Decode(&body)
	fails := err != nil || rand.IntN(20) == 0
	r.mu.Lock()
	r.running++
	r.peak = max(r.peak, r.running)
	place := len(r.numbers)
	r.numbers, r.succeeded = append(r.numbers, body.Data.N), append(r.succeeded, false)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.running--
		r.succeeded[place] = !fails
	}()
	timer := time.NewTimer(time.Duration(rand.IntN(2000)) * time.Microsecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-req.Context().Done():
	}
	if fails {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// check checks that each event came after the success of the one before, and that all accepted events have arrived.
func (r *orderedLog) check(t *testing.T, accepted []int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	arrived := map[int]bool{}
	for i, n := range r.numbers {
		if i > 0 && (n < r.numbers[i-1] || n > r.numbers[i-1] && !arrived[r.numbers[i-1]]) {
			t.Errorf("request %d has event %d, after event %d, which had arrived: %v", i, n, r.numbers[i-1], arrived[r.numbers[i-1]])
		}
		arrived[n] = arrived[n] || r.succeeded[i]
	}
	for _, n := range accepted {
		if !arrived[n] {
			t.Errorf("event %d was accepted and never arrived", n)
		}
	}
	if r.peak != 1 {
		t.Errorf("%d requests at once", r.peak)
	}
	t.Logf("%d events, %d requests", len(accepted), len(r.numbers))
}

// TestKillInOrder kills the process again and again while events of an ordered subscription are published and delivered.
func TestKillInOrder(t *testing.T) {
	t.Parallel()
	receiver := &orderedLog{}
	s := httptest.NewServer(receiver)
	t.Cleanup(s.Close)
	dir, settings := t.TempDir(), []string{"KEYHOOK_WEBHOOKS_RETRY_BASE=50ms", "KEYHOOK_WEBHOOKS_RETRY_MAX=200ms", "KEYHOOK_WEBHOOKS_MAX_ATTEMPTS=50"}
	p := start(t, dir, settings...)
	var sub struct {
		ID      string
		Ordered bool
	}
	p.must(t, "POST", "/api/v1/webhooks/subscriptions/", object{"url": s.URL, "event_types": []string{"a"}, "ordered": true}, &sub)
	if !sub.Ordered {
		t.Error("the answer does not say that the subscription is ordered")
	}
	var accepted []int
	n := 0
	for range cycles {
		publishing, killed := make(chan struct{}), make(chan struct{})
		go func() {
			<-publishing
			time.Sleep(time.Duration(20+rand.IntN(100)) * time.Millisecond)
			p.end(syscall.SIGKILL)
			close(killed)
		}()
		for first := true; ; first = false {
			batch := make([]object, 1+rand.IntN(3)*rand.IntN(5))
			for i := range batch {
				batch[i] = event("a", object{"n": n + i})
			}
			a, err := p.call(t.Context(), "POST", "/api/v1/events/batch/", object{"events": batch})
			if first {
				close(publishing)
			}
			if err != nil {
				n += len(batch)
				break
			}
			if a.status != http.StatusAccepted {
				t.Fatalf("%d: %s", a.status, a.body)
			}
			for range batch {
				accepted = append(accepted, n)
				n++
			}
		}
		<-killed
		p = start(t, dir, settings...)
	}
	p.drained(t, sub.ID)
	receiver.check(t, accepted)
}
