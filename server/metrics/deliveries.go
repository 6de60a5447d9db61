package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyhook/keyhook/storage/webhook"
)

// deliveries counts events and what becomes of them.
type deliveries struct {
	published   prometheus.Counter
	attempts    *prometheus.CounterVec
	failures    *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	over        *prometheus.CounterVec
	transitions *prometheus.CounterVec

	// The series of the hot path, by their values.
	byOutcome [webhook.Interrupted + 1]prometheus.Counter
	duration  [webhook.Failed + 1]prometheus.Observer
	byState   [webhook.Dropped + 1]prometheus.Counter
}

// other labels failures of no known class.
const other = "other"

func newDeliveries() deliveries {
	d := deliveries{
		published: counter("events_published_total", "Events accepted from publishers; repetitions under an idempotency key are not."),
		attempts: counters("delivery_attempts_total",
			"Attempts that ended, tests included, by outcome; those interrupted are counted by the start that finds them.", "outcome"),
		failures: counters("delivery_attempt_failures_total", "Attempts that failed, by the class of their error.", "class"),
		seconds: histograms("delivery_attempt_duration_seconds",
			"Time from the look-up of the receiver's name to the end of its answer, by outcome.",
			[]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30}, "outcome"),
		over:        counters("deliveries_ended_total", "Deliveries that ended with an attempt, by state; tests are none.", "state"),
		transitions: counters("subscription_transitions_total", "Changes of a subscription's health, by its new status.", "status"),
	}
	for _, o := range []webhook.Outcome{webhook.Succeeded, webhook.Failed, webhook.Interrupted} {
		d.byOutcome[o] = d.attempts.WithLabelValues(o.String())
	}
	for _, o := range []webhook.Outcome{webhook.Succeeded, webhook.Failed} {
		d.duration[o] = d.seconds.WithLabelValues(o.String())
	}
	for _, s := range []webhook.DeliveryState{webhook.Delivered, webhook.Exhausted} {
		d.byState[s] = d.over.WithLabelValues(s.String())
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

func (d *deliveries) collectors() []prometheus.Collector {
	return []prometheus.Collector{d.published, d.attempts, d.failures, d.seconds, d.over, d.transitions}
}

// Published counts events that were accepted.
func (m *Metrics) Published(events int) { m.deliveries.published.Add(float64(events)) }

// Ended counts an attempt and what it led to.
func (m *Metrics) Ended(r webhook.Result, made webhook.Settled) { m.deliveries.ended(r, made) }

func (d *deliveries) ended(r webhook.Result, made webhook.Settled) {
	outcome := webhook.Succeeded
	if !r.Succeeded {
		outcome = webhook.Failed
		d.failures.WithLabelValues(label(r.Failure.Class)).Inc()
	}
	d.byOutcome[outcome].Inc()
	d.duration[outcome].Observe(float64(r.DurationMS) / 1000)
	if r.Trigger != webhook.ByTest && (made.State == webhook.Delivered || made.State == webhook.Exhausted) {
		d.byState[made.State].Inc()
	}
}

// label returns the label of a class. Classes that are not known share one, so a mistake elsewhere cannot add series.
func label(class webhook.FailureClass) string {
	if !slices.Contains(webhook.FailureClasses(), class) {
		return other
	}
	return string(class)
}

// Interrupted counts attempts that were cut off by a stop or a crash.
func (m *Metrics) Interrupted(attempts int) {
	m.deliveries.byOutcome[webhook.Interrupted].Add(float64(attempts))
}

// Turned counts a change of a subscription's health.
func (m *Metrics) Turned(status webhook.Status) {
	m.deliveries.transitions.WithLabelValues(string(status)).Inc()
}
