package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyhook/keyhook/dispatch/alert"
	"github.com/keyhook/keyhook/storage/webhook"
)

// counts counts what happens to connections, events, attempts, deliveries, alerts and the writer of the database.
type counts struct {
	connections prometheus.Gauge
	refused     *prometheus.CounterVec // connections

	published   prometheus.Counter
	attempts    *prometheus.CounterVec
	failures    *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	ended       *prometheus.CounterVec
	transitions *prometheus.CounterVec

	alerts *prometheus.CounterVec

	writes        prometheus.Observer
	commitSeconds prometheus.Observer
}

// other labels failures of no known class.
const other = "other"

// expired labels deliveries that retention deleted while they were pending.
const expired = "expired"

// alertResult is the label of how an alert ended.
var alertResult = map[bool]string{true: "sent", false: "failed"}

func newCounts(f factory) counts {
	c := counts{
		connections: f.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "http_connections", Help: "Open connections, including connections to the local socket.",
		}),
		refused: started(f.counters("http_connections_refused_total",
			"Connections that the server closed, by reason: address (the client address had too many) or idle (few were left).", "reason"),
			"address", "idle"),
		published: f.counters("events_published_total",
			"Events accepted from publishers, without repetitions of an idempotency key.").WithLabelValues(),
		attempts: started(f.counters("delivery_attempts_total",
			"Attempts that ended, including tests, by outcome. Interrupted attempts are counted at the next start.", "outcome"),
			webhook.Succeeded.String(), webhook.Failed.String(), webhook.Interrupted.String()),
		failures: started(started(f.counters("delivery_attempt_failures_total", "Attempts that failed, by error class.", "class"),
			webhook.FailureClasses()...), other),
		seconds: f.histograms("delivery_attempt_duration_seconds",
			"Time from the DNS lookup of the receiver to the end of its response, by outcome.",
			[]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30}, "outcome"),
		ended: started(f.counters("deliveries_ended_total",
			"Deliveries that ended, without tests, by state. Expired ones waited until retention deleted them.", "state"),
			webhook.Delivered.String(), webhook.Exhausted.String(), expired),
		transitions: started(f.counters("subscription_transitions_total", "Status changes of subscriptions, by new status.", "status"),
			webhook.Healthy, webhook.Failing, webhook.Disabled),
		alerts: f.counters("alerts_total", "Alerts to the operator, by kind and result. Each channel counts.", "kind", "result"),
		writes: f.histograms("storage_commit_writes", "Writes in one commit.",
			[]float64{1, 2, 4, 8, 16, 32, 64, 128, 256}).WithLabelValues(),
		commitSeconds: f.histograms("storage_commit_duration_seconds", "Time from the beginning of a transaction until it is durable.",
			[]float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5}).WithLabelValues(),
	}
	for _, outcome := range []webhook.Outcome{webhook.Succeeded, webhook.Failed} {
		c.seconds.WithLabelValues(outcome.String())
	}
	for _, kind := range alert.Kinds() {
		for _, result := range alertResult {
			c.alerts.WithLabelValues(string(kind), result)
		}
	}
	return c
}

// started makes each series at zero, so that Prometheus sees its first count as an increase.
func started[T ~string](counter *prometheus.CounterVec, values ...T) *prometheus.CounterVec {
	for _, value := range values {
		counter.WithLabelValues(string(value))
	}
	return counter
}

// ConnectionOpened counts a new connection.
func (c *counts) ConnectionOpened() { c.connections.Inc() }

// ConnectionClosed counts the end of a connection.
func (c *counts) ConnectionClosed() { c.connections.Dec() }

// ConnectionRefused counts a connection that the server closed. The reason must come from a bounded set.
func (c *counts) ConnectionRefused(reason string) { c.refused.WithLabelValues(reason).Inc() }

// Committed measures a durable transaction of some writes.
func (c *counts) Committed(writes int, took time.Duration) {
	c.writes.Observe(float64(writes))
	c.commitSeconds.Observe(took.Seconds())
}

// Alerted counts an alert that was sent through a channel, or given up.
func (c *counts) Alerted(kind alert.Kind, sent bool) {
	c.alerts.WithLabelValues(string(kind), alertResult[sent]).Inc()
}

// Published counts accepted events.
func (c *counts) Published(events int) { c.published.Add(float64(events)) }

// Ended counts a finished attempt, and its delivery if that ended with it.
func (c *counts) Ended(r webhook.Result, settled webhook.Settled) {
	outcome := webhook.Succeeded
	if !r.Succeeded {
		outcome = webhook.Failed
		class := string(r.Failure.Class)
		if !slices.Contains(webhook.FailureClasses(), r.Failure.Class) {
			class = other // so a mistake in another package cannot add series
		}
		c.failures.WithLabelValues(class).Inc()
	}
	c.attempts.WithLabelValues(outcome.String()).Inc()
	c.seconds.WithLabelValues(outcome.String()).Observe(float64(r.DurationMS) / 1000)
	if r.Trigger != webhook.ByTest && (settled.State == webhook.Delivered || settled.State == webhook.Exhausted) {
		c.ended.WithLabelValues(settled.State.String()).Inc()
	}
}

// Expired counts pending deliveries that retention deleted.
func (c *counts) Expired(deliveries int) { c.ended.WithLabelValues(expired).Add(float64(deliveries)) }

// Interrupted counts attempts that a stop or a crash interrupted.
func (c *counts) Interrupted(attempts int) {
	c.attempts.WithLabelValues(webhook.Interrupted.String()).Add(float64(attempts))
}

// HealthChanged counts a change of the status of a subscription.
func (c *counts) HealthChanged(status webhook.Status) {
	c.transitions.WithLabelValues(string(status)).Inc()
}
