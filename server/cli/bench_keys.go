package cli

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// keyRounds is how often the contestants take turns; the median of their rounds counts.
const keyRounds = 3

// measureKeys compares the cheapest request with a key with an answer of the same size from a bare handler: on a server
// that logs no requests, as that handler logs none, and with a line of log for each, under a plan without a limit and
// under one whose limit is out of reach.
func (b *bench) measureKeys(ctx context.Context) error {
	dir := filepath.Join(b.dir, "silent")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	silent, err := startSilentServer(ctx, dir)
	if err != nil {
		return err
	}
	defer silent.kill()
	var contestants []load
	for _, c := range []struct {
		server *childServer
		plan   string
	}{{silent, unlimited}, {b.server, unlimited}, {b.server, "limited"}} {
		l, err := b.whoami(ctx, c.server, c.plan)
		if err != nil {
			return err
		}
		contestants = append(contestants, l)
	}
	one := contestants[0]
	one.n, one.connections, one.status = 1, 1, http.StatusOK
	_, size, err := one.run(ctx)
	if err != nil {
		return err
	}
	bare := load{address: b.counterpart.Bare, request: newRequest("GET", strings.Replace(barePath, ":bytes", strconv.Itoa(size), 1), "none", "")}
	rates, err := b.takeTurns(ctx, append(contestants, bare))
	if err != nil {
		return err
	}
	against := func(name, title string, i int, t target) measurement {
		return measurement{name: name, title: title, value: rates[i], unit: "1/s", ratio: rates[i] / rates[3], to: "bare", target: t}
	}
	b.add(
		measurement{name: "bare", title: "GETs of a bare handler", value: rates[3], unit: "1/s"},
		against("keys", "GETs with a key, log.level=warn", 0, target{atLeast: 0.85, ofRatio: true}),
		against("keys_logged", "  with a line of log for each", 1, target{}),
		against("keys_limited", "  the same under a plan with a limit", 2, target{}),
	)
	return nil
}

// whoami returns the load of a key of a new organization on that plan, which is made where it is not there.
func (b *bench) whoami(ctx context.Context, server *childServer, plan string) (load, error) {
	if plan != unlimited {
		operator := client{base: server.url, authorization: "Bearer " + server.token}
		body := object{"name": plan, "api_keys": true, "webhooks": true, "api_rate_limit_per_minute": 1_000_000_000}
		if err := operator.call(ctx, "POST", "/api/v1/plans/", body, http.StatusCreated, nil); err != nil {
			return load{}, err
		}
	}
	t, err := newTenant(ctx, server, "keys-"+plan, plan)
	if err != nil {
		return load{}, err
	}
	return load{address: server.address(), request: newRequest("GET", "/api/v1/whoami/", "ApiKey "+t.key, "")}, nil
}

// takeTurns returns the rate of each contestant, the median of its rounds.
func (b *bench) takeTurns(ctx context.Context, contestants []load) ([]float64, error) {
	rounds := make([][]float64, len(contestants))
	for range keyRounds {
		for i, l := range contestants {
			l.n, l.connections, l.status = b.events, b.connections, http.StatusOK
			took, _, err := l.run(ctx)
			if err != nil {
				return nil, err
			}
			rounds[i] = append(rounds[i], float64(l.n)/took.Seconds())
		}
	}
	rates := make([]float64, len(contestants))
	for i := range rounds {
		slices.Sort(rounds[i])
		rates[i] = rounds[i][keyRounds/2]
	}
	return rates, nil
}
