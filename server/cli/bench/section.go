package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// The sizes of the sections.
const (
	batchSize  = 20
	steadyRate = 100 // events a second, at which no event waits for another
)

// runSections runs one section after the other. A section adds its figures.
func (b *bench) runSections(ctx context.Context, progress io.Writer) error {
	b.addMemory("memory_idle", "memory of the server, idle", "VmRSS")
	sections := []struct {
		title string
		run   func(context.Context) error
	}{
		{"direct requests, without Keyhook", b.measureDirect},
		{"latency at a steady rate", b.measureSteady}, // first, while the disk is idle
		{"events without a subscription", b.measureDeliveries("publish", "events published and on disk", 0, 1)},
		{"deliveries to one endpoint", b.measureDeliveries("end_to_end", "deliveries to one endpoint", 1, 1)},
		{"fan-out", b.measureDeliveries("fanout", fmt.Sprintf("deliveries, %d subscriptions for each event", b.Fanout), b.Fanout, 1)},
		{"batches", b.measureDeliveries("batch", fmt.Sprintf("deliveries, events published in batches of %d", batchSize), 1, batchSize)},
		{"checks of a key", b.measureKeys},
	}
	for i, section := range sections {
		fmt.Fprintf(progress, "[%d/%d] %s\n", i+1, len(sections), section.title)
		if err := section.run(ctx); err != nil {
			return fmt.Errorf("%s: %w\n\nthe last lines of the server's log:\n%s", section.title, err, b.server.Tail())
		}
	}
	b.addMemory("memory_peak", "memory of the server, peak", "VmHWM")
	return nil
}

// measureDirect sends the receiver what a program without Keyhook would send.
func (b *bench) measureDirect(ctx context.Context) error {
	return b.addRate(ctx, "direct", "direct POSTs, without Keyhook", load{
		address: b.hook, request: newRequest("POST", "/direct", "", event("bench.direct", b.Body)), n: 2 * b.Events,
	})
}

// measureDeliveries publishes events to fanout subscriptions. It measures deliveries a second, or events a second without a
// subscription. It makes about b.Events deliveries, for any fan-out.
func (b *bench) measureDeliveries(name, title string, fanout, batch int) func(context.Context) error {
	return func(ctx context.Context) error {
		requests := max(1, b.Events/max(1, fanout)/batch)
		took, err := b.deliver(ctx, name, fanout, batch, load{n: requests})
		if err != nil {
			return err
		}
		b.add(name, title, float64(requests*batch*max(1, fanout))/took.Seconds(), "1/s")
		return b.receiver.expect(name, requests*batch*fanout)
	}
}

// measureSteady measures how long an event takes from the request that publishes it until the receiver has it.
func (b *bench) measureSteady(ctx context.Context) error {
	steady := load{n: min(max(b.Events/40, 50), 1000), rate: steadyRate}
	if _, err := b.deliver(ctx, "steady", 1, 1, steady); err != nil {
		return err
	}
	p50, p99 := b.receiver.latency("steady")
	title := fmt.Sprintf("publish to receipt at %d a second, ", steadyRate)
	b.add("steady_p50", title+"p50", p50, "ms")
	b.add("steady_p99", title+"p99", p99, "ms")
	return b.receiver.expect("steady", steady.n)
}

// deliver publishes the batches of a load to fanout subscriptions, and waits until each delivery is recorded. It returns how long
// that took.
func (b *bench) deliver(ctx context.Context, name string, fanout, batch int, publish load) (took time.Duration, err error) {
	subscriptions, err := b.subscribe(ctx, name, fanout)
	if err != nil {
		return 0, err
	}
	publish.address, publish.status, publish.connections = b.api, http.StatusAccepted, b.Connections
	publish.request = b.publishRequest("bench."+name, batch)
	began := time.Now()
	if _, err := publish.run(ctx); err != nil {
		return 0, err
	}
	err = b.awaitDelivered(ctx, subscriptions)
	return time.Since(began), err
}

// measureKeys asks what a proxy asks for each request with a key: whether the request may pass.
func (b *bench) measureKeys(ctx context.Context) error {
	direct := load{address: b.hook, request: newRequest("GET", "/direct", "", ""), n: b.Events}
	if err := b.addRate(ctx, "direct_get", "direct GETs, without Keyhook", direct); err != nil {
		return err
	}
	check := load{address: b.api, request: newRequest("GET", "/api/v1/authz/forward/", "ApiKey "+b.key, ""), n: b.Events}
	return b.addRate(ctx, "key_checks", "checks of a key (forward authentication)", check)
}

// addRate adds the rate of requests that get the status 200.
func (b *bench) addRate(ctx context.Context, name, title string, l load) error {
	l.status, l.connections = http.StatusOK, b.Connections
	took, err := l.run(ctx)
	b.add(name, title, float64(l.n)/took.Seconds(), "1/s")
	return err
}

// subscribe creates subscriptions to the events of one section.
func (b *bench) subscribe(ctx context.Context, name string, n int) (ids []string, err error) {
	for range n {
		var subscription struct {
			ID string `json:"id"`
		}
		wanted := map[string]any{"url": "http://" + b.hook + "/" + name, "event_types": []string{"bench." + name}}
		if err := b.operator.Call(ctx, "POST", "/api/v1/webhooks/subscriptions/", wanted, http.StatusCreated, &subscription); err != nil {
			return nil, err
		}
		ids = append(ids, subscription.ID)
	}
	return ids, nil
}

const (
	pollInterval = 5 * time.Millisecond
	stuckAfter   = 30 * time.Second
)

// awaitDelivered waits until no delivery to the subscriptions is pending.
func (b *bench) awaitDelivered(ctx context.Context, subscriptions []string) error {
	last, since := -1, time.Now()
	for len(subscriptions) > 0 {
		var subscription struct {
			Pending int `json:"pending_deliveries"`
		}
		if err := b.operator.Call(ctx, "GET", "/api/v1/webhooks/subscriptions/"+subscriptions[0]+"/", nil, http.StatusOK, &subscription); err != nil {
			return err
		}
		switch {
		case subscription.Pending == 0:
			subscriptions = subscriptions[1:]
			continue
		case subscription.Pending != last:
			last, since = subscription.Pending, time.Now()
		case time.Since(since) > stuckAfter:
			return fmt.Errorf("%d deliveries have been pending for %s; check the loopback interface", last, stuckAfter)
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
