package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyhook/keyhook/storage/webhook"
)

// deliveries counts events, attempts and deliveries.
type deliveries struct {
	published   prometheus.Counter
	attempts    *prometheus.CounterVec
	failures    *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	ended       *prometheus.CounterVec
	transitions *prometheus.CounterVec
}

// other labels failures of no known class.
const other = "other"

// expired labels deliveries that retention deleted while they were pending.
const expired = "expired"

// newDeliveries makes each series at zero, so that Prometheus sees its first count as an increase.
func newDeliveries(f factory) deliveries {
	d := deliveries{
		published: f.counter("events_published_total", "Events accepted from publishers, without repetitions of an idempotency key."),
		attempts: f.counters("delivery_attempts_total",
			"Attempts that ended, including tests, by outcome. Interrupted attempts are counted at the next start.", "outcome"),
		failures: f.counters("delivery_attempt_failures_total", "Attempts that failed, by error class.", "class"),
		seconds: f.histograms("delivery_attempt_duration_seconds",
			"Time from the DNS lookup of the receiver to the end of its response, by outcome.",
			[]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30}, "outcome"),
		ended:       f.counters("deliveries_ended_total", "Deliveries that ended, without tests, by state. Expired ones waited until retention deleted them.", "state"),
		transitions: f.counters("subscription_transitions_total", "Status changes of subscriptions, by new status.", "status"),
	}
	for _, outcome := range []webhook.Outcome{webhook.Succeeded, webhook.Failed, webhook.Interrupted} {
		d.attempts.WithLabelValues(outcome.String())
	}
	for _, outcome := range []webhook.Outcome{webhook.Succeeded, webhook.Failed} {
		d.seconds.WithLabelValues(outcome.String())
	}
	for _, state := range []string{webhook.Delivered.String(), webhook.Exhausted.String(), expired} {
		d.ended.WithLabelValues(state)
	}
	for _, class := range webhook.FailureClasses() {
		d.failures.WithLabelValues(string(class))
	}
	d.failures.WithLabelValues(other)
	for _, status := range []webhook.Status{webhook.Healthy, webhook.Failing, webhook.Disabled} {
		d.transitions.WithLabelValues(string(status))
	}
	return d
}

// Published counts accepted events.
func (m *Metrics) Published(events int) { m.deliveries.published.Add(float64(events)) }

// Ended counts a finished attempt, and its delivery if that ended with it.
func (m *Metrics) Ended(r webhook.Result, settled webhook.Settled) {
	d := &m.deliveries
	outcome := webhook.Succeeded
	if !r.Succeeded {
		outcome = webhook.Failed
		d.failures.WithLabelValues(label(r.Failure.Class)).Inc()
	}
	d.attempts.WithLabelValues(outcome.String()).Inc()
	d.seconds.WithLabelValues(outcome.String()).Observe(float64(r.DurationMS) / 1000)
	if r.Trigger != webhook.ByTest && (settled.State == webhook.Delivered || settled.State == webhook.Exhausted) {
		d.ended.WithLabelValues(settled.State.String()).Inc()
	}
}

// label returns the label of a class. All unknown classes share one label, so a mistake in another package cannot add series.
func label(class webhook.FailureClass) string {
	if !slices.Contains(webhook.FailureClasses(), class) {
		return other
	}
	return string(class)
}

// Expired counts pending deliveries that retention deleted.
func (m *Metrics) Expired(deliveries int) {
	m.deliveries.ended.WithLabelValues(expired).Add(float64(deliveries))
}

// Interrupted counts attempts that a stop or a crash interrupted.
func (m *Metrics) Interrupted(attempts int) {
	m.deliveries.attempts.WithLabelValues(webhook.Interrupted.String()).Add(float64(attempts))
}

// HealthChanged counts a change of the status of a subscription.
func (m *Metrics) HealthChanged(status webhook.Status) {
	m.deliveries.transitions.WithLabelValues(string(status)).Inc()
}
