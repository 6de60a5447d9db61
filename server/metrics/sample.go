package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/webhook"
)

// source is what is asked at every scrape.
type source interface {
	// Backlog returns what waits to be sent.
	Backlog(ctx context.Context) (webhook.Backlog, error)
	// Sizes returns how large the database and its write-ahead log are, in bytes.
	Sizes() (database, log int64, err error)
	// Free returns how many bytes can still be written to the disk of the database; ok is false where nobody can tell.
	Free() (bytes uint64, ok bool)
	// Degraded tells, of each reason for which nothing may be written at present, whether it holds.
	Degraded() map[string]bool
	// Clock returns what is known of the wall clock.
	Clock() clock.State
}

// readLimit bounds what a scrape waits for the database.
const readLimit = 2 * time.Second

// sample reads what is a state rather than a count. What cannot be read is not shown: an old number, or none in its place,
// would be taken for the truth.
type sample struct {
	source   source // nil until Read was called: nothing is shown then
	backlog  *backlog
	pending  *prometheus.Desc
	lanes    *prometheus.Desc
	age      *prometheus.Desc
	held     *prometheus.Desc
	database *prometheus.Desc
	log      *prometheus.Desc
	free     *prometheus.Desc
	degraded *prometheus.Desc
	jump     *prometheus.Desc
	errors   prometheus.Counter
}

func newSample() sample {
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
	}
	return sample{
		backlog: &backlog{},
		pending: gauge("deliveries_pending",
			"Deliveries that wait, by the state of their subscription; closed is disabled, removed, or without a plan for webhooks.", "state"),
		lanes: gauge("lanes", "Subscriptions with pending deliveries, by state.", "state"),
		age: gauge("deliveries_oldest_due_age_seconds",
			"How long the delivery is overdue that has waited longest for an open subscription; 0 where none is."),
		held:     gauge("queue_held", "1 while the queue is held, so that nothing is sent; else 0."),
		database: gauge("storage_database_bytes", "Size of the database file."),
		log:      gauge("storage_wal_bytes", "Size of the database's write-ahead log."),
		free:     gauge("storage_free_bytes", "Room that is left on the disk of the database."),
		degraded: gauge("degraded", "Whether nothing can be written to the database at present, by the reason; 1 is so.", "reason"),
		jump:     gauge("clock_jump_seconds", "By how much the clock has jumped; negative is back. It is 0 while the clock is trusted, and only then old rows are deleted."),
		errors:   counter("scrape_errors_total", "Times that a scrape could not read the database, so that numbers of it are missing."),
	}
}

// Read has s asked at every scrape. It is called once, before the first.
func (m *Metrics) Read(s source) { m.sample.source = s }

// Describe is part of prometheus.Collector.
func (s *sample) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.pending, s.lanes, s.age, s.held, s.database, s.log, s.free, s.degraded, s.jump} {
		ch <- d
	}
	s.errors.Describe(ch)
}

// Collect is part of prometheus.Collector.
func (s *sample) Collect(ch chan<- prometheus.Metric) {
	if s.source != nil {
		s.read(func(d *prometheus.Desc, value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
		})
	}
	s.errors.Collect(ch) // last, so that it tells of this scrape too
}

func (s *sample) read(show func(d *prometheus.Desc, value float64, labels ...string)) {
	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	if b, err := s.backlog.of(ctx, s.source); err != nil {
		s.errors.Inc()
	} else {
		for state, w := range map[string]webhook.Waiting{"healthy": b.Healthy, "failing": b.Failing, "closed": b.Closed} {
			show(s.pending, float64(w.Deliveries), state)
			show(s.lanes, float64(w.Lanes), state)
		}
		show(s.age, age(b.OldestDue))
		held := 0.0
		if b.Held {
			held = 1
		}
		show(s.held, held)
	}
	if database, log, err := s.source.Sizes(); err != nil {
		s.errors.Inc()
	} else {
		show(s.database, float64(database))
		show(s.log, float64(log))
	}
	if bytes, ok := s.source.Free(); ok {
		show(s.free, float64(bytes))
	}
	show(s.jump, s.source.Clock().Jump().Seconds())
	for reason, is := range s.source.Degraded() {
		value := 0.0
		if is {
			value = 1
		}
		show(s.degraded, value, reason)
	}
}

// longLook is how long a look at the backlog takes that is not repeated for every scrape.
const longLook = 50 * time.Millisecond

// backlog remembers the result of a long look for a hundred times as long as it took: it takes a second where 300,000
// subscriptions have pending deliveries, however often somebody scrapes.
type backlog struct {
	mu    sync.Mutex
	known webhook.Backlog
	until time.Time
}

// of returns what waits to be sent.
func (k *backlog) of(ctx context.Context, from source) (webhook.Backlog, error) {
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
	if end := time.Now(); end.Sub(begin) > longLook {
		k.known, k.until = b, end.Add(100*end.Sub(begin))
	}
	return b, nil
}

// age is how long ago, in seconds, a time was; 0 where it is still to come, or none.
func age(at int64) float64 {
	if at == 0 {
		return 0
	}
	return max(0, time.Since(time.UnixMilli(at)).Seconds())
}
