package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// commits measures the writer of the database.
type commits struct {
	writes  prometheus.Histogram
	seconds prometheus.Histogram
}

func newCommits(f factory) commits {
	return commits{
		writes: f.histogram("storage_commit_writes", "Writes in one commit.", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256}),
		seconds: f.histogram("storage_commit_duration_seconds", "Time from the beginning of a transaction until it is durable.",
			[]float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5}),
	}
}

// Committed measures a durable transaction of some writes.
func (m *Metrics) Committed(writes int, took time.Duration) {
	m.commits.writes.Observe(float64(writes))
	m.commits.seconds.Observe(took.Seconds())
}
