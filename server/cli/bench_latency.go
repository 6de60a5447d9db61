package cli

import (
	"context"
	"net/http"
	"strconv"
)

// gentleRate is events a second at which nothing has to wait.
const gentleRate = 100

func (b *bench) measureGentle(ctx context.Context) error {
	const name = "gentle"
	t, err := newTenant(ctx, b.server, name, unlimited)
	if err != nil {
		return err
	}
	id, err := t.subscribe(ctx, b.counterpart.Endpoints[0]+pathTake+name, "bench."+name)
	if err != nil {
		return err
	}
	p := paced{
		address: b.server.address(), requests: []request{publishRequest(t.key, "bench."+name, b.body, 0)},
		status: http.StatusAccepted, n: b.scaled(), rate: gentleRate,
	}
	if err := b.server.flushLog(); err != nil {
		return err
	}
	if err := p.run(ctx); err != nil {
		return err
	}
	if err := t.drained(ctx, id); err != nil {
		return err
	}
	delay, err := b.received(ctx, name, p.n)
	if err != nil {
		return err
	}
	at := ", at " + strconv.Itoa(gentleRate) + " a second"
	b.add(
		measurement{name: "gentle_p50", title: "publish to receipt, p50" + at, value: delay.Median, unit: "ms", target: target{atMost: 2}},
		measurement{name: "gentle_p99", title: "publish to receipt, p99" + at, value: delay.Percentile99, unit: "ms", target: target{atMost: 6}},
	)
	return nil
}
