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

// measure adds figures.
type measure = func(context.Context) error

// runSections runs one section after the other.
func (b *bench) runSections(ctx context.Context, progress io.Writer) error {
	wanted := map[string]string{"name": "bench", "scope": "events:write"}
	created, err := b.call(ctx, "POST", "api-keys/", wanted, http.StatusCreated)
	if err != nil {
		return err
	}
	b.key = created.Key
	b.table.Add("MEASURED", "VALUE", "UNIT")
	b.addMemory("memory_idle", "memory of the server, idle", "VmRSS")
	post := b.request("POST", "/direct", event("bench.direct", b.Body)) // what a program without Keyhook would send
	get := b.request("GET", "/direct", "")
	check := b.request("GET", "/api/v1/authz/forward/", "") // what a proxy asks for each request with a key: whether it may pass
	steady := fmt.Sprintf("publish to receipt at %d a second", steadyRate)
	fanout := fmt.Sprintf("deliveries, %d subscriptions for each event", b.Fanout)
	batch := fmt.Sprintf("deliveries, events published in batches of %d", batchSize)
	sections := []struct {
		title    string
		measures []measure
	}{
		{"direct requests, without Keyhook", []measure{
			b.requests("direct", "direct POSTs, without Keyhook", b.hook, post, 2*b.Events),
		}},
		{"latency at a steady rate", []measure{b.deliveries("steady", steady, 1, 1, steadyRate)}}, // early, while the disk is idle
		{"events without a subscription", []measure{b.deliveries("publish", "events published and on disk", 0, 1, 0)}},
		{"deliveries to one endpoint", []measure{b.deliveries("end_to_end", "deliveries to one endpoint", 1, 1, 0)}},
		{"fan-out", []measure{b.deliveries("fanout", fanout, b.Fanout, 1, 0)}},
		{"batches", []measure{b.deliveries("batch", batch, 1, batchSize, 0)}},
		{"checks of a key", []measure{
			b.requests("direct_get", "direct GETs, without Keyhook", b.hook, get, b.Events),
			b.requests("key_checks", "checks of a key (forward authentication)", b.server.URL, check, b.Events),
		}},
	}
	for i, section := range sections {
		fmt.Fprintf(progress, "[%d/%d] %s\n", i+1, len(sections), section.title)
		for _, run := range section.measures {
			if err := run(ctx); err != nil {
				return fmt.Errorf("%s: %w\n\nthe last lines of the server's log:\n%s", section.title, err, b.server.Tail())
			}
		}
	}
	b.addMemory("memory_peak", "memory of the server, peak", "VmHWM")
	return nil
}

// requests measures the rate of n requests that get the status 200.
func (b *bench) requests(name, title, server string, request []byte, n int) measure {
	return func(ctx context.Context) error {
		took, err := load{server, request, http.StatusOK, n, 0}.run(ctx, b.Connections)
		b.add(name, title, float64(n)/took.Seconds(), "1/s")
		return err
	}
}

// deliveries publishes batches of events to fanout subscriptions, and waits until each delivery is recorded. It makes about
// b.Events deliveries, for any fan-out, and measures deliveries a second, or events a second without a subscription. With a
// rate of requests, it measures how long an event takes from the request that publishes it until the receiver has it.
func (b *bench) deliveries(name, title string, fanout, batch, rate int) measure {
	requests := max(1, b.Events/max(1, fanout)/batch)
	if rate > 0 {
		requests = min(max(b.Events/40, 50), 1000)
	}
	publish := load{b.server.URL, b.publishRequest("bench."+name, batch), http.StatusAccepted, requests, rate}
	return func(ctx context.Context) error {
		subscriptions, err := b.subscribe(ctx, name, fanout)
		if err != nil {
			return err
		}
		began := time.Now()
		if _, err := publish.run(ctx, b.Connections); err != nil {
			return err
		}
		if err := b.awaitDelivered(ctx, subscriptions); err != nil {
			return err
		}
		took := time.Since(began)
		p50, p99, err := b.receiver.latency(name, requests*batch*fanout)
		if rate > 0 {
			b.add(name+"_p50", title+", p50", p50, "ms")
			b.add(name+"_p99", title+", p99", p99, "ms")
		} else {
			b.add(name, title, float64(requests*batch*max(1, fanout))/took.Seconds(), "1/s")
		}
		return err
	}
}

// subscribe creates subscriptions to the events of one section.
func (b *bench) subscribe(ctx context.Context, name string, n int) (ids []string, err error) {
	wanted := map[string]any{"url": b.hook + "/" + name, "event_types": []string{"bench." + name}}
	for range n {
		created, err := b.call(ctx, "POST", "webhooks/subscriptions/", wanted, http.StatusCreated)
		if err != nil {
			return nil, err
		}
		ids = append(ids, created.ID)
	}
	return ids, nil
}

const stuckAfter = 30 * time.Second

// awaitDelivered waits until no delivery to the subscriptions is pending.
func (b *bench) awaitDelivered(ctx context.Context, subscriptions []string) error {
	last, since := -1, time.Now()
	for len(subscriptions) > 0 {
		now, err := b.call(ctx, "GET", "webhooks/subscriptions/"+subscriptions[0]+"/", nil, http.StatusOK)
		switch {
		case err != nil:
			return err
		case now.Pending == 0:
			subscriptions = subscriptions[1:]
			continue
		case now.Pending != last:
			last, since = now.Pending, time.Now()
		case time.Since(since) > stuckAfter:
			return fmt.Errorf("%d deliveries have been pending for %s; check the loopback interface", last, stuckAfter)
		}
		<-time.After(5 * time.Millisecond) // the end of ctx ends the next call
	}
	return nil
}
