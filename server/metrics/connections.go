package metrics

import "github.com/prometheus/client_golang/prometheus"

// connections counts the connections of the HTTP floor.
type connections struct {
	open    prometheus.Gauge
	refused *prometheus.CounterVec
}

func newConnections() connections {
	c := connections{
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "http_connections", Help: "Connections that are open, those of the local socket included.",
		}),
		refused: counters("http_connections_refused_total",
			"Connections that the server closed: its address had too many (address), or it was idle and few were left (idle).", "reason"),
	}
	for _, reason := range []string{"address", "idle"} {
		c.refused.WithLabelValues(reason)
	}
	return c
}

func (c *connections) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.open, c.refused}
}

// ConnectionOpened counts a connection that is open from now on.
func (m *Metrics) ConnectionOpened() { m.conns.open.Inc() }

// ConnectionClosed counts the end of a connection.
func (m *Metrics) ConnectionClosed() { m.conns.open.Dec() }

// ConnectionRefused counts a connection that was closed for others. The reasons must be out of a bounded set.
func (m *Metrics) ConnectionRefused(reason string) { m.conns.refused.WithLabelValues(reason).Inc() }
