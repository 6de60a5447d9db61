package cli

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/keyhook/keyhook/server/cli/client"
)

// keyRounds is how often the contestants take turns; the median of their rounds counts.
const keyRounds = 3

// measureKeys compares the cheapest requests with a key with answers of the same size from a bare handler: on a server
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
	for i, c := range []struct {
		server     *childServer
		plan, path string
	}{
		{silent, unlimited, whoamiPath}, {b.server, unlimited, whoamiPath}, {b.server, "limited", whoamiPath},
		{silent, unlimited, gatePath}, {b.server, unlimited, gatePath},
	} {
		key, err := b.keyOn(ctx, c.server, c.plan, "keys-"+strconv.Itoa(i))
		if err != nil {
			return err
		}
		contestants = append(contestants, load{address: c.server.address(), request: newRequest("GET", c.path, "ApiKey "+key, "")})
	}
	one := contestants[0]
	one.n, one.connections, one.status = 1, 1, http.StatusOK
	_, size, err := one.run(ctx)
	if err != nil {
		return err
	}
	for _, bytes := range []int{size, 0} {
		path := strings.Replace(barePath, ":bytes", strconv.Itoa(bytes), 1)
		contestants = append(contestants, load{address: b.counterpart.Bare, request: newRequest("GET", path, "none", "")})
	}
	rates, err := b.takeTurns(ctx, contestants)
	if err != nil {
		return err
	}
	bare, empty := rates[5], rates[6]
	against := func(name, title string, rate, bare float64, to string, t target) measurement {
		return measurement{name: name, title: title, value: rate, unit: "1/s", ratio: rate / bare, to: to, target: t}
	}
	goal := target{atLeast: 0.85, ofRatio: true}
	b.add(
		measurement{name: "bare", title: "GETs of a bare handler", value: bare, unit: "1/s"},
		against("keys", "GETs with a key, log.level=warn", rates[0], bare, "bare", goal),
		against("keys_logged", "  with a line of log for each", rates[1], bare, "bare", target{}),
		against("keys_limited", "  the same under a plan with a limit", rates[2], bare, "bare", target{}),
		measurement{name: "bare_empty", title: "empty answers of a bare handler", value: empty, unit: "1/s"},
		against("gate", "questions of a proxy, log.level=warn", rates[3], empty, "bare_empty", goal),
		against("gate_logged", "  with a line of log for each", rates[4], empty, "bare_empty", target{}),
	)
	return nil
}

// What is asked with a key: who it is, and whether its request may pass, which is all that a proxy asks.
const (
	whoamiPath = "/api/v1/whoami/"
	gatePath   = "/api/v1/authz/forward/"
)

// keyOn returns a key of a new organization of that name, on that plan, which is made where it is not there.
func (b *bench) keyOn(ctx context.Context, server *childServer, plan, name string) (string, error) {
	if plan != unlimited {
		operator := client.Client{Base: server.url, Authorization: "Bearer " + server.token}
		body := object{"name": plan, "api_keys": true, "webhooks": true, "api_rate_limit_per_minute": 1_000_000_000}
		if err := operator.Call(ctx, "POST", "/api/v1/plans/", body, http.StatusCreated, nil); err != nil {
			return "", err
		}
	}
	t, err := newTenant(ctx, server, name, plan)
	if err != nil {
		return "", err
	}
	return t.key, nil
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
