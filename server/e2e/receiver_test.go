package e2e

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// receiver takes deliveries on a loopback address, and remembers what arrived.
type receiver struct {
	url  string
	down atomic.Bool // whether the answer is 503

	mu       sync.Mutex
	total    int               // of all requests
	first    map[int]time.Time // when each event with a number, data.n, arrived for the first time
	events   map[string]int    // the number of requests for each event, by id
	attempts map[string]int    // the number of requests for each attempt, by event id and attempt number: "evt_… 1"
}

// receive starts a receiver that waits for delay before it answers with status. The receiver runs until the test ends, and
// a waiting answer does not delay the end.
func receive(tb testing.TB, status int, delay time.Duration) *receiver {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	r := &receiver{url: "http://" + l.Addr().String() + "/", first: map[int]time.Time{}, events: map[string]int{}, attempts: map[string]int{}}
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
		if r.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
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
	id := req.Header.Get("X-Service-Event-Id")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total++
	r.events[id]++
	r.attempts[id+" "+req.Header.Get("X-Service-Attempt")]++
	if err == nil && body.Data.N != nil {
		if _, again := r.first[*body.Data.N]; !again {
			r.first[*body.Data.N] = now
		}
	}
}

// host returns the receiver's host and port.
func (r *receiver) host() string {
	return strings.TrimSuffix(strings.TrimPrefix(r.url, "http://"), "/")
}

// at returns when event n arrived; the zero time: not yet.
func (r *receiver) at(n int) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first[n]
}

// requests returns the number of requests so far.
func (r *receiver) requests() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}

// compare checks the attempts on record for a subscription against the requests that arrived: every accepted event has
// arrived, every request is on record, and no attempt is on record twice.
func (r *receiver) compare(tb testing.TB, accepted map[string]bool, recorded map[string]int) {
	tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range accepted {
		if r.events[id] == 0 {
			tb.Errorf("%s was accepted and never arrived", id)
		}
	}
	for attempt := range r.attempts {
		if recorded[attempt] == 0 {
			tb.Errorf("attempt %s was on the wire and is not on record", attempt)
		}
	}
	for attempt, n := range recorded {
		if n > 1 {
			tb.Errorf("attempt %s is on record %d times", attempt, n)
		}
	}
	tb.Logf("%d events accepted, %d attempts on the wire, %d on record", len(accepted), len(r.attempts), len(recorded))
}

// hanging is a receiver that does not answer its one request before the test says so.
type hanging struct {
	url     string
	arrived chan struct{} // closed by the request
	answer  func()
}

func hang(tb testing.TB) *hanging {
	tb.Helper()
	h := &hanging{arrived: make(chan struct{})}
	wait := make(chan struct{})
	h.answer = sync.OnceFunc(func() { close(wait) })
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(h.arrived)
		<-wait
	}))
	h.url = s.URL
	tb.Cleanup(func() {
		h.answer()
		s.Close()
	})
	return h
}

// freeAddress returns host:port on loopback where nobody listens.
func freeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	if err := l.Close(); err != nil {
		tb.Fatal(err)
	}
	return l.Addr().String()
}

// closedPort returns the URL of an address where nobody listens.
func closedPort(tb testing.TB) string {
	tb.Helper()
	return "http://" + freeAddress(tb) + "/"
}

// headersOf starts a receiver that is down, and returns its URL and the headers of its requests.
func headersOf(tb testing.TB) (url string, arrived <-chan http.Header) {
	tb.Helper()
	headers := make(chan http.Header, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		headers <- r.Header
	}))
	tb.Cleanup(s.Close)
	return s.URL, headers
}
