package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyhook/keyhook/dispatch/alert"
)

// alertResult is the label of how an alert ended.
var alertResult = map[bool]string{true: "sent", false: "failed"}

// newAlerts makes each series at zero, so that Prometheus sees its first count as an increase.
func newAlerts(f factory) *prometheus.CounterVec {
	alerts := f.counters("alerts_total", "Alerts to the operator, by kind and result. Each channel counts.", "kind", "result")
	for _, kind := range alert.Kinds() {
		for _, result := range alertResult {
			alerts.WithLabelValues(string(kind), result)
		}
	}
	return alerts
}

// Alerted counts an alert that was sent through a channel, or given up.
func (m *Metrics) Alerted(kind alert.Kind, sent bool) {
	m.alerts.WithLabelValues(string(kind), alertResult[sent]).Inc()
}
