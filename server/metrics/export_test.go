package metrics

import "github.com/prometheus/client_golang/prometheus"

// Gatherer is what a scrape shows, for tools that check it.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }
