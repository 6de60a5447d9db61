package cli

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// unlimited is the plan without a limit of requests.
const unlimited = "enterprise"

// flow is events on their way from publishing to the record of their last attempt.
type flow struct {
	name   string // of organization, event type and series
	fanout int
	batch  int // events in a request; 0: they are published alone
	events int
}

// flowed is how that went.
type flowed struct {
	published  time.Duration // from the first request to the last answer
	took       time.Duration // from the first request to the last record
	deliveries int
	delay      seriesReport // from each request to its receipt
}

// rate is deliveries a second.
func (f flowed) rate() float64 { return float64(f.deliveries) / f.took.Seconds() }

// run subscribes, publishes, and waits until everything is on record.
func (b *bench) run(ctx context.Context, server *childServer, f flow) (done flowed, err error) {
	t, err := newTenant(ctx, server, f.name, unlimited)
	if err != nil {
		return done, err
	}
	var ids []string
	for i := range f.fanout {
		id, err := t.subscribe(ctx, b.counterpart.Endpoints[i]+pathTake+f.name, "bench."+f.name)
		if err != nil {
			return done, err
		}
		ids = append(ids, id)
	}
	l := load{
		address: server.address(), request: publishRequest(t.key, "bench."+f.name, b.body, f.batch),
		status: http.StatusAccepted, n: f.events, connections: b.connections,
	}
	if f.batch > 0 {
		l.n /= f.batch
		f.events = l.n * f.batch
	}
	done.deliveries = f.events * f.fanout
	began := time.Now()
	if done.published, _, err = l.run(ctx); err != nil {
		return done, err
	}
	if err := t.drained(ctx, ids...); err != nil {
		return done, err
	}
	done.took = time.Since(began)
	done.delay, err = b.received(ctx, f.name, done.deliveries)
	return done, err
}

// measurePublish publishes what nobody wants: it is stored, and that is all.
func (b *bench) measurePublish(ctx context.Context) error {
	b.add(b.memoryOf("VmRSS", "memory_idle", "memory, before the first event", 30))
	done, err := b.run(ctx, b.server, flow{name: "publish", events: b.events})
	if err != nil {
		return err
	}
	b.add(b.publishRate("publish", "events published, durable", done))
	return nil
}

func (b *bench) publishRate(name, title string, done flowed) measurement {
	return measurement{name: name, title: title, value: float64(b.events) / done.published.Seconds(), unit: "1/s"}
}

// rated is deliveries a second, compared with what went without Keyhook at that time. atLeast is the target of the ratio;
// 0: none.
func (b *bench) rated(name, title string, done flowed, atLeast float64) measurement {
	m := measurement{name: name, title: title, value: done.rate(), unit: "1/s", ratio: done.rate() / b.raw, to: "raw"}
	if atLeast > 0 {
		m.target = target{atLeast: atLeast, ofRatio: true}
	}
	return m
}

func (b *bench) measureEndToEnd(ctx context.Context) error {
	before := processorTimes(b.server.child, b.receiver)
	after := before
	done, err := b.besideRaw(ctx, func() (flowed, error) {
		before = processorTimes(b.server.child, b.receiver)
		done, err := b.run(ctx, b.server, flow{name: "one", fanout: 1, events: b.events})
		after = processorTimes(b.server.child, b.receiver)
		return done, err
	})
	if err != nil {
		return err
	}
	b.add(
		b.rated("end_to_end", "deliveries to one endpoint", done, 0.28),
		b.publishRate("end_to_end_publish", "  events published meanwhile", done),
		measurement{name: "saturated_p50", title: "  publish to receipt, p50", value: done.delay.Median, unit: "ms"},
		measurement{name: "saturated_p99", title: "  publish to receipt, p99", value: done.delay.Percentile99, unit: "ms"},
	)
	b.add(after.perEvent(before, b.events)...)
	return nil
}

// variant repeats measureEndToEnd on a server of its own with another setting.
func (b *bench) variant(ctx context.Context, name, setting string) (flowed, error) {
	server, err := b.startServer(ctx, name, setting)
	if err != nil {
		return flowed{}, err
	}
	defer server.kill()
	return b.besideRaw(ctx, func() (flowed, error) {
		return b.run(ctx, server, flow{name: "one", fanout: 1, events: b.events})
	})
}

// measureWide does so with as many requests at once to the one endpoint as there are connections of measureRaw: where
// there is but one, the default is a limit for the sake of receivers.
func (b *bench) measureWide(ctx context.Context) error {
	done, err := b.variant(ctx, "wide", "KEYHOOK_WEBHOOKS_CONCURRENCY_PER_SUBSCRIPTION="+strconv.Itoa(rawAtOnce))
	if err != nil {
		return err
	}
	b.add(
		b.rated("end_to_end_wide", fmt.Sprintf("deliveries, %d at once (default %d)", rawAtOnce, b.defaults.Webhooks.ConcurrencyPerSubscription), done, 0),
		measurement{name: "wide_p50", title: "  publish to receipt, p50", value: done.delay.Median, unit: "ms"},
	)
	return nil
}

// measureNormal does so without waiting for the disk, and compares the two.
func (b *bench) measureNormal(ctx context.Context) error {
	done, err := b.variant(ctx, "normal", "KEYHOOK_STORAGE_SYNCHRONOUS=normal")
	if err != nil {
		return err
	}
	normal := b.rated("end_to_end_normal", "deliveries, synchronous=normal", done, 0)
	full := b.figure("end_to_end").ratio // each is compared with what the machine could do at its time
	b.add(normal, measurement{name: "full_to_normal", title: "  full against normal", value: full / normal.ratio, target: target{atLeast: 0.85}})
	return nil
}

func (b *bench) measureFanout(ctx context.Context) error {
	done, err := b.besideRaw(ctx, func() (flowed, error) {
		return b.run(ctx, b.server, flow{name: "fanout", fanout: b.fanout, events: max(1, b.events/b.fanout)})
	})
	if err != nil {
		return err
	}
	b.add(b.rated("fanout", "deliveries, fan-out "+strconv.Itoa(b.fanout), done, 0.55))
	return nil
}

// batchSize is how many events are published at once where they are published in batches.
const batchSize = 20

func (b *bench) measureBatches(ctx context.Context) error {
	done, err := b.besideRaw(ctx, func() (flowed, error) {
		return b.run(ctx, b.server, flow{name: "batch", fanout: 1, batch: batchSize, events: max(batchSize, b.events)})
	})
	if err != nil {
		return err
	}
	b.add(
		b.rated("batch", "deliveries, published in batches of "+strconv.Itoa(batchSize), done, 0.45),
		b.peakMemory("memory_saturated", "memory, its peak until here", 80),
	)
	return nil
}

// figure returns what was measured before under that name.
func (b *bench) figure(name string) measurement {
	return b.measured[slices.IndexFunc(b.measured, func(m measurement) bool { return m.name == name })]
}
