// Package metrics owns what the process tells Prometheus about itself: which numbers there are, what they are called, and
// how they are shown. It does not know who counts: the other floors call its methods through hooks of their own, and the
// store is asked for the rest at every scrape.
//
// No label has values that a caller could choose. What is counted often is looked up once, when the process starts.
package metrics

import (
	"cmp"
	"net/http"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// namespace is what all names begin with but those of the Go runtime and of the process.
const namespace = "keyhook"

// Metrics counts. Use New; all methods may be called at any time by anybody, and return at once.
type Metrics struct {
	registry   *prometheus.Registry
	handler    http.Handler
	requests   requests
	conns      connections
	deliveries deliveries
	commits    commits
	sample     sample
}

// New returns metrics that stand at zero.
func New() *Metrics {
	m := &Metrics{
		registry:   prometheus.NewRegistry(),
		requests:   newRequests(),
		conns:      newConnections(),
		deliveries: newDeliveries(),
		commits:    newCommits(),
		sample:     newSample(),
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), newBuild())
	m.registry.MustRegister(m.requests.collectors()...)
	m.registry.MustRegister(m.conns.collectors()...)
	m.registry.MustRegister(m.deliveries.collectors()...)
	m.registry.MustRegister(m.commits.collectors()...)
	m.registry.MustRegister(&m.sample)
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling:  promhttp.ContinueOnError, // half of the numbers are better than none
		CoalesceGather: true,                     // so that many scrapes at once read the database once
	})
	return m
}

// ServeHTTP answers a scrape, whatever the path. What is read for it is bounded in time.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

// newBuild tells what the binary was built from.
func newBuild() prometheus.Collector {
	version, revision := "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = cmp.Or(info.Main.Version, version)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info",
		Help:        "What the binary was built from; always 1.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "goversion": runtime.Version()},
	})
	build.Set(1)
	return build
}

// counter makes a counter without labels.
func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
}

// counters makes a counter with labels.
func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

// histogram makes a histogram without labels.
func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
}

// histograms makes a histogram with labels.
func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
}
