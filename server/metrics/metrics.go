// Package metrics owns the metrics of the process: their names, their labels, and how Prometheus reads them. It does not know
// who counts: other packages call its methods through hooks, and a source provides the other values at every scrape.
//
// No label has values that callers of the API could choose.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/keyhook/keyhook/server/build"
	"github.com/keyhook/keyhook/server/share"
)

// namespace begins all names, except the metrics of the Go runtime and of the process.
const namespace = "keyhook"

// Metrics counts. Use New. All methods may be called at any time by any goroutine, and none waits, except that a scrape reads the
// database for a limited time.
type Metrics struct {
	counts
	http.Handler // answers a scrape on any path
	registry     *prometheus.Registry
	requests     *requests
	state        state
}

// New returns metrics that are all zero.
func New() *Metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	f := factory{promauto.With(registry)}
	b := build.Read()
	f.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info",
		Help:        "Version, revision and Go version of the binary; always 1.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Commit, "goversion": b.Go},
	}).Set(1)
	m := &Metrics{counts: newCounts(f), registry: registry, requests: newRequests(f)}
	m.state.errors = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Name: "scrape_errors_total",
		Help: "Reads of the database that failed during a scrape, so that some metrics are missing.",
	})
	registry.MustRegister(&m.state)
	m.Handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorHandling:  promhttp.ContinueOnError, // some metrics are better than none
		CoalesceGather: true,                     // many scrapes at once read the database once
	})
	return m
}

// Describe sends the description of every metric, as prometheus.Collector says. A scrape shows only those that something has counted.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) { m.registry.Describe(to) }

// factory makes metrics and registers them. WithLabelValues() is the only series of a metric without labels.
type factory struct{ promauto.Factory }

func (f factory) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return f.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func (f factory) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return f.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
}

// Limits of a connection, which needs no credential.
const (
	readTimeout    = 5 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 5 * time.Minute // longer than the time between two scrapes
	maxHeaderBytes = 8 << 10
	maxConnections = 64
	grace          = 5 * time.Second // for scrapes in progress at a stop
)

// unlessRebound returns a handler that refuses a request to a loopback address if the request names another host. Another site may have
// led a browser on this machine there.
func unlessRebound(listens net.Addr, next http.Handler) http.Handler {
	address, err := netip.ParseAddrPort(listens.String())
	if err != nil || !address.Addr().IsLoopback() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !share.NamesLoopback(r) {
			http.Error(w, "The host of this request is not this machine; use localhost, or set metrics.listen to another address.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Serve serves only /metrics, in plain HTTP and without credentials, on l until ctx ends. It owns l and closes it.
func (m *Metrics) Serve(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m)
	mux.Handle("GET /metrics/{$}", m)
	server := &http.Server{
		Handler: unlessRebound(l.Addr(), mux), DisableGeneralOptionsHandler: true, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(netutil.LimitListener(l, maxConnections)) }()
	select {
	case err := <-served:
		return errors.Join(fmt.Errorf("serve metrics at %s: %w", l.Addr(), err), server.Close())
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := server.Shutdown(ending)
	if err != nil {
		err = server.Close()
	}
	_ = <-served // http.ErrServerClosed
	return err
}
