package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Who takes part in the section on isolation.
const (
	healthyEndpoints   = 50
	hangingEndpoints   = 5
	isolationEndpoints = healthyEndpoints + hangingEndpoints + 1 // the last is slow

	isolationRate = 200 // events a second, each to one of the healthy ones in turn
	backlogBatch  = 1000
)

// isolation measures how long deliveries to healthy endpoints take, alone and beside others.
type isolation struct {
	*bench
	healthy  *tenant
	ids      []string  // of the healthy endpoints' subscriptions
	requests []request // one for each of them
	alone    float64   // ms
}

func (b *bench) measureIsolation(ctx context.Context) error {
	s := &isolation{bench: b}
	for _, step := range []func(context.Context) error{s.begin, s.measureAlone, s.besideHanging, s.besideBacklog} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// begin makes the healthy endpoints, and sends one event to each so that all are known and connected.
func (s *isolation) begin(ctx context.Context) (err error) {
	if s.healthy, err = newTenant(ctx, s.server, "healthy", unlimited); err != nil {
		return err
	}
	for i := range healthyEndpoints {
		eventType := "bench.healthy_" + strconv.Itoa(i)
		id, err := s.healthy.subscribe(ctx, s.counterpart.Endpoints[i]+pathTake+"healthy", eventType)
		if err != nil {
			return err
		}
		s.ids = append(s.ids, id)
		s.requests = append(s.requests, publishRequest(s.healthy.key, eventType, s.body, 0))
	}
	_, err = s.round(ctx, healthyEndpoints)
	return err
}

// round publishes to the healthy ones and returns what 99 of 100 deliveries took at most, in milliseconds.
func (s *isolation) round(ctx context.Context, n int) (float64, error) {
	if err := s.server.flushLog(); err != nil {
		return 0, err
	}
	p := paced{address: s.server.address(), requests: s.requests, status: http.StatusAccepted, n: n, rate: isolationRate}
	if err := p.run(ctx); err != nil {
		return 0, err
	}
	if err := s.healthy.drained(ctx, s.ids...); err != nil {
		return 0, err
	}
	delay, err := s.received(ctx, "healthy", n)
	return delay.Percentile99, err
}

func (s *isolation) measureAlone(ctx context.Context) (err error) {
	if s.alone, err = s.round(ctx, s.scaled()); err != nil {
		return err
	}
	title := fmt.Sprintf("p99 of %d healthy endpoints, at %d a second", healthyEndpoints, isolationRate)
	s.add(measurement{name: aloneP99, title: title, value: s.alone, unit: "ms"})
	return nil
}

// aloneP99 is what the other figures of the section are compared with.
const aloneP99 = "healthy_alone_p99"

// beside measures a round beside something.
func (s *isolation) beside(ctx context.Context, name, title string) error {
	p99, err := s.round(ctx, s.scaled())
	if err != nil {
		return err
	}
	s.add(measurement{name: name, title: title, value: p99, unit: "ms",
		ratio: p99 / s.alone, to: aloneP99, target: target{atMost: 2, ofRatio: true}})
	return nil
}

// besideHanging has as many requests hang as there are slots for them.
func (s *isolation) besideHanging(ctx context.Context) error {
	slots := s.defaults.Webhooks.ConcurrencyPerSubscription
	var ids []string
	for i := range hangingEndpoints {
		id, err := s.healthy.subscribe(ctx, s.counterpart.Endpoints[healthyEndpoints+i]+pathHang+"hanging", "bench.hanging")
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	publish := load{
		address: s.server.address(), request: publishRequest(s.healthy.key, "bench.hanging", minBody, 4*slots),
		status: http.StatusAccepted, n: 1, connections: 1,
	}
	if _, _, err := publish.run(ctx); err != nil {
		return err
	}
	if err := s.awaitHanging(ctx, slots*hangingEndpoints); err != nil {
		return err
	}
	if err := s.beside(ctx, "healthy_beside_hanging_p99", fmt.Sprintf("  beside %d that hang", hangingEndpoints)); err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.healthy.unsubscribe(ctx, id); err != nil {
			return err
		}
	}
	if err := s.ask(ctx, pathRelease, nil); err != nil {
		return err
	}
	return s.awaitHanging(ctx, 0)
}

// awaitHanging waits until n requests hang.
func (s *isolation) awaitHanging(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stuckAfter, fmt.Errorf("it took more than %s until %d requests hung", stuckAfter, n))
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		var hanging int
		if err := s.ask(ctx, pathHanging, &hanging); err != nil {
			return orCause(ctx, err)
		}
		if hanging == n {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// besideBacklog piles deliveries up for the slow endpoint of another organization, which come to it all the while.
func (s *isolation) besideBacklog(ctx context.Context) error {
	neighbour, err := newTenant(ctx, s.server, "neighbour", unlimited)
	if err != nil {
		return err
	}
	id, err := neighbour.subscribe(ctx, s.counterpart.Endpoints[isolationEndpoints-1]+pathSlow+"backlog", "bench.backlog")
	if err != nil {
		return err
	}
	for left := s.backlog; left > 0; {
		batch := min(left, backlogBatch)
		publish := load{
			address: s.server.address(), request: publishRequest(neighbour.key, "bench.backlog", minBody, batch),
			status: http.StatusAccepted, n: left / batch, connections: 4,
		}
		if _, _, err := publish.run(ctx); err != nil {
			return err
		}
		left %= batch
	}
	if err := s.beside(ctx, "healthy_beside_backlog_p99", fmt.Sprintf("  beside another tenant's backlog of %d", s.backlog)); err != nil {
		return err
	}
	if n, err := neighbour.pending(ctx, id); err != nil || n > 0 {
		return err
	}
	return errors.New("the backlog was gone too early to tell anything; give a larger --backlog")
}
