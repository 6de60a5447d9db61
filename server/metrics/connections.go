package metrics

import "github.com/prometheus/client_golang/prometheus"

// connections counts the connections of the HTTP server.
type connections struct {
	open    prometheus.Gauge
	refused *prometheus.CounterVec
}

func newConnections(f factory) connections {
	c := connections{
		open: f.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "http_connections", Help: "Open connections, including connections to the local socket.",
		}),
		refused: f.counters("http_connections_refused_total",
			"Connections that the server closed, by reason: address (the client address had too many) or idle (few were left).", "reason"),
	}
	for _, reason := range []string{"address", "idle"} {
		c.refused.WithLabelValues(reason)
	}
	return c
}

// ConnectionOpened counts a new connection.
func (m *Metrics) ConnectionOpened() { m.connections.open.Inc() }

// ConnectionClosed counts the end of a connection.
func (m *Metrics) ConnectionClosed() { m.connections.open.Dec() }

// ConnectionRefused counts a connection that the server closed. The reason must come from a bounded set.
func (m *Metrics) ConnectionRefused(reason string) {
	m.connections.refused.WithLabelValues(reason).Inc()
}
