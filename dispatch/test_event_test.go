package dispatch_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestTestAttempts(t *testing.T) {
	t.Parallel()

	t.Run("a test returns its result and leaves the health alone", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			sub := x.subscribe(t, "a.example", respond(204))
			a, err := x.Test(t.Context(), x.org(), sub.ID, "")
			if err != nil || a.Outcome != webhook.Succeeded || a.Number != 1 || a.Trigger != webhook.ByTest || a.EventType != webhook.TestType || *a.ResponseStatus != 204 {
				t.Errorf("%v, %+v", err, a)
			}
			x.setReceiver("a.example", respond(500))
			for range 20 {
				if a, err = x.Test(t.Context(), x.org(), sub.ID, ""); err != nil || a.Outcome != webhook.Failed || a.Error != "http_status: 500" {
					t.Errorf("%v, %+v", err, a)
				}
			}
			if h := x.health(t, sub); h.Status != webhook.Healthy || h.ConsecutiveFailures != 0 || h.PendingDeliveries != 0 {
				t.Errorf("%+v", h)
			}
			time.Sleep(time.Hour)
			if n := len(x.requests("a.example")); n != 21 {
				t.Errorf("%d requests: a test is never made up for", n)
			}
		})
	})

	t.Run("a result that cannot be saved for long is saved later, and does not delay a stop", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			f := newFaults()
			x := stoppedFixture(t, f, dispatch.Options{})
			sub := x.subscribe(t, "a.example", respondAfter(time.Second, respond(200)))
			x.run(t)
			for _, heals := range []bool{true, false} {
				time.AfterFunc(500*time.Millisecond, func() { f.fail(true, "Record") })
				if _, err := x.Test(t.Context(), x.org(), sub.ID, ""); err == nil {
					t.Error("the test has a record")
				}
				time.Sleep(time.Hour)
				f.fail(!heals, "Record")
				time.Sleep(time.Minute)
				if n := x.outcomes(t, sub); n[webhook.Succeeded] != 1 || (n[webhook.Sending] == 0) != heals {
					t.Errorf("heals: %t, outcomes %v", heals, n)
				}
			}
		}) // the end stops the dispatcher
	})

	t.Run("a test works on a disabled subscription and not for another organization", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			sub := x.subscribe(t, "a.example", respond(200))
			x.setActive(t, sub, false)
			if a, err := x.Test(t.Context(), x.org(), sub.ID, ""); err != nil || a.Outcome != webhook.Succeeded {
				t.Errorf("%v, %+v", err, a)
			}
			if _, err := x.Test(t.Context(), x.org()+1, sub.ID, ""); err == nil {
				t.Error("another organization tests it")
			}
			x.setPlan(t, "free")
			if _, err := x.Test(t.Context(), x.org(), sub.ID, ""); err == nil || len(x.requests("a.example")) != 1 {
				t.Errorf("tested without the plan: %v", err)
			}
		})
	})

	t.Run("a test of a type sends its example, signed", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			sub, secret := x.subscribeWithSecret(t, "a.example", respond(204))
			example := []byte(`{"parcel":7}`)
			change := webhook.EventTypeChange{Description: new("A parcel was sent"), Example: &example}
			if _, err := x.Catalogue.PutEventType(t.Context(), x.actor(), "parcel.sent", change); err != nil {
				t.Fatal(err)
			}
			if a, err := x.Test(t.Context(), x.org(), sub.ID, "parcel.sent"); err != nil || a.EventType != "parcel.sent" || a.Trigger != webhook.ByTest {
				t.Errorf("%v, %+v", err, a)
			}
			q := x.requests("a.example")[0]
			if err := signature.Verify(secret.Reveal(), q.header, []byte(q.body), q.at, time.Second); err != nil {
				t.Error(err)
			}
			if !strings.HasSuffix(q.body, `,"test":true,"data":{"parcel":7}}`) || q.header.Get("X-Service-Event-Type") != "parcel.sent" {
				t.Errorf("%v %s", q.header, q.body)
			}
			if _, err := x.Test(t.Context(), x.org(), sub.ID, "parcel.lost"); fault.KindOf(err) != fault.Invalid {
				t.Errorf("of an unknown type: %v", err)
			}
		})
	})

	t.Run("tests obey the limits and go before waiting deliveries", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{PerSubscription: 2})
			sub := x.subscribe(t, "a.example", respondAfter(time.Second, respond(200)))
			x.publish(t, 100)
			time.Sleep(500 * time.Millisecond)
			var done sync.WaitGroup
			begin := time.Now()
			for range 4 {
				done.Go(func() {
					if _, err := x.Test(t.Context(), x.org(), sub.ID, ""); err != nil {
						t.Error(err)
					}
				})
			}
			done.Wait()
			if took := time.Since(begin); took != 2500*time.Millisecond {
				t.Errorf("took %s, want half a second until slots are free and twice a second", took)
			}
			if one, _ := x.peak("a.example"); one != 2 {
				t.Errorf("%d at once", one)
			}
			time.Sleep(time.Minute)
			checkDeliveredOnce(t, x, "a.example", 104)
		})
	})
}

func TestTestsOfFailingSubscriptions(t *testing.T) {
	t.Parallel()
	// failing makes a subscription that is failing, with a probe due within 18 seconds, and a receiver that now takes a
	// minute.
	failing := func(t *testing.T) (*fixture, webhook.Subscription) {
		x := newFixture(t, dispatch.Options{Timeout: 2 * time.Minute})
		sub := x.subscribe(t, "a.example", respond(500))
		x.publish(t, 20)
		time.Sleep(time.Second)
		if h := x.health(t, sub); h.Status != webhook.Failing {
			t.Fatalf("not failing: %+v", h.Health)
		}
		x.setReceiver("a.example", respondAfter(time.Minute, respond(200)))
		return x, sub
	}
	checkOneInProgress := func(t *testing.T, x *fixture, sub webhook.Subscription) {
		t.Helper()
		if n := x.outcomes(t, sub); n[webhook.Sending] != 1 {
			t.Errorf("%d attempts on record as in progress, want the first alone", n[webhook.Sending])
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		if n := x.running["a.example"]; n != 1 {
			t.Errorf("%d requests in progress, want 1", n)
		}
	}

	t.Run("a probe waits for a test that is in progress", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x, sub := failing(t)
			var done sync.WaitGroup
			done.Go(func() {
				if a, err := x.Test(t.Context(), x.org(), sub.ID, ""); err != nil || a.Outcome != webhook.Succeeded {
					t.Errorf("%v, %+v", err, a)
				}
			})
			time.Sleep(30 * time.Second)
			checkOneInProgress(t, x, sub)
			done.Wait()
			time.Sleep(time.Second)
			checkOneInProgress(t, x, sub) // now the probe
			time.Sleep(time.Hour)
			if h := x.health(t, sub); h.Status != webhook.Healthy || h.PendingDeliveries != 0 {
				t.Errorf("%+v, %d pending", h.Health, h.PendingDeliveries)
			}
		})
	})

	t.Run("a test waits for a probe that is in progress", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x, sub := failing(t)
			time.Sleep(30 * time.Second)
			var done sync.WaitGroup
			done.Go(func() {
				if a, err := x.Test(t.Context(), x.org(), sub.ID, ""); err != nil || a.Outcome != webhook.Succeeded {
					t.Errorf("%v, %+v", err, a)
				}
			})
			time.Sleep(10 * time.Second)
			checkOneInProgress(t, x, sub)
			done.Wait()
		})
	})
}

func TestTestAttemptsThatAreCancelled(t *testing.T) {
	t.Parallel()

	t.Run("a cancelled test leaves no record if it was not sent, and a result if it was", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{PerSubscription: 1})
			sub := x.subscribe(t, "a.example", respondAfter(5*time.Second, respond(200)))
			x.publish(t, 1)
			synctest.Wait()
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := x.Test(short, x.org(), sub.ID, ""); err == nil {
				t.Error("a test in time")
			}
			if n := x.outcomes(t, sub); n[webhook.Sending] != 1 || len(n) != 1 {
				t.Errorf("on record: %v", n)
			}
			time.Sleep(10 * time.Second)
			short, cancel = context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if a, err := x.Test(short, x.org(), sub.ID, ""); err != nil || a.Outcome != webhook.Succeeded {
				t.Errorf("%v, %+v", err, a)
			}
			time.Sleep(time.Minute)
			if n := x.outcomes(t, sub); n[webhook.Succeeded] != 2 || len(n) != 1 {
				t.Errorf("on record: %v", n)
			}
		})
	})

	t.Run("a test uses the state of the subscription when its turn comes", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{PerSubscription: 1})
			sub := x.subscribe(t, "a.example", respondAfter(5*time.Second, respond(200)))
			x.publish(t, 1)
			synctest.Wait()
			var done sync.WaitGroup
			done.Go(func() {
				if _, err := x.Test(t.Context(), x.org(), sub.ID, ""); err == nil {
					t.Error("a removed subscription was tested")
				}
			})
			synctest.Wait()
			if err := x.Subscriptions.DeleteSubscription(t.Context(), x.actor(), x.org(), sub.ID); err != nil {
				t.Fatal(err)
			}
			done.Wait()
			if n := len(x.requests("a.example")); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	})

	t.Run("tests are refused when the dispatcher stops", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{PerSubscription: 1})
			sub := x.subscribe(t, "a.example", respondAfter(5*time.Second, respond(200)))
			x.publish(t, 1)
			synctest.Wait()
			var waiting atomic.Bool
			var done sync.WaitGroup
			done.Go(func() {
				_, err := x.Test(t.Context(), x.org(), sub.ID, "")
				waiting.Store(fault.KindOf(err) == fault.Unavailable)
			})
			synctest.Wait()
			x.stop()
			done.Wait()
			if !waiting.Load() {
				t.Error("a test while stopping is not refused as such")
			}
			if _, err := x.Test(t.Context(), x.org(), sub.ID, ""); err == nil {
				t.Error("a test was sent after the stop")
			}
			if n := x.outcomes(t, sub); n[webhook.Succeeded] != 1 || len(n) != 1 {
				t.Errorf("on record: %v", n)
			}
		})
	})
}
