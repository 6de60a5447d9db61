package e2e

import (
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// receiver takes deliveries on a loopback address. It remembers when each event with a number, data.n, arrived first.
type receiver struct {
	url string

	mu      sync.Mutex
	arrived map[int]time.Time
}

// receive starts a receiver that waits for delay before it answers with status. It runs until the test ends, which no
// waiting answer delays.
func receive(tb testing.TB, status int, delay time.Duration) *receiver {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	r := &receiver{url: "http://" + l.Addr().String() + "/", arrived: map[int]time.Time{}}
	stopped := make(chan struct{})
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.note(req)
		if delay > 0 {
			timer := time.NewTimer(delay)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-req.Context().Done():
			case <-stopped:
			}
		}
		w.WriteHeader(status)
	})}
	go func() { _ = s.Serve(l) }() // ends with Close
	tb.Cleanup(func() {
		close(stopped)
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return r
}

func (r *receiver) note(req *http.Request) {
	now := time.Now()
	var body struct{ Data struct{ N *int } }
	err := json.NewDecoder(req.Body).Decode(&body)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && body.Data.N != nil {
		if _, again := r.arrived[*body.Data.N]; !again {
			r.arrived[*body.Data.N] = now
		}
	}
}

// at returns when event n arrived; the zero time: not yet.
func (r *receiver) at(n int) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.arrived[n]
}

// closedPort returns the URL of an address where nobody listens.
func closedPort(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	if err := l.Close(); err != nil {
		tb.Fatal(err)
	}
	return "http://" + l.Addr().String() + "/"
}
