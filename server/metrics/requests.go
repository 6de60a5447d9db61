package metrics

import (
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type requests struct {
	known           atomic.Pointer[map[outcome]series]
	adding          sync.Mutex // guards changes of known
	total           *prometheus.CounterVec
	seconds         *prometheus.HistogramVec
	rateLimited     prometheus.Counter
	throttled       prometheus.Counter
	unauthenticated *prometheus.CounterVec
}

// outcome is what the labels of a finished request are made from.
type outcome struct {
	method, route string
	status        int
}

// series are the metrics with the labels of an outcome. To find them by their labels takes longer than to count.
type series struct {
	total   prometheus.Counter
	seconds prometheus.Observer
}

func newRequests(f factory) *requests {
	r := &requests{
		total: f.counters("http_requests_total",
			"HTTP requests by route pattern, method and status. The route none is every path without a route.",
			"route", "method", "status"),
		seconds: f.histograms("http_request_duration_seconds",
			"Time from the header of a request to the end of its response, by route pattern and method.",
			[]float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}, "route", "method"),
		rateLimited: f.counters("http_rate_limited_total",
			"Requests refused because an API key used its rate limit, or an organization used server.token_rate.").WithLabelValues(),
		throttled: f.counters("http_throttled_total",
			"Requests refused because the client address sent too many invalid credentials.").WithLabelValues(),
		unauthenticated: f.counters("authentication_failures_total", "Responses with the status 401, by problem code.", "code"),
	}
	r.known.Store(&map[outcome]series{})
	return r
}

func (r *requests) series(o outcome) series {
	if s, found := (*r.known.Load())[o]; found {
		return s
	}
	r.adding.Lock()
	defer r.adding.Unlock()
	s := series{r.total.WithLabelValues(o.route, o.method, statusLabel(o.status)), r.seconds.WithLabelValues(o.route, o.method)}
	known := maps.Clone(*r.known.Load())
	known[o] = s
	r.known.Store(&known)
	return s
}

// Problem codes with their own counter, for every status: some proxies need a 403 where others get a 429.
const (
	codeRateLimited = "rate_limited"
	codeThrottled   = "too_many_failures"
)

// Observe counts a finished request. The method and the route must come from a bounded set. code is the code of the problem
// in the response, and empty for a success.
func (m *Metrics) Observe(method, route string, status int, code string, took time.Duration) {
	r := m.requests
	s := r.series(outcome{method, route, status})
	s.total.Inc()
	s.seconds.Observe(took.Seconds())
	switch {
	case code == codeRateLimited:
		r.rateLimited.Inc()
	case code == codeThrottled:
		r.throttled.Inc()
	case code != "" && status == http.StatusUnauthorized:
		r.unauthenticated.WithLabelValues(code).Inc()
	}
}

// statusLabel returns the value of the status label. A status that HTTP does not define is "other".
func statusLabel(status int) string {
	if http.StatusText(status) == "" {
		return other
	}
	return strconv.Itoa(status)
}
