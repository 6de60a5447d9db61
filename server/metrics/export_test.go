package metrics

import "github.com/prometheus/client_golang/prometheus"

// Gatherer returns the registry, for tools that check metrics.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }
