package dispatch_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestARefusedBeginIsReadAgain changes a subscription while the retry of its only delivery begins.
func TestARefusedBeginIsReadAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := newFaults()
		f.beginTakes = time.Second
		x := stoppedFixture(t, f, dispatch.Options{})
		sub := x.subscribe(t, "old.example", respond(500))
		x.setReceiver("new.example", respond(200))
		x.run(t)
		x.publish(t, 1)
		for f.called("Begin") == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		url := "https://new.example/hook"
		if _, err := x.Subscriptions.UpdateSubscription(t.Context(), x.actor(), x.org(), sub.ID, webhook.SubscriptionChange{URL: &url}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second) // the list of all that is pending comes later
		if n := len(x.requests("new.example")); n != 1 || f.refused() != 1 {
			t.Errorf("%d requests, %d attempts were refused", n, f.refused())
		}
	})
}

func TestSlowDisk(t *testing.T) {
	t.Parallel()
	t.Run("a quick receiver gets more and more events for each commit, however long a commit takes", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			const events, commit = 2000, 100 * time.Millisecond
			f := newFaults()
			f.beginTakes, f.recordTakes = commit, commit
			x := stoppedFixture(t, f, dispatch.Options{})
			x.subscribe(t, "quick.example", respondAfter(time.Millisecond, respond(200)))
			for range events / 500 {
				x.publish(t, 500)
			}
			x.run(t)
			begin := time.Now()
			for x.Pending() > 0 && time.Since(begin) < time.Minute {
				time.Sleep(commit / 10)
			}
			checkDeliveredOnce(t, x, "quick.example", events)
			if took := time.Since(begin); took > 100*commit {
				t.Errorf("it took the time of %d commits", took/commit)
			}
		})
	})

	t.Run("after a burst, new deliveries soon begin with their own transactions again", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			const commit, perCommit = 10 * time.Millisecond, 40
			f := newFaults()
			f.beginTakes, f.recordTakes = 2*commit, 2*commit
			x := stoppedFixture(t, f, dispatch.Options{})
			x.subscribe(t, "quick.example", respondAfter(2*time.Millisecond, respond(200)))
			x.run(t)
			synctest.Wait()
			events := 500
			x.publish(t, events)
			begins := 0
			for i := range 75 {
				if i == 50 {
					begins = f.called("Begin")
				}
				x.publish(t, perCommit)
				events += perCommit
				time.Sleep(commit)
			}
			if n := f.called("Begin") - begins; n != 0 {
				t.Errorf("%d calls of Begin after the burst", n)
			}
			time.Sleep(time.Minute)
			checkDeliveredOnce(t, x, "quick.example", events)
		})
	})

	t.Run("results that are not saved for long stop all sending, and Ready says so", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			const events, limit, slots = 2500, 1024, 16
			f := newFaults()
			x := stoppedFixture(t, f, dispatch.Options{Concurrency: 2 * slots})
			x.subscribe(t, "a.example", respondAfter(time.Millisecond, respond(200)))
			x.subscribe(t, "b.example", respondAfter(time.Millisecond, respond(200)))
			f.slow(5 * time.Minute)
			x.run(t)
			for range events / 500 {
				x.publish(t, 500)
			}
			time.Sleep(2 * time.Minute)
			if n := len(x.requests("a.example")) + len(x.requests("b.example")); n < limit || n > limit+2*slots {
				t.Errorf("%d requests whose results are not saved", n)
			}
			if _, err := x.Dispatcher.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "the database does not take the results") {
				t.Errorf("Ready: %v", err)
			}
			f.slow(0)
			time.Sleep(10 * time.Minute)
			checkDeliveredOnce(t, x, "a.example", events)
			checkDeliveredOnce(t, x, "b.example", events)
			if _, err := x.Dispatcher.Ready(t.Context()); err != nil {
				t.Errorf("Ready in the end: %v", err)
			}
		})
	})
}

// TestAuditEventsEndWhileTheyWaitForASlot turns off audit events while the attempt of one of them waits for a slot.
func TestAuditEventsEndWhileTheyWaitForASlot(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		x := newFixture(t, dispatch.Options{Concurrency: 1})
		x.subscribe(t, "slow.example", hang)
		x.setReceiver("a.example", respond(200))
		sub, _ := storagetest.Subscription(t, x.Store, x.owner, "https://a.example/hook", access.SubscriptionCreated)
		change := func(audit bool) {
			if _, err := x.Subscriptions.UpdateSubscription(t.Context(), x.actor(), x.org(), sub.ID, webhook.SubscriptionChange{AuditEvents: new(audit)}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		change(true)
		x.publish(t, 1) // slow.example takes the slot
		synctest.Wait()
		storagetest.Subscription(t, x.Store, x.owner, "https://c.example/hook", "never")
		synctest.Wait()
		if n := x.outcomes(t, sub)[webhook.Sending]; n != 1 {
			t.Fatalf("%d attempts have begun", n)
		}
		change(false)
		time.Sleep(time.Minute)
		if n := len(x.requests("a.example")); n != 0 {
			t.Errorf("%d audit events were sent after the change", n)
		}
	})
}
