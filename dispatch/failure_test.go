package dispatch_test

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestStoreFailures(t *testing.T) {
	t.Parallel()

	t.Run("nothing is sent while attempts cannot be begun, and everything once they can", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			f := newFaults()
			var log logs
			x := idleRig(t, f, dispatch.Options{Logger: log.logger()})
			sub := x.subscribe(t, "a.example", after(time.Second, says(200)))
			x.run(t)
			x.publish(t, 100)
			time.Sleep(1500 * time.Millisecond)
			f.fail(true, "Begin")
			time.Sleep(10 * time.Second)
			synctest.Wait()
			before := len(x.requests("a.example"))
			calls := f.called("Begin")
			time.Sleep(time.Hour)
			if n := len(x.requests("a.example")); n != before {
				t.Errorf("%d requests while nothing can be begun", n-before)
			}
			if n := f.called("Begin") - calls; n < 3000 || n > 3601 {
				t.Errorf("%d tries in an hour, want one a second", n)
			}
			f.fail(false, "Begin")
			time.Sleep(10 * time.Second)
			deliveredOnce(t, x, "a.example", 100)
			if n := x.outcomes(t, sub); n[webhook.Succeeded] != 100 || len(n) != 1 {
				t.Errorf("on record: %v", n)
			}
			if n := strings.Count(log.String(), `"what":"begin attempts"`); n != 2 {
				t.Errorf("the failure is told %d times, want once, and its end once", n)
			}
		})
	})

	t.Run("what has begun is sent once there is nothing else to begin", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			f := newFaults()
			x := idleRig(t, f, dispatch.Options{Concurrency: 1})
			x.subscribe(t, "slow.example", after(10*time.Second, says(200)))
			x.run(t)
			x.publish(t, 1)
			synctest.Wait()
			x.set("next.example", says(200)) // it has begun, and waits for the only slot
			storagetest.Subscription(t, x.Store, x.owner, "https://next.example/hook", "order.shipped")
			storagetest.Publish(t, x.Store, x.owner, "order.shipped")
			synctest.Wait()
			f.fail(true, "Begin")
			other, _ := storagetest.Subscription(t, x.Store, x.owner, "https://other.example/hook", "order.refunded")
			storagetest.Publish(t, x.Store, x.owner, "order.refunded")
			synctest.Wait()
			x.activate(t, other, false)
			time.Sleep(15 * time.Second)
			deliveredOnce(t, x, "next.example", 1)
			deliveredOnce(t, x, "other.example", 0)
		})
	})

	t.Run("nothing is sent while ends cannot be recorded; what was sent is recorded later, once", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			f := newFaults()
			x := idleRig(t, f, dispatch.Options{})
			sub := x.subscribe(t, "a.example", after(time.Second, says(200)))
			other := x.subscribe(t, "b.example", after(time.Second, says(200)))
			x.run(t)
			x.publish(t, 100)
			time.Sleep(500 * time.Millisecond)
			f.fail(true, "Record")
			time.Sleep(50 * time.Second)
			if a, b := len(x.requests("a.example")), len(x.requests("b.example")); a > 32 || b > 32 {
				t.Errorf("%d and %d requests, want none after the first failure to record", a, b)
			}
			before := len(x.requests("a.example"))
			f.fail(false, "Record")
			time.Sleep(20 * time.Second)
			deliveredOnce(t, x, "a.example", 100)
			deliveredOnce(t, x, "b.example", 100)
			for _, s := range []webhook.Subscription{sub, other} {
				if n := x.outcomes(t, s); n[webhook.Succeeded] != 100 || len(n) != 1 {
					t.Errorf("%d before, on record: %v", before, n)
				}
			}
		})
	})

	t.Run("an end that can never be recorded does not hold up the others for ever", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			f := newFaults()
			x := idleRig(t, f, dispatch.Options{})
			x.subscribe(t, "a.example", says(200))
			x.subscribe(t, "b.example", says(200))
			x.run(t)
			f.spoil(x.publish(t, 50)[7])
			time.Sleep(3 * time.Minute) // one for each of the two, should nothing else be recorded meanwhile
			deliveredOnce(t, x, "a.example", 50)
			x.publish(t, 50)
			time.Sleep(time.Hour)
			deliveredOnce(t, x, "a.example", 100)
			deliveredOnce(t, x, "b.example", 100)
		})
	})

	t.Run("reads that fail are tried again", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			f := newFaults()
			x := idleRig(t, f, dispatch.Options{})
			x.subscribe(t, "a.example", says(200))
			x.publish(t, 10)
			f.fail(true, "Lanes", "Target", "PendingJobs")
			x.run(t)
			x.publish(t, 10)
			time.Sleep(time.Hour)
			if n := len(x.requests("a.example")); n != 0 {
				t.Errorf("%d requests to an unknown target", n)
			}
			if n := f.called("Target") + f.called("Lanes") + f.called("PendingJobs"); n > 3*3600 {
				t.Errorf("%d reads in an hour", n)
			}
			f.fail(false, "Lanes", "Target", "PendingJobs")
			time.Sleep(2 * time.Minute)
			deliveredOnce(t, x, "a.example", 20)
		})
	})

	t.Run("what was begun and cannot be taken back is taken back later", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			f := newFaults()
			x := idleRig(t, f, dispatch.Options{})
			sub := x.subscribe(t, "a.example", after(time.Second, says(200)))
			x.run(t)
			x.publish(t, 200)
			time.Sleep(2500 * time.Millisecond)
			f.fail(true, "Release")
			x.activate(t, sub, false)
			time.Sleep(10 * time.Second)
			if f.called("Release") < 2 {
				t.Fatal("nothing had to be taken back")
			}
			x.activate(t, sub, true)
			time.Sleep(time.Minute)
			f.fail(false, "Release")
			time.Sleep(time.Minute)
			deliveredOnce(t, x, "a.example", 200)
			for _, a := range x.attempts(t, sub) {
				if a.Number != 1 || a.Outcome != webhook.Succeeded {
					t.Fatalf("%+v", a)
				}
			}
		})
	})

	t.Run("a panic of the transport is a failed attempt and nothing more", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			var log logs
			x := newRig(t, dispatch.Options{Logger: log.logger()})
			sub, secret := x.subscribeSecret(t, "a.example", func(q *http.Request) (*http.Response, error) { panic("bug at " + q.URL.String()) })
			x.subscribe(t, "b.example", says(200))
			x.publish(t, 1)
			time.Sleep(time.Hour)
			attempts := x.attempts(t, sub)
			if len(attempts) != 5 || attempts[0].Error != "protocol_error: the attempt could not be made" {
				t.Errorf("on record: %+v", attempts)
			}
			deliveredOnce(t, x, "b.example", 1)
			keepsSecrets(t, log.String())
			if strings.Contains(log.String(), "/hook") || strings.Contains(log.String(), secret.Reveal()) {
				t.Error("the log tells the URL or the secret")
			}
			if n := strings.Count(log.String(), "attempt failed"); n != 5 {
				t.Errorf("%d lines on failed attempts, want 5", n)
			}
		})
	})
}

func TestLog(t *testing.T) {
	t.Parallel()

	t.Run("holds one line for each attempt, with all of it and nothing secret", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			var log logs
			x := newRig(t, dispatch.Options{Logger: log.logger()})
			sub, secret := x.subscribeSecret(t, "a.example", says(503))
			event := x.publish(t, 1)[0]
			time.Sleep(17 * time.Minute)
			x.set("a.example", says(200))
			x.publish(t, 1)
			time.Sleep(20 * time.Minute)
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			if len(lines) != len(x.requests("a.example")) {
				t.Fatalf("%d lines for %d attempts:\n%s", len(lines), len(x.requests("a.example")), log.String())
			}
			for i, line := range lines[:4] {
				contains(t, line, `"level":"INFO"`, `"msg":"attempt failed"`, `"subscription":"`+sub.ID+`"`, `"event":"`+event+`"`,
					`"organization":"`+x.owner.Organization.ID+`"`, `"event_type":"order.paid"`, `"attempt":`+strconv.Itoa(i+1),
					`"status":503`, `"error":"http_status: 503"`, `"duration_ms":`, `"delivery_state":"pending"`, `"due_at":`, `"health":"healthy"`)
			}
			contains(t, lines[4], `"level":"WARN"`, `"delivery_state":"exhausted"`, `"health":"failing"`)
			contains(t, lines[5], `"level":"INFO"`, `"msg":"attempt succeeded"`, `"status":200`, `"health":"healthy"`)
			keepsSecrets(t, log.String())
			for _, text := range []string{secret.Reveal(), "/hook", "said"} {
				if strings.Contains(log.String(), text) {
					t.Errorf("%q is told", text)
				}
			}
		})
	})
}

func TestShutdown(t *testing.T) {
	t.Parallel()

	t.Run("attempts in flight end and are recorded, nothing new begins, and what had begun is taken back", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			x := newRig(t, dispatch.Options{PerSubscription: 64})
			sub := x.subscribe(t, "a.example", after(10*time.Second, says(200)))
			x.publish(t, 300)
			time.Sleep(15 * time.Second)
			begin := time.Now()
			x.stop()
			if took := time.Since(begin); took != 5*time.Second {
				t.Errorf("took %s, want until the attempts had ended", took)
			}
			if n := len(x.requests("a.example")); n != 128 {
				t.Errorf("%d requests, want 128", n)
			}
			if n := x.outcomes(t, sub); n[webhook.Succeeded] != 128 || len(n) != 1 {
				t.Errorf("on record: %v", n)
			}
			if n := x.health(t, sub).PendingDeliveries; n != 172 {
				t.Errorf("%d pending, want 172", n)
			}
		})
	})

	t.Run("what the grace cuts off is interrupted, no failure, and sent again under the next number", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			o := storagetest.Options(t, t.TempDir()+"/keyhook.db")
			store, closeStore := storagetest.OpenWith(t, o)
			x := rigOn(t, store, nil, dispatch.Options{Grace: 3 * time.Second})
			sub := x.subscribe(t, "a.example", hangs)
			x.run(t)
			x.publish(t, 20)
			time.Sleep(time.Second)
			begin := time.Now()
			x.stop()
			if took := time.Since(begin); took != 3*time.Second {
				t.Errorf("took %s, want the grace", took)
			}
			if n := x.outcomes(t, sub); n[webhook.Sending] != 16 || len(n) != 1 {
				t.Errorf("on record: %v", n)
			}
			closeStore()

			store, _ = storagetest.OpenWith(t, o)
			d, err := dispatch.New(store, dispatch.Options{Transport: x.receivers, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			y := &rig{Store: store, Dispatcher: d, receivers: x.receivers, owner: x.owner}
			store.Watch(d)
			x.set("a.example", says(200))
			y.run(t)
			time.Sleep(time.Second)
			if n := y.outcomes(t, sub); n[webhook.Interrupted] != 16 || n[webhook.Succeeded] != 20 || len(n) != 2 {
				t.Errorf("after the restart: %v", n)
			}
			if h := y.health(t, sub); h.ConsecutiveFailures != 0 || h.PendingDeliveries != 0 {
				t.Errorf("after the restart: %+v", h)
			}
			for _, a := range y.attempts(t, sub)[16:] {
				if a.Number > 2 {
					t.Errorf("%+v", a)
				}
			}
		})
	})

	t.Run("a store that fails holds up the end no longer than the grace", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			f := newFaults()
			x := idleRig(t, f, dispatch.Options{})
			x.subscribe(t, "a.example", after(time.Second, says(200)))
			x.run(t)
			x.publish(t, 100)
			time.Sleep(500 * time.Millisecond)
			f.fail(true, "Record", "Release", "Begin")
			time.Sleep(10 * time.Second)
			begin := time.Now()
			x.stop()
			if took := time.Since(begin); took > 19*time.Second {
				t.Errorf("took %s", took)
			}
		})
	})

	t.Run("ends at once where nothing is under way, and runs once only", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			x := newRig(t, dispatch.Options{})
			if !x.LastTick().Equal(x.LastTick()) || x.LastTick().After(time.Now()) {
				t.Error("the last tick is in the future")
			}
			time.Sleep(time.Second)
			begin := time.Now()
			x.stop()
			if took := time.Since(begin); took != 0 {
				t.Errorf("took %s", took)
			}
			if err := x.Dispatcher.Run(t.Context()); err == nil {
				t.Error("it runs twice")
			}
			x.publish(t, 3) // nobody listens; nobody is held up
		})
	})
}

func TestTestAttempts(t *testing.T) {
	t.Parallel()

	t.Run("tell how it went and leave the health alone", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			x := newRig(t, dispatch.Options{})
			sub := x.subscribe(t, "a.example", says(204))
			a, err := x.Test(t.Context(), x.org(), sub.ID)
			if err != nil || a.Outcome != webhook.Succeeded || a.Number != 1 || a.Trigger != webhook.ByTest || a.EventType != webhook.TestType || *a.ResponseStatus != 204 {
				t.Errorf("%v, %+v", err, a)
			}
			x.set("a.example", says(500))
			for range 20 {
				if a, err = x.Test(t.Context(), x.org(), sub.ID); err != nil || a.Outcome != webhook.Failed || a.Error != "http_status: 500" {
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

	t.Run("work on a disabled subscription and are refused to strangers", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			x := newRig(t, dispatch.Options{})
			sub := x.subscribe(t, "a.example", says(200))
			x.activate(t, sub, false)
			if a, err := x.Test(t.Context(), x.org(), sub.ID); err != nil || a.Outcome != webhook.Succeeded {
				t.Errorf("%v, %+v", err, a)
			}
			if _, err := x.Test(t.Context(), x.org()+1, sub.ID); err == nil {
				t.Error("another organization tests it")
			}
			x.plan(t, "free")
			if _, err := x.Test(t.Context(), x.org(), sub.ID); err == nil || len(x.requests("a.example")) != 1 {
				t.Errorf("tested without the plan: %v", err)
			}
		})
	})

	t.Run("keep to the limits, and go before what waits", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			x := newRig(t, dispatch.Options{PerSubscription: 2})
			sub := x.subscribe(t, "a.example", after(time.Second, says(200)))
			x.publish(t, 100)
			time.Sleep(500 * time.Millisecond)
			var done sync.WaitGroup
			begin := time.Now()
			for range 4 {
				done.Go(func() {
					if _, err := x.Test(t.Context(), x.org(), sub.ID); err != nil {
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
			deliveredOnce(t, x, "a.example", 104)
		})
	})

	t.Run("that nobody waits for any more leave no trace if they were not sent, and end if they were", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			x := newRig(t, dispatch.Options{PerSubscription: 1})
			sub := x.subscribe(t, "a.example", after(5*time.Second, says(200)))
			x.publish(t, 1)
			synctest.Wait()
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := x.Test(short, x.org(), sub.ID); err == nil {
				t.Error("a test in time")
			}
			if n := x.outcomes(t, sub); n[webhook.Sending] != 1 || len(n) != 1 {
				t.Errorf("on record: %v", n)
			}
			time.Sleep(10 * time.Second)
			short, cancel = context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if a, err := x.Test(short, x.org(), sub.ID); err != nil || a.Outcome != webhook.Succeeded {
				t.Errorf("%v, %+v", err, a)
			}
			time.Sleep(time.Minute)
			if n := x.outcomes(t, sub); n[webhook.Succeeded] != 2 || len(n) != 1 {
				t.Errorf("on record: %v", n)
			}
		})
	})

	t.Run("are refused when deliveries have stopped", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			x := newRig(t, dispatch.Options{PerSubscription: 1})
			sub := x.subscribe(t, "a.example", after(5*time.Second, says(200)))
			x.publish(t, 1)
			synctest.Wait()
			var waiting atomic.Bool
			var done sync.WaitGroup
			done.Go(func() {
				_, err := x.Test(t.Context(), x.org(), sub.ID)
				waiting.Store(err != nil)
			})
			synctest.Wait()
			x.stop()
			done.Wait()
			if !waiting.Load() {
				t.Error("a test was sent while stopping")
			}
			if _, err := x.Test(t.Context(), x.org(), sub.ID); err == nil {
				t.Error("a test was sent after the stop")
			}
			if n := x.outcomes(t, sub); n[webhook.Succeeded] != 1 || len(n) != 1 {
				t.Errorf("on record: %v", n)
			}
		})
	})
}
