package dispatch_test

import (
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage/webhook"
)

// probing is the default policy with probes of disabled subscriptions.
func probing(every time.Duration) webhook.Policy {
	p := webhook.DefaultPolicy()
	p.ProbeDisabled = every
	return p
}

// impatient returns the policy with two attempts for each delivery.
func impatient(p webhook.Policy) webhook.Policy {
	p.MaxAttempts = 2
	return p
}

// received counts the requests by event.
func (x *fixture) received(host string) map[string]int {
	got := map[string]int{}
	for _, q := range x.requests(host) {
		got[q.header.Get("X-Service-Event-Id")]++
	}
	return got
}

// TestOutageOfANight publishes an event each minute for ten hours. The receiver is down for eight of them.
func TestOutageOfANight(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		policy  webhook.Policy
		recover bool // by hand
	}{
		"one call recovers it":           {impatient(webhook.DefaultPolicy()), true},
		"a successful probe recovers it": {impatient(probing(time.Hour)), false},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				x := newFixture(t, dispatch.Options{Policy: tt.policy, PollInterval: 10 * time.Second})
				sub := x.subscribe(t, "a.example", respond(200))
				other := x.subscribe(t, "b.example", respond(200))
				var all, others []string
				hours := func(n int) {
					for range n * 60 {
						all = append(all, x.publish(t, 1)...)
						time.Sleep(time.Minute)
					}
				}
				hours(1)
				x.setReceiver("a.example", respond(503))
				hours(2)
				if h := x.health(t, sub); h.Status != webhook.Disabled {
					t.Fatalf("after two hours: %+v", h.Health)
				}
				failedProbes := len(x.requests("a.example"))
				hours(6)
				failedProbes = len(x.requests("a.example")) - failedProbes
				held, down := x.health(t, sub).PendingDeliveries, x.requests("a.example")
				x.setReceiver("a.example", respond(200))
				lost := int64(0)
				if tt.recover {
					r, err := x.Queue.Recover(t.Context(), x.actor(), x.org(), sub.ID, webhook.RecoveryRequest{})
					if err != nil || r.Pending != held || r.Deliveries == 0 || r.Deliveries+r.Pending < 8*60 {
						t.Errorf("recovery %+v with %d held, error %v", r, held, err)
					}
					lost = r.Deliveries
				}
				hours(1)
				time.Sleep(time.Hour)
				others = all
				up := map[string]bool{}
				for i, q := range x.requests("a.example") {
					if i < 60 || i >= len(down) {
						up[q.header.Get("X-Service-Event-Id")] = true
					}
				}
				t.Logf("published %d, held %d, given up and sent again by hand %d, probes while disabled %d, requests %d, received %d events",
					len(all), held, lost, failedProbes, len(x.requests("a.example")), len(up))
				if len(up) != len(all) {
					t.Errorf("%d of %d events were received", len(up), len(all))
				}
				if h := x.health(t, sub); h.Status != webhook.Healthy || h.PendingDeliveries != 0 || h.FailingSince != 0 {
					t.Errorf("in the end: %+v, %d pending", h.Health, h.PendingDeliveries)
				}
				if want := 0; tt.recover && failedProbes != want || !tt.recover && (failedProbes < 5 || failedProbes > 7) {
					t.Errorf("%d requests in six hours while disabled", failedProbes)
				}
				if got := x.received("b.example"); len(got) != len(others) || len(x.requests("b.example")) != len(others) || other.ID == "" {
					t.Errorf("the neighbour got %d of %d events", len(got), len(others))
				}
			})
		})
	}
}

// TestProbesOfDisabledSubscriptions checks when a disabled subscription gets a probe.
func TestProbesOfDisabledSubscriptions(t *testing.T) {
	t.Parallel()
	const interval = 2 * time.Minute
	disabled := func(t *testing.T, events int, policy webhook.Policy) (*fixture, webhook.Subscription) {
		t.Helper()
		x := newFixture(t, dispatch.Options{Policy: policy, RetryBase: time.Second, RetryMax: time.Second})
		sub := x.subscribe(t, "a.example", respond(500))
		x.publish(t, events)
		time.Sleep(30 * time.Second)
		if h := x.health(t, sub); h.Status != webhook.Disabled {
			t.Fatalf("%+v", h.Health)
		}
		return x, sub
	}

	t.Run("one at a time, the oldest delivery, once in the interval", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x, sub := disabled(t, 100, probing(interval))
			before := len(x.requests("a.example"))
			time.Sleep(10 * interval)
			probes := x.requests("a.example")[before:]
			if len(probes) < 9 || len(probes) > 11 {
				t.Errorf("%d probes in ten intervals", len(probes))
			}
			for i := 1; i < len(probes); i++ {
				if wait := probes[i].at.Sub(probes[i-1].at); wait < interval || wait > interval+5*time.Second {
					t.Errorf("a probe followed after %s", wait)
				}
			}
			if h := x.health(t, sub); h.Status != webhook.Disabled || h.ConsecutiveFailures != 15+len(probes) {
				t.Errorf("%+v", h.Health)
			}
		})
	})

	t.Run("not without the setting, not after its owner has switched it off, and not if nothing waits", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			for name, prepare := range map[string]func() *fixture{
				"without the setting": func() *fixture {
					x, _ := disabled(t, 100, webhook.DefaultPolicy())
					return x
				},
				"switched off": func() *fixture {
					x, sub := disabled(t, 100, probing(interval))
					x.setActive(t, sub, false)
					return x
				},
				"paused": func() *fixture {
					x := newFixture(t, dispatch.Options{Policy: probing(interval)})
					x.setActive(t, x.subscribe(t, "a.example", respond(500)), false)
					x.publish(t, 10)
					return x
				},
				"nothing waits": func() *fixture {
					x, sub := disabled(t, 100, probing(interval))
					if _, err := x.Queue.Discard(t.Context(), x.actor(), x.org(), sub.ID, 0); err != nil {
						t.Fatal(err)
					}
					return x
				},
				"without the plan": func() *fixture {
					x, _ := disabled(t, 100, probing(interval))
					x.setPlan(t, "free")
					return x
				},
			} {
				x := prepare()
				time.Sleep(2 * time.Second)
				before := len(x.requests("a.example"))
				time.Sleep(3 * interval)
				if n := len(x.requests("a.example")) - before; n != 0 {
					t.Errorf("%s: %d requests", name, n)
				}
				x.stop()
			}
		})
	})

	t.Run("an event that is published later is probed, if nothing waited before", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x, sub := disabled(t, 100, probing(interval))
			if _, err := x.Queue.Discard(t.Context(), x.actor(), x.org(), sub.ID, 0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * interval)
			x.setReceiver("a.example", respond(200))
			before := len(x.requests("a.example"))
			x.publish(t, 3)
			time.Sleep(interval)
			if n := len(x.requests("a.example")) - before; n < 3 {
				t.Errorf("%d requests, want 3", n)
			}
			if h := x.health(t, sub); h.Status != webhook.Healthy {
				t.Errorf("%+v", h.Health)
			}
		})
	})
}
