package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/webhook"
)

// source is what a scrape reads.
type source interface {
	// Backlog returns the pending deliveries.
	Backlog(ctx context.Context) (webhook.Backlog, error)
	// SubscriptionCounts returns the numbers of subscriptions by status. It does not read the database.
	SubscriptionCounts() webhook.SubscriptionCounts
	// Sizes returns the bytes of the database and of its write-ahead log.
	Sizes() (database, log int64, err error)
	// Free returns the free bytes on the disk of the database; ok is false if they are unknown.
	Free() (bytes uint64, ok bool)
	// Degraded returns each reason for which the database may refuse writes, and whether it does now.
	Degraded() map[string]bool
	// Clock returns whether the wall clock can be trusted.
	Clock() clock.State
}

// readLimit is the longest time that a scrape waits for the database.
const readLimit = 2 * time.Second

// state is the metrics that are read at each scrape. A scrape leaves out what cannot be read, because an old number or a zero
// would be misleading.
type state struct {
	source  source // nil until Read: no state then
	backlog backlog
	errors  prometheus.Counter
}

// The metrics of a state.
var (
	pending = describe("deliveries_pending",
		"Pending deliveries, by state of their subscription. The state closed is disabled, removed, or without a plan with webhooks.", "state")
	lanes         = describe("lanes", "Subscriptions with pending deliveries, by state.", "state")
	subscriptions = describe("subscriptions", "Subscriptions of all organizations, by status.", "status")
	paused        = describe("subscriptions_paused", "Disabled subscriptions that somebody has paused. Failures have disabled the others.")
	oldestAge     = describe("deliveries_oldest_due_age_seconds",
		"How long the oldest due delivery of an open subscription is overdue; 0 if there is none.")
	held     = describe("queue_held", "1 while the queue is held and nothing is sent, otherwise 0.")
	database = describe("storage_database_bytes", "Size of the database file.")
	wal      = describe("storage_wal_bytes", "Size of the database's write-ahead log.")
	free     = describe("storage_free_bytes", "Free bytes on the disk of the database.")
	degraded = describe("degraded", "1 while the database refuses writes for this reason, otherwise 0.", "reason")
	jump     = describe("clock_jump_seconds", "Jump of the clock; negative means backwards. The server deletes old rows only while this is 0.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

// Read sets the source that every scrape reads. Call it once, before the first scrape.
func (m *Metrics) Read(s source) { m.state.source = s }

// Describe is part of prometheus.Collector. The registry does not ask for the metrics that a scrape may leave out.
func (s *state) Describe(ch chan<- *prometheus.Desc) { s.errors.Describe(ch) }

// Collect is part of prometheus.Collector.
func (s *state) Collect(ch chan<- prometheus.Metric) {
	if s.source != nil {
		s.read(func(d *prometheus.Desc, value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
		})
	}
	s.errors.Collect(ch) // last, so that it counts the errors of this scrape too
}

func (s *state) read(show func(d *prometheus.Desc, value float64, labels ...string)) {
	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	if b, err := s.backlog.read(ctx, s.source); err != nil {
		s.errors.Inc()
	} else {
		for state, w := range map[string]webhook.Waiting{"healthy": b.Healthy, "failing": b.Failing, "closed": b.Closed} {
			show(pending, float64(w.Deliveries), state)
			show(lanes, float64(w.Lanes), state)
		}
		show(oldestAge, age(b.OldestDue))
		show(held, flag[b.Held])
	}
	n := s.source.SubscriptionCounts()
	for status, number := range map[webhook.Status]int64{webhook.Healthy: n.Healthy, webhook.Failing: n.Failing, webhook.Disabled: n.Disabled} {
		show(subscriptions, float64(number), string(status))
	}
	show(paused, float64(n.Paused))
	if bytes, logBytes, err := s.source.Sizes(); err != nil {
		s.errors.Inc()
	} else {
		show(database, float64(bytes))
		show(wal, float64(logBytes))
	}
	if bytes, ok := s.source.Free(); ok {
		show(free, float64(bytes))
	}
	show(jump, s.source.Clock().Jump().Seconds())
	for reason, is := range s.source.Degraded() {
		show(degraded, flag[is], reason)
	}
}

var flag = map[bool]float64{true: 1}

// slowRead is the duration from which a read of the backlog is not repeated for every scrape.
const slowRead = 50 * time.Millisecond

// backlog caches the result of a slow read for a hundred times its duration. With 300,000 subscriptions that have pending
// deliveries, a read takes a second.
type backlog struct {
	mu    sync.Mutex
	known webhook.Backlog
	until time.Time
}

func (k *backlog) read(ctx context.Context, from source) (webhook.Backlog, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	begin := time.Now()
	if begin.Before(k.until) {
		return k.known, nil
	}
	b, err := from.Backlog(ctx)
	if err != nil {
		return b, err
	}
	if end := time.Now(); end.Sub(begin) > slowRead {
		k.known, k.until = b, end.Add(100*end.Sub(begin))
	}
	return b, nil
}

// age returns how many seconds ago a time was; 0 for a time in the future, or for no time.
func age(at int64) float64 {
	if at == 0 {
		return 0
	}
	return max(0, time.Since(time.UnixMilli(at)).Seconds())
}
