package dispatch_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestStoreFailures(t *testing.T) {
	t.Parallel()

	t.Run("nothing is sent while Begin fails, and everything after that", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			f := newFaults()
			var log logBuffer
			x := stoppedFixture(t, f, dispatch.Options{Logger: log.logger()})
			sub := x.subscribe(t, "a.example", respondAfter(time.Second, respond(200)))
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
			checkDeliveredOnce(t, x, "a.example", 100)
			if n := x.outcomes(t, sub); n[webhook.Succeeded] != 100 || len(n) != 1 {
				t.Errorf("on record: %v", n)
			}
			if n := strings.Count(log.String(), `"what":"begin attempts"`); n != 2 {
				t.Errorf("the failure has %d log lines, want one, and one for its end", n)
			}
		})
	})

	t.Run("nothing is sent while results cannot be saved, and earlier results are saved later, once", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			f := newFaults()
			x := stoppedFixture(t, f, dispatch.Options{})
			sub := x.subscribe(t, "a.example", respondAfter(time.Second, respond(200)))
			other := x.subscribe(t, "b.example", respondAfter(time.Second, respond(200)))
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
			checkDeliveredOnce(t, x, "a.example", 100)
			checkDeliveredOnce(t, x, "b.example", 100)
			for _, s := range []webhook.Subscription{sub, other} {
				if n := x.outcomes(t, s); n[webhook.Succeeded] != 100 || len(n) != 1 {
					t.Errorf("%d before, on record: %v", before, n)
				}
			}
		})
	})

	t.Run("a result that can never be saved does not block the others for ever", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			f := newFaults()
			x := stoppedFixture(t, f, dispatch.Options{})
			x.subscribe(t, "a.example", respond(200))
			x.subscribe(t, "b.example", respond(200))
			x.run(t)
			f.failEvent(x.publish(t, 50)[7])
			time.Sleep(3 * time.Minute) // one minute for each of the two, if no other result is recorded
			checkDeliveredOnce(t, x, "a.example", 50)
			x.publish(t, 50)
			time.Sleep(time.Hour)
			checkDeliveredOnce(t, x, "a.example", 100)
			checkDeliveredOnce(t, x, "b.example", 100)
		})
	})
}

// TestResultsOfOneLaneCannotBeSaved shows that such a lane stops, long before its results stop the others.
func TestResultsOfOneLaneCannotBeSaved(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		const events, slots, others = 200, 4, 100
		f := newFaults()
		x := stoppedFixture(t, f, dispatch.Options{Concurrency: 4 * slots, PerSubscription: slots})
		// Each response takes a time, because a save takes none here: otherwise many requests begin before the first save has failed.
		broken := x.subscribe(t, "broken.example", respondAfter(10*time.Millisecond, respond(200)))
		x.setReceiver("other.example", respond(200))
		storagetest.Subscription(t, x.Store, x.owner, "https://other.example/hook", "order.shipped")
		f.failSubscription(broken.ID)
		x.run(t)
		x.publish(t, events)
		for range others { // each result that is saved shows that the fault is in the results that are not
			storagetest.Publish(t, x.Store, x.owner, "order.shipped")
			time.Sleep(time.Second)
		}
		checkDeliveredOnce(t, x, "other.example", others)
		if n := len(x.requests("broken.example")); n < slots || n > 2*slots {
			t.Errorf("%d requests whose results cannot be saved, with %d slots", n, slots)
		}
		f.failSubscription("")
		time.Sleep(time.Minute)
		checkDeliveredOnce(t, x, "broken.example", events)
	})
}

func TestStoreFailuresAreRetried(t *testing.T) {
	t.Parallel()

	t.Run("failed reads are repeated", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			f := newFaults()
			x := stoppedFixture(t, f, dispatch.Options{})
			x.subscribe(t, "a.example", respond(200))
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
			checkDeliveredOnce(t, x, "a.example", 20)
		})
	})

	t.Run("a failed release is repeated", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			f := newFaults()
			x := stoppedFixture(t, f, dispatch.Options{})
			sub := x.subscribe(t, "a.example", respondAfter(time.Second, respond(200)))
			x.run(t)
			x.publish(t, 200)
			time.Sleep(2500 * time.Millisecond)
			f.fail(true, "Release")
			x.setActive(t, sub, false)
			time.Sleep(10 * time.Second)
			if f.called("Release") < 2 {
				t.Fatal("nothing had to be released")
			}
			x.setActive(t, sub, true)
			time.Sleep(time.Minute)
			f.fail(false, "Release")
			time.Sleep(time.Minute)
			checkDeliveredOnce(t, x, "a.example", 200)
			for _, a := range x.attempts(t, sub) {
				if a.Number != 1 || a.Outcome != webhook.Succeeded {
					t.Fatalf("%+v", a)
				}
			}
		})
	})

	t.Run("a panic of the transport is only a failed attempt", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			var log logBuffer
			x := newFixture(t, dispatch.Options{Logger: log.logger()})
			sub, secret := x.subscribeWithSecret(t, "a.example", func(q *http.Request) (*http.Response, error) { panic("bug at " + q.URL.String()) })
			x.subscribe(t, "b.example", respond(200))
			x.publish(t, 1)
			time.Sleep(time.Hour)
			attempts := x.attempts(t, sub)
			if len(attempts) != 5 || attempts[0].Error != "protocol_error: the request could not be sent" {
				t.Errorf("on record: %+v", attempts)
			}
			checkDeliveredOnce(t, x, "b.example", 1)
			checkNoSecrets(t, log.String(), secret)
			contains(t, log.String(), "the code that sends an attempt panicked")
			if n := strings.Count(log.String(), "attempt failed"); n != 5 {
				t.Errorf("%d lines on failed attempts, want 5", n)
			}
		})
	})
}

// TestBegunAttemptsWhileRecordFails shows that an attempt that has begun is not sent either while a result cannot be saved. Of three
// attempts that have begun, only one has a slot at a time.
func TestBegunAttemptsWhileRecordFails(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := newFaults()
		x := stoppedFixture(t, f, dispatch.Options{Concurrency: 1})
		for _, host := range []string{"a.example", "b.example", "c.example"} {
			x.subscribe(t, host, respondAfter(time.Second, respond(200)))
		}
		x.run(t)
		x.publish(t, 1)
		synctest.Wait()
		f.fail(true, "Record")
		time.Sleep(40 * time.Second)
		sent := func() int {
			return len(x.requests("a.example")) + len(x.requests("b.example")) + len(x.requests("c.example"))
		}
		if n := sent(); n > 2 { // the second may take the slot before the first result fails
			t.Errorf("%d requests, want none after the first result that cannot be saved", n)
		}
		f.fail(false, "Record")
		time.Sleep(5 * time.Second)
		for _, host := range []string{"a.example", "b.example", "c.example"} {
			checkDeliveredOnce(t, x, host, 1)
		}
	})
}

func TestBegunAttemptsWhileBeginFails(t *testing.T) {
	t.Parallel()
	// One attempt has begun and waits for the only slot. Another cannot begin, because Begin fails.
	setup := func(t *testing.T) (x *fixture, f *faults, other webhook.Subscription) {
		t.Helper()
		f = newFaults()
		x = stoppedFixture(t, f, dispatch.Options{Concurrency: 1})
		x.subscribe(t, "slow.example", respondAfter(10*time.Second, respond(200)))
		x.run(t)
		x.publish(t, 1)
		synctest.Wait()
		x.setReceiver("next.example", respond(200))
		storagetest.Subscription(t, x.Store, x.owner, "https://next.example/hook", "order.shipped")
		storagetest.Publish(t, x.Store, x.owner, "order.shipped")
		synctest.Wait()
		f.fail(true, "Begin")
		x.setReceiver("other.example", respond(200))
		other, _ = storagetest.Subscription(t, x.Store, x.owner, "https://other.example/hook", "order.refunded")
		x.setRateLimit(t, other, 10) // so that the attempt does not begin with its delivery
		synctest.Wait()
		storagetest.Publish(t, x.Store, x.owner, "order.refunded")
		synctest.Wait()
		if f.called("Begin") == 0 {
			t.Error("nothing had to be begun")
		}
		return x, f, other
	}

	t.Run("are sent when nothing else waits for Begin", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x, _, other := setup(t)
			x.setActive(t, other, false)
			time.Sleep(15 * time.Second)
			checkDeliveredOnce(t, x, "next.example", 1)
			checkDeliveredOnce(t, x, "other.example", 0)
		})
	})

	t.Run("wait until Begin works, because their results could not be saved", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x, f, _ := setup(t)
			time.Sleep(15 * time.Second)
			checkDeliveredOnce(t, x, "slow.example", 1)
			checkDeliveredOnce(t, x, "next.example", 0)
			f.fail(false, "Begin")
			time.Sleep(5 * time.Second)
			checkDeliveredOnce(t, x, "next.example", 1)
			checkDeliveredOnce(t, x, "other.example", 1)
		})
	})
}
