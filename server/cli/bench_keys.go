package cli

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// keyRounds is how often the contestants take turns; the median of their rounds counts.
const keyRounds = 3

// measureKeys compares the cheapest request with a key, to a plan without a limit and to one whose limit is out of reach,
// with an answer of the same size from a bare handler.
func (b *bench) measureKeys(ctx context.Context) error {
	const limited = "limited"
	operator := client{b.server.url, "Bearer " + b.server.token}
	plan := object{"name": limited, "api_keys": true, "webhooks": true, "api_rate_limit_per_minute": 1_000_000_000}
	if err := operator.call(ctx, "POST", "/api/v1/plans/", plan, http.StatusCreated, nil); err != nil {
		return err
	}
	var contestants []load
	for _, plan := range []string{unlimited, limited} {
		t, err := newTenant(ctx, b.server, "keys-"+plan, plan)
		if err != nil {
			return err
		}
		contestants = append(contestants, load{address: b.server.address(), request: newRequest("GET", "/api/v1/whoami/", "ApiKey "+t.key, "")})
	}
	one := contestants[0]
	one.n, one.connections, one.status = 1, 1, http.StatusOK
	_, size, err := one.run(ctx)
	if err != nil {
		return err
	}
	bare := load{address: b.counterpart.Bare, request: newRequest("GET", strings.Replace(barePath, ":bytes", strconv.Itoa(size), 1), "none", "")}
	contestants = append(contestants, bare)
	rates := make([][]float64, len(contestants))
	for range keyRounds {
		for i, l := range contestants {
			l.n, l.connections, l.status = b.events, b.connections, http.StatusOK
			took, _, err := l.run(ctx)
			if err != nil {
				return err
			}
			rates[i] = append(rates[i], float64(l.n)/took.Seconds())
		}
	}
	for i := range rates {
		slices.Sort(rates[i])
	}
	median := func(i int) float64 { return rates[i][keyRounds/2] }
	against := func(name, title string, i int, t target) measurement {
		return measurement{name: name, title: title, value: median(i), unit: "1/s", ratio: median(i) / median(2), to: "bare", target: t}
	}
	b.add(
		measurement{name: "bare", title: "GETs of a bare handler", value: median(2), unit: "1/s"},
		against("keys", "GETs with a key", 0, target{atLeast: 0.85, ofRatio: true}),
		against("keys_limited", "  under a plan with a limit", 1, target{}),
	)
	return nil
}
