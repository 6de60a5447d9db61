package dispatch_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestHealth(t *testing.T) {
	t.Parallel()

	t.Run("five failures make it failing; ten probes, one at a time with growing delays, disable it", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{PerSubscription: 1})
			sub := x.subscribe(t, "a.example", respondAfter(time.Second, respond(500)))
			x.publish(t, 1000)
			time.Sleep(5*time.Second + 500*time.Millisecond)
			if h := x.health(t, sub); h.Status != webhook.Failing || h.ConsecutiveFailures != 5 || h.LastError != "http_status: 500" {
				t.Fatalf("after five failures: %+v", h.Health)
			}
			time.Sleep(3 * time.Hour)
			if h := x.health(t, sub); h.Status != webhook.Disabled || h.ConsecutiveFailures != 15 || h.PendingDeliveries != 1000 || h.LastError == "" {
				t.Errorf("in the end: %+v, %d pending", h.Health, h.PendingDeliveries)
			}
			got := x.requests("a.example")
			if len(got) != 15 {
				t.Fatalf("%d requests, want 15", len(got))
			}
			// A probe follows this long after the end of the attempt before it, which took a second.
			pace := []time.Duration{15, 15, 60, 240, 600, 600, 600, 600, 600, 600}
			for i, base := range pace {
				wait := got[5+i].at.Sub(got[4+i].at) - time.Second
				low, high := base*time.Second*8/10, min(base*time.Second*12/10, 10*time.Minute)
				if wait < low || wait > high+10*time.Millisecond {
					t.Errorf("probe %d came %s after what was before, want %s to %s", i+1, wait, low, high)
				}
			}
			if n := x.outcomes(t, sub); n[webhook.Failed] != 15 || len(n) != 1 {
				t.Errorf("on record: %v", n)
			}
		})
	})

	t.Run("a burst in progress when the endpoint dies makes it failing, never disabled", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{PerSubscription: 64})
			var dead atomic.Bool
			sub := x.subscribe(t, "a.example", func(*http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				if dead.Load() {
					return nil, errors.New("reset")
				}
				return newResponse(200, ""), nil
			})
			x.publish(t, 500)
			time.Sleep(2500 * time.Millisecond)
			dead.Store(true)
			time.Sleep(2 * time.Second)
			if one, _ := x.peak("a.example"); one != 64 {
				t.Fatalf("%d at once, want 64", one)
			}
			if h := x.health(t, sub); h.Status != webhook.Failing || h.ConsecutiveFailures != 5 {
				t.Fatalf("after the burst: %+v", h.Health)
			}
			before := len(x.requests("a.example"))
			if before > 64*3+4 { // others follow the first four failures, which may be temporary
				t.Errorf("%d requests, want no more than the burst", before)
			}
			// Attempts that had begun beyond the burst were released, without a record.
			if n := x.outcomes(t, sub); n[webhook.Sending] != 0 || n[webhook.Succeeded]+n[webhook.Failed] != before {
				t.Errorf("%d requests, on record %v", before, n)
			}
			dead.Store(false)
			time.Sleep(5 * time.Minute)
			if h := x.health(t, sub); h.Status != webhook.Healthy || h.PendingDeliveries != 0 {
				t.Errorf("after recovery: %+v, %d pending", h.Health, h.PendingDeliveries)
			}
		})
	})
}

func TestHealthAfterChanges(t *testing.T) {
	t.Parallel()

	t.Run("all pending deliveries are sent in parallel when a disabled subscription is activated", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			sub := x.subscribe(t, "a.example", respond(500))
			x.publish(t, 300)
			time.Sleep(2 * time.Hour)
			if h := x.health(t, sub); h.Status != webhook.Disabled {
				t.Fatalf("not disabled: %+v", h.Health)
			}
			before := len(x.requests("a.example"))
			time.Sleep(2 * time.Hour)
			if n := len(x.requests("a.example")) - before; n != 0 {
				t.Errorf("%d requests while disabled", n)
			}
			x.setReceiver("a.example", respondAfter(time.Second, respond(200)))
			x.setActive(t, sub, true)
			synctest.Wait()
			if n := len(x.requests("a.example")) - before; n != 16 {
				t.Errorf("%d requests at once, want 16", n)
			}
			time.Sleep(20 * time.Minute)
			if h := x.health(t, sub); h.Status != webhook.Healthy || h.PendingDeliveries != 0 || h.ConsecutiveFailures != 0 {
				t.Errorf("after activation: %+v, %d pending", h.Health, h.PendingDeliveries)
			}
		})
	})
}

func TestSubscriptionChanges(t *testing.T) {
	t.Parallel()

	t.Run("nothing is sent after a subscription was deactivated or deleted", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			for _, host := range []string{"off.example", "gone.example"} {
				sub := x.subscribe(t, host, respondAfter(time.Second, respond(200)))
				x.publish(t, 100)
				time.Sleep(1500 * time.Millisecond)
				if host == "off.example" {
					x.setActive(t, sub, false)
				} else if err := x.Subscriptions.DeleteSubscription(t.Context(), x.actor(), x.org(), sub.ID); err != nil {
					t.Fatal(err)
				}
				before := len(x.requests(host))
				time.Sleep(time.Hour)
				if n := len(x.requests(host)); n != before || n != 32 {
					t.Errorf("%s has got %d requests, %d of them after it was closed", host, n, n-before)
				}
			}
		})
	})

	t.Run("a change of the URL applies to all later attempts", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			sub := x.subscribe(t, "old.example", respondAfter(time.Second, respond(200)))
			x.setReceiver("new.example", respondAfter(time.Second, respond(200)))
			x.publish(t, 100)
			time.Sleep(1500 * time.Millisecond)
			url := "https://new.example/hook"
			if _, err := x.Subscriptions.UpdateSubscription(t.Context(), x.actor(), x.org(), sub.ID, webhook.SubscriptionChange{URL: &url}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			checkDeliveredOnce(t, x, "old.example", 32)
			checkDeliveredOnce(t, x, "new.example", 68)
		})
	})

	t.Run("a failing lane resumes at once when its owner activates it", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			sub := x.subscribe(t, "a.example", respond(500))
			x.publish(t, 100)
			time.Sleep(10 * time.Minute)
			if h := x.health(t, sub); h.Status != webhook.Failing {
				t.Fatalf("not failing: %+v", h.Health)
			}
			x.setReceiver("a.example", respond(200))
			x.setActive(t, sub, true)
			time.Sleep(time.Second)
			if h := x.health(t, sub); h.Status != webhook.Healthy || h.PendingDeliveries > 20 {
				t.Errorf("%+v, %d pending", h.Health, h.PendingDeliveries)
			}
		})
	})

	t.Run("attempts begun before an activation do not change the health after it", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			sub := x.subscribe(t, "a.example", respondAfter(5*time.Second, respond(500)))
			x.publish(t, 16)
			time.Sleep(time.Second)
			x.setActive(t, sub, false)
			x.setActive(t, sub, true)
			time.Sleep(5 * time.Second)
			if h := x.health(t, sub); h.Status != webhook.Healthy || h.ConsecutiveFailures != 0 {
				t.Errorf("attempts begun before the repair count after it: %+v", h.Health)
			}
		})
	})
}

// setActive sets is_active.
func (x *fixture) setActive(tb testing.TB, sub webhook.Subscription, active bool) {
	tb.Helper()
	if _, err := x.Subscriptions.UpdateSubscription(context.Background(), x.actor(), x.org(), sub.ID, webhook.SubscriptionChange{IsActive: &active}); err != nil {
		tb.Fatal(err)
	}
}

// setPlan moves the organization to a plan.
func (x *fixture) setPlan(tb testing.TB, name string) {
	tb.Helper()
	operator := storagetest.Operator(tb, x.Store).Actor("127.0.0.1", "test")
	if _, err := x.Directory.UpdateOrganization(context.Background(), operator, x.owner.Organization.ID, access.OrganizationChange{Plan: &name}); err != nil {
		tb.Fatal(err)
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()

	t.Run("a plan without webhooks sends nothing pending, and a plan with webhooks sends all of it", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := stoppedFixture(t, nil, dispatch.Options{})
			sub := x.subscribe(t, "a.example", respond(200))
			x.publish(t, 50)
			x.setPlan(t, "free")
			x.run(t)
			time.Sleep(time.Hour)
			if n := len(x.requests("a.example")); n != 0 {
				t.Errorf("%d requests on a plan without webhooks", n)
			}
			if n := x.outcomes(t, sub); len(n) != 0 {
				t.Errorf("attempts without requests: %v", n)
			}
			x.setPlan(t, "growth")
			time.Sleep(time.Second)
			checkDeliveredOnce(t, x, "a.example", 50)
		})
	})

	t.Run("a downgrade holds from the moment of its response", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			x.subscribe(t, "a.example", respondAfter(100*time.Millisecond, respond(200)))
			x.publish(t, 500)
			time.Sleep(250 * time.Millisecond)
			x.setPlan(t, "free")
			before := len(x.requests("a.example"))
			time.Sleep(time.Hour)
			if n := len(x.requests("a.example")) - before; n != 0 || before != 48 {
				t.Errorf("%d requests before the downgrade, %d after", before, n)
			}
			x.setPlan(t, "growth")
			time.Sleep(time.Minute)
			checkDeliveredOnce(t, x, "a.example", 500)
		})
	})

	t.Run("an upgrade is noticed while the last attempts are still in progress", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			var n atomic.Int64
			x.subscribe(t, "a.example", func(q *http.Request) (*http.Response, error) {
				if n.Add(1) == 1 { // its result tells the lane of the downgrade
					return respondAfter(2*time.Second, respond(200))(q)
				}
				return respondAfter(5*time.Second, respond(200))(q)
			})
			x.publish(t, 32)
			time.Sleep(time.Second)
			x.setPlan(t, "free")
			time.Sleep(2 * time.Second)
			x.setPlan(t, "growth")
			time.Sleep(9 * time.Second)
			checkDeliveredOnce(t, x, "a.example", 32)
		})
	})
}

func TestRotation(t *testing.T) {
	t.Parallel()

	t.Run("an attempt after a rotation is signed with the new secret, and in the overlap also with the old one", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			sub, old := x.subscribeWithSecret(t, "a.example", respondAfter(time.Second, respond(200)))
			x.publish(t, 64)
			time.Sleep(1500 * time.Millisecond)
			_, fresh, err := x.Subscriptions.RotateSecret(t.Context(), x.actor(), x.org(), sub.ID, webhook.Rotation{Overlap: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			before := len(x.requests("a.example"))
			time.Sleep(time.Minute)
			got := x.requests("a.example")
			if before != 32 || len(got) != 64 {
				t.Fatalf("%d requests, %d of them before the rotation", len(got), before)
			}
			for i, q := range got {
				oldErr := signature.VerifyStandard(old.Reveal(), q.header, []byte(q.body), q.at, time.Second)
				newErr := signature.VerifyStandard(fresh.Reveal(), q.header, []byte(q.body), q.at, time.Second)
				hexErr := signature.Verify(fresh.Reveal(), q.header, []byte(q.body), q.at, time.Second)
				if oldErr != nil || (newErr == nil) != (i >= before) || (hexErr == nil) != (i >= before) {
					t.Errorf("request %d: old %v, new %v, hex %v", i, oldErr, newErr, hexErr)
				}
			}
			time.Sleep(time.Hour)
			x.publish(t, 1)
			time.Sleep(time.Minute)
			last := x.requests("a.example")[64]
			if signature.VerifyStandard(old.Reveal(), last.header, []byte(last.body), last.at, time.Second) == nil {
				t.Error("the old secret signs after the overlap")
			}
		})
	})

	t.Run("an attempt decided before a rotation but not sent is signed with the new secret", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			f := newFaults()
			var x *fixture
			var sub webhook.Subscription
			var fresh webhook.Secret
			// The scheduler logs this message after it has learned that the attempts have begun, and before it sends
			// them.
			x = stoppedFixture(t, f, dispatch.Options{Logger: slog.New(logHook{"the database operation works again", func() {
				var err error
				if _, fresh, err = x.Subscriptions.RotateSecret(context.Background(), x.actor(), x.org(), sub.ID, webhook.Rotation{}); err != nil {
					t.Error(err)
				}
			}})})
			sub = x.subscribe(t, "a.example", respond(200))
			x.publish(t, 5) // nothing runs, so the attempts do not begin with their deliveries
			f.fail(true, "Begin")
			x.run(t)
			time.Sleep(1500 * time.Millisecond)
			f.fail(false, "Begin")
			time.Sleep(time.Minute)
			checkDeliveredOnce(t, x, "a.example", 5)
			for _, q := range x.requests("a.example") {
				if err := signature.Verify(fresh.Reveal(), q.header, []byte(q.body), q.at, time.Second); err != nil {
					t.Error(err)
				}
			}
		})
	})

	t.Run("without an overlap only requests in progress have the old signature", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			sub, secret := x.subscribeWithSecret(t, "a.example", respond(200))
			var gate sync.Mutex // no response while the secret changes
			x.setReceiver("a.example", func(*http.Request) (*http.Response, error) {
				gate.Lock()
				defer gate.Unlock()
				return newResponse(200, ""), nil
			})
			for range 15 {
				before := len(x.requests("a.example"))
				gate.Lock()
				x.publish(t, 64)
				_, fresh, err := x.Subscriptions.RotateSecret(t.Context(), x.actor(), x.org(), sub.ID, webhook.Rotation{})
				if err != nil {
					t.Fatal(err)
				}
				gate.Unlock()
				time.Sleep(time.Second)
				old, got := 0, x.requests("a.example")[before:]
				for _, q := range got {
					if signature.Verify(secret.Reveal(), q.header, []byte(q.body), q.at, time.Second) == nil {
						old++
					} else if err := signature.Verify(fresh.Reveal(), q.header, []byte(q.body), q.at, time.Second); err != nil {
						t.Error(err)
					}
				}
				if old > 16 || len(got) != 64 {
					t.Errorf("%d requests, %d of them with the old signature", len(got), old)
				}
				secret = fresh
			}
		})
	})
}

// logHook calls do when its message is logged.
type logHook struct {
	message string
	do      func()
}

func (o logHook) Enabled(context.Context, slog.Level) bool { return true }
func (o logHook) WithAttrs([]slog.Attr) slog.Handler       { return o }
func (o logHook) WithGroup(string) slog.Handler            { return o }
func (o logHook) Handle(_ context.Context, r slog.Record) error {
	if r.Message == o.message {
		o.do()
	}
	return nil
}
