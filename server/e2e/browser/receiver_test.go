package browser

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// receiver takes deliveries. Each path below its URL is an endpoint of its own, which answers 204 until told otherwise.
type receiver struct {
	base string

	mu        sync.Mutex
	endpoints map[string]*endpoint
}

type endpoint struct {
	status   int
	body     string
	hanging  chan struct{} // closed when it answers again; nil while it answers
	requests []delivery
}

// delivery is a request that arrived.
type delivery struct {
	header http.Header
	body   string
}

// receive starts a receiver that runs until the test ends.
func receive(tb testing.TB) *receiver {
	tb.Helper()
	r := &receiver{endpoints: map[string]*endpoint{}}
	s := httptest.NewServer(r)
	r.base = s.URL
	tb.Cleanup(func() {
		for name := range r.endpoints {
			r.answer(name, http.StatusNoContent, "") // a hanging answer would delay the end
		}
		s.Close()
	})
	return r
}

// url returns the address of an endpoint.
func (r *receiver) url(name string) string { return r.base + "/" + name }

// answer changes how an endpoint answers, and ends its hanging.
func (r *receiver) answer(name string, status int, body string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.at(name)
	e.status, e.body = status, body
	if e.hanging != nil {
		close(e.hanging)
		e.hanging = nil
	}
}

// hang makes an endpoint accept requests and not answer.
func (r *receiver) hang(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.at(name); e.hanging == nil {
		e.hanging = make(chan struct{})
	}
}

// arrived returns the requests to an endpoint so far.
func (r *receiver) arrived(name string) []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]delivery(nil), r.at(name).requests...)
}

// await waits until n requests have arrived at an endpoint.
func (r *receiver) await(tb testing.TB, name string, n int) {
	tb.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); len(r.arrived(name)) < n; <-tick.C {
		if time.Now().After(deadline) {
			tb.Fatalf("%d requests have arrived at %q, not %d", len(r.arrived(name)), name, n)
		}
	}
}

// at returns an endpoint. The caller holds the mutex.
func (r *receiver) at(name string) *endpoint {
	if r.endpoints[name] == nil {
		r.endpoints[name] = &endpoint{status: http.StatusNoContent}
	}
	return r.endpoints[name]
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the sender has gone
	}
	name := strings.TrimPrefix(req.URL.Path, "/")
	r.mu.Lock()
	e := r.at(name)
	e.requests = append(e.requests, delivery{req.Header, string(body)})
	hanging := e.hanging
	r.mu.Unlock()
	if hanging != nil {
		select {
		case <-hanging:
		case <-req.Context().Done():
			return
		}
	}
	r.mu.Lock()
	status, answer := e.status, e.body
	r.mu.Unlock()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("X-Request-Id", "request-of-"+name)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, answer) // the sender may have gone
}
