package server_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/server/explain"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// chance makes random changes as owners, receivers and operators would. It compares the explanations with the requests that the
// receivers get.
type chance struct {
	*engine
	t      *testing.T
	random *rand.Rand
	hosts  map[string]string // of the subscriptions, by id
	gone   map[string]bool   // deleted subscriptions
	events []string
	probes bool           // a probe may recover what failures have disabled, so exhausted is not final
	closed map[string]int // pairs that must get no further request, with the number of their requests
}

// final are the verdicts after which no request follows, unless somebody asks for it. An expired delivery is not final in the
// seconds before it is deleted: a subscription that opens then saves it.
var final = []explain.Verdict{
	explain.Delivered, explain.Exhausted, explain.Dropped, explain.NotWanted, explain.CreatedLater, explain.PlanLackedWebhooks, explain.AboutItself,
}

// absent are the verdicts without a delivery.
var absent = []explain.Verdict{explain.NotWanted, explain.CreatedLater, explain.PlanLackedWebhooks, explain.AboutItself}

func (c *chance) pick(list ...string) string { return list[c.random.IntN(len(list))] }

// add makes a subscription.
func (c *chance) add() {
	host := fmt.Sprintf("receiver-%d.example", len(c.hosts))
	types := [][]string{nil, {"order.paid"}, {"user.*"}}[c.random.IntN(3)]
	c.hosts[c.subscribe(c.t, host, c.pick("ok", "ok", "fails", "hangs"), types...)] = host
}

// step makes one random change.
func (c *chance) step() {
	sub := c.pick(slices.Sorted(maps.Keys(c.hosts))...)
	switch n := c.random.IntN(100); {
	case n < 40:
		for range 1 + c.random.IntN(6) {
			c.events = append(c.events, storagetest.Publish(c.t, c.Store, c.owner, c.pick("order.paid", "user.created")).ID)
		}
	case n < 60:
		c.answer(c.hosts[sub], c.pick("ok", "fails", "fails", "hangs"))
	case n < 70 && !c.gone[sub]:
		c.patch(c.t, sub, c.pick(`{"is_active":false}`, `{"is_active":true}`, `{"is_active":true}`, `{"is_active":true}`))
	case n < 75 && !c.gone[sub]:
		c.patch(c.t, sub, c.pick(`{"rate_limit_per_second":null}`, `{"rate_limit_per_second":1}`))
	case n < 80 && !c.gone[sub]:
		c.patch(c.t, sub, c.pick(`{"event_types":[]}`, `{"event_types":["order.paid"]}`, `{"event_types":["user.created"]}`))
	case n < 85:
		c.setPlan(c.t, c.pick("free", "growth", "enterprise", "enterprise"))
	case n < 90:
		c.operate(c.t, "POST /api/v1/queue/"+c.pick("hold", "release", "release")+"/", "")
	case n < 92 && !c.gone[sub] && len(c.hosts)-len(c.gone) > 2:
		c.Do(c.t, "DELETE /api/v1/webhooks/subscriptions/"+sub+"/", c.token, "").Want(c.t, 204, "")
		c.gone[sub] = true
	case n < 94 && len(c.hosts) < 6:
		c.setPlan(c.t, "enterprise")
		c.add()
	case n < 95:
		c.operate(c.t, "POST /api/v1/queue/hold/", "")
		c.operate(c.t, "POST /api/v1/queue/discard/", "")
	}
	pass(time.Duration(c.random.ExpFloat64() * float64([]time.Duration{time.Millisecond, time.Second, 30 * time.Second}[c.random.IntN(3)])))
}

// check compares the explanations of all events with what has happened, and remembers which pairs must get no more requests.
func (c *chance) check() {
	for _, event := range c.events {
		for sub, x := range c.explainAll(c.t, event) {
			host, verdict := c.hosts[sub], explain.Verdict(x.Verdict)
			requests := c.requests(event, host)
			what := fmt.Sprintf("%s to %s: %s (%s)", event, host, verdict, x.Detail)
			if x.Attempts != len(requests) {
				c.t.Errorf("%s: %d attempts, %d requests", what, x.Attempts, len(requests))
			}
			if accepted := slices.ContainsFunc(requests, func(q sentRequest) bool { return q.accepted }); accepted != (verdict == explain.Delivered) {
				c.t.Errorf("%s: accepted: %t", what, accepted)
			}
			if len(requests) > 0 && slices.Contains(absent, verdict) {
				c.t.Errorf("%s: %d requests", what, len(requests))
			}
			if slices.Contains(final, verdict) && !(c.probes && verdict == explain.Exhausted) {
				pair := event + " " + sub
				if before, known := c.closed[pair]; known && before != len(requests) {
					c.t.Errorf("%s: %d requests before, %d now", what, before, len(requests))
				}
				c.closed[pair] = len(requests)
			} else if _, known := c.closed[event+" "+sub]; known {
				c.t.Errorf("%s: it was final", what)
			}
		}
	}
}

// awaitTimes waits for the next attempt of one event, and expects a request at that time.
func (c *chance) awaitTimes() {
	for sub, x := range c.explainAll(c.t, c.events[len(c.events)-1]) {
		if x.NextAttemptAt == nil {
			continue
		}
		event := c.events[len(c.events)-1]
		before := len(c.requests(event, c.hosts[sub]))
		busy, err := c.Store.AttemptPage(c.t.Context(), c.owner.Organization.RowID, sub, webhook.AttemptFilter{Outcome: new(webhook.Sending), Limit: 1})
		if err != nil {
			c.t.Fatal(err)
		}
		pass(time.Until(*x.NextAttemptAt) - time.Millisecond)
		synctest.Wait()
		if n := len(c.requests(event, c.hosts[sub])); n != before {
			c.t.Errorf("%s: a request came before %s", x.Detail, x.NextAttemptAt)
		}
		pass(2 * time.Second) // a rate limit may delay it
		synctest.Wait()
		after := c.explain(c.t, event, sub)
		// It became failing, or an attempt that was in progress failed, and its retry comes first.
		waits := after.Verdict == string(explain.WaitingForProbe) && (x.Verdict != after.Verdict || len(busy.Attempts) > 0)
		if n := len(c.requests(event, c.hosts[sub])); n == before && !waits && after.Verdict != string(explain.HeldDisabled) {
			c.t.Errorf("%s: no request came; now: %s", x.Detail, after.Detail)
		}
		return
	}
}

// repair makes every receiver work. Then it follows the advice until there is none. What can arrive must arrive.
func (c *chance) repair() {
	for _, host := range c.hosts {
		c.answer(host, "ok")
	}
	clear(c.closed) // replays begin
	for range 8 {
		followed := map[string]bool{}
		for _, event := range c.events {
			for _, x := range c.explainAll(c.t, event) {
				if x.Advice != nil && !followed[*x.Advice] {
					followed[*x.Advice] = true
					c.follow(c.t, *x.Advice)
				}
			}
		}
		pass(time.Minute)
	}
	pass(15 * time.Minute) // no retry is further away
	for _, event := range c.events {
		for sub, x := range c.explainAll(c.t, event) {
			switch explain.Verdict(x.Verdict) {
			case explain.Delivered, explain.CreatedLater:
			case explain.Dropped, explain.Exhausted, explain.NotWanted, explain.PlanLackedWebhooks, explain.Expired:
				if x.Advice != nil || x.Verdict != string(explain.Dropped) && x.Verdict != string(explain.Expired) && !c.gone[sub] {
					c.t.Errorf("after all advice, %s to %s is %+v, %s", event, c.hosts[sub], x, x.advice())
				}
			default:
				c.t.Errorf("after all advice, %s to %s is %+v, %s", event, c.hosts[sub], x, x.advice())
			}
		}
	}
}

func TestExplanationsAgreeWithTheEngine(t *testing.T) {
	t.Parallel()
	n := 8
	if testing.Short() {
		n = 2
	}
	for seed := range n {
		t.Run(fmt.Sprintf("after random changes, seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(t, func(o *storage.Options) {
					o.Policy = webhook.Policy{MaxAttempts: 4, FailingAfter: 5, DisabledAfter: 6 + 9*(seed/2%2)}
					if seed%4 == 2 {
						o.Policy = webhook.Policy{MaxAttempts: 2, FailingAfter: 3, DisabledAfter: 5, ProbeDisabled: time.Minute}
					}
					o.KeepEvents = []time.Duration{4 * time.Hour, 10 * time.Minute}[seed%2] // with the latter, most events expire
				})
				c := &chance{engine: e, t: t, random: rand.New(rand.NewPCG(uint64(seed), 7)), hosts: map[string]string{}, gone: map[string]bool{}, closed: map[string]int{}, probes: seed%4 == 2}
				for range 3 {
					c.add()
				}
				c.events = []string{e.publish(t, "order.paid")}
				for i := range 60 {
					c.step()
					c.check()
					if i%5 == 4 {
						c.awaitTimes()
					}
				}
				c.repair()
			})
		})
	}
}
