package metrics

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// requests counts what the HTTP floor answers.
type requests struct {
	total       *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	rateLimited prometheus.Counter
	throttled   prometheus.Counter
	strangers   *prometheus.CounterVec
}

func newRequests() requests {
	return requests{
		total: counters("http_requests_total",
			"HTTP requests by the pattern of their route, method and status; the route none is every path that there is not.",
			"route", "method", "status"),
		seconds: histograms("http_request_duration_seconds",
			"Time from a request's header to the end of its answer, by the pattern of its route and method.",
			[]float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}, "route", "method"),
		rateLimited: counter("http_rate_limited_total", "Requests refused because the rate window of their key, or the rate of their organization without keys, was used up."),
		throttled:   counter("http_throttled_total", "Requests refused because their address had failed to authenticate too often."),
		strangers:   counters("authentication_failures_total", "Requests answered with 401, by the code of the answer.", "code"),
	}
}

func (r *requests) collectors() []prometheus.Collector {
	return []prometheus.Collector{r.total, r.seconds, r.rateLimited, r.throttled, r.strangers}
}

// statuses are the ones that have a label of their own. Any other is "other", which is the first.
var statuses = [...]int{
	0, 200, 201, 202, 204, 206, 301, 302, 303, 304, 307, 308,
	400, 401, 403, 404, 405, 406, 408, 409, 410, 411, 412, 413, 415, 416, 417, 422, 426, 428, 429, 431,
	500, 501, 502, 503, 504,
}

// placeOf is where a status stands in statuses; 0 is other.
var placeOf = func() (places [600]uint8) {
	for i, status := range statuses {
		places[status] = uint8(i)
	}
	return places
}()

// Codes of answers that are counted on their own, whatever their status: some proxies want a 403 in place of a 429.
const (
	codeRateLimited = "rate_limited"
	codeThrottled   = "too_many_failures"
)

// Requests returns what is to be called at the end of each request with that method to that route; code is the problem's
// of its answer, empty for a success. The method and the route must be out of a bounded set, and so must the codes.
func (m *Metrics) Requests(method, route string) func(status int, code string, took time.Duration) {
	r := &line{requests: &m.requests, method: method, route: route}
	return r.ended
}

// line counts the requests of one method to one route. Its series come into being with the first request that they
// count, so that what is never called is not shown.
type line struct {
	*requests
	method, route string
	byStatus      [len(statuses)]atomic.Pointer[prometheus.Counter]
	duration      atomic.Pointer[prometheus.Observer]
}

func (l *line) ended(status int, code string, took time.Duration) {
	place := 0
	if status > 0 && status < len(placeOf) {
		place = int(placeOf[status])
	}
	(*l.counter(place)).Inc()
	(*l.observer()).Observe(took.Seconds())
	if code == "" {
		return
	}
	switch {
	case code == codeRateLimited:
		l.rateLimited.Inc()
	case code == codeThrottled:
		l.throttled.Inc()
	case status == http.StatusUnauthorized:
		l.strangers.WithLabelValues(code).Inc()
	}
}

// counter returns the counter of a status. Two that make it at once make the same.
func (l *line) counter(place int) *prometheus.Counter {
	if known := l.byStatus[place].Load(); known != nil {
		return known
	}
	label := other
	if place > 0 {
		label = strconv.Itoa(statuses[place])
	}
	made := l.total.WithLabelValues(l.route, l.method, label)
	l.byStatus[place].Store(&made)
	return &made
}

func (l *line) observer() *prometheus.Observer {
	if known := l.duration.Load(); known != nil {
		return known
	}
	made := l.seconds.WithLabelValues(l.route, l.method)
	l.duration.Store(&made)
	return &made
}
