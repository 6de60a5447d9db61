package dispatch_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestNewDeliveries shows which new deliveries begin in the transaction that creates them.
func TestNewDeliveries(t *testing.T) {
	t.Parallel()

	runInVirtualTime(t, "the first attempt of a delivery needs no Begin while nothing else waits", func(t *testing.T) {
		f := newFaults()
		x := stoppedFixture(t, f, dispatch.Options{})
		sub := x.subscribe(t, "a.example", respond(200))
		x.run(t)
		synctest.Wait()
		for range 100 {
			x.publish(t, 1)
			synctest.Wait()
		}
		checkDeliveredOnce(t, x, "a.example", 100)
		if n := f.called("Begin"); n != 0 {
			t.Errorf("%d calls of Begin", n)
		}
		if n := x.outcomes(t, sub); n[webhook.Succeeded] != 100 || len(n) != 1 {
			t.Errorf("on record: %v", n)
		}
	})

	runInVirtualTime(t, "a subscription that hangs begins as many as it has slots, and the rest waits", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{})
		sub := x.subscribe(t, "a.example", hang)
		synctest.Wait()
		for range 3 {
			x.publish(t, 50)
			synctest.Wait()
			if n := x.outcomes(t, sub); n[webhook.Sending] != 16 || len(n) != 1 {
				t.Errorf("on record: %v", n)
			}
		}
	})

	runInVirtualTime(t, "an organization begins no more than its share, however many subscriptions it has", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{Concurrency: 16})
		subs := x.subscribeMany(t, 200, "a.example", hang)
		synctest.Wait()
		x.publish(t, 1)
		synctest.Wait()
		begun := 0
		for _, sub := range subs {
			begun += x.outcomes(t, sub)[webhook.Sending]
		}
		if begun == 0 || begun > 64-64/8 { // of 64 places, one in eight is for others
			t.Errorf("%d attempts have begun", begun)
		}
		other := x.otherOrganization(t, "other")
		other.subscribe(t, "b.example", respond(200))
		synctest.Wait()
		other.publish(t, 1)
		synctest.Wait()
		checkDeliveredOnce(t, x, "b.example", 1)
	})

	runInVirtualTime(t, "an organization begins no more than its share, although a transaction has taken the last places", func(t *testing.T) {
		x := stoppedFixture(t, nil, dispatch.Options{Concurrency: 16})
		w := &slowWhenFull{Watcher: x.Dispatcher}
		x.Queue.Watch(w)
		x.run(t)
		x.subscribeMany(t, 200, "a.example", hang)
		other := x.otherOrganization(t, "other")
		other.subscribe(t, "b.example", respond(200))
		synctest.Wait()
		x.publish(t, 1)
		synctest.Wait() // 14 of 56 are sent, so 14 places are free
		w.isSlow = true
		x.publish(t, 1)
		other.publish(t, 1)
		synctest.Wait()
		checkDeliveredOnce(t, x, "b.example", 1)
	})

	runInVirtualTime(t, "attempts for which there is no memory are released, and sent later", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{PerSubscription: 64})
		x.setReceiver("a.example", respondAfter(time.Second, respond(200)))
		sub, _ := storagetest.Subscription(t, x.Store, x.owner, "https://a.example/hook", "large.event")
		synctest.Wait()
		events := make([]webhook.NewEvent, 60) // more bytes than the inbox takes
		for i := range events {
			events[i] = webhook.NewEvent{Type: "large.event", Data: fmt.Appendf(nil, `{"x":"%0*d"}`, 250_000, i)}
		}
		if _, err := x.Queue.PublishEvents(context.Background(), x.org(), events); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		checkDeliveredOnce(t, x, "a.example", 60)
		for _, a := range x.attempts(t, sub) {
			if a.Number != 1 || a.Outcome != webhook.Succeeded {
				t.Errorf("%+v", a)
			}
		}
	})
}

// TestNewDeliveriesThatWait shows which new deliveries do not begin at once.
func TestNewDeliveriesThatWait(t *testing.T) {
	t.Parallel()

	runInVirtualTime(t, "nothing begins while a result cannot be saved, and all is sent after that", func(t *testing.T) {
		f := newFaults()
		x := stoppedFixture(t, f, dispatch.Options{})
		sub := x.subscribe(t, "a.example", respond(200))
		x.run(t)
		synctest.Wait()
		f.fail(true, "Record")
		x.publish(t, 1)
		synctest.Wait()
		x.publish(t, 5)
		time.Sleep(10 * time.Second)
		if n := x.outcomes(t, sub)[webhook.Sending]; n != 1 {
			t.Errorf("%d attempts have begun, want the one whose result is not saved", n)
		}
		f.fail(false, "Record")
		time.Sleep(10 * time.Second)
		checkDeliveredOnce(t, x, "a.example", 6)
	})

	runInVirtualTime(t, "nothing begins in a subscription that was just switched off, or behind a rate limit", func(t *testing.T) {
		f := newFaults()
		x := stoppedFixture(t, f, dispatch.Options{})
		off, limited := x.subscribe(t, "off.example", hang), x.subscribe(t, "limited.example", respond(200))
		x.run(t)
		x.setRateLimit(t, limited, 10)
		synctest.Wait()
		x.publish(t, 1)
		synctest.Wait()
		x.setActive(t, off, false)
		x.publish(t, 3)
		time.Sleep(time.Minute)
		checkDeliveredOnce(t, x, "limited.example", 4)
		if n := f.called("Begin"); n < 4 {
			t.Errorf("%d calls of Begin, want one for each attempt behind the rate limit", n)
		}
		if n := len(x.requests("off.example")); n != 1 {
			t.Errorf("%d requests to the subscription that is off", n)
		}
	})

	runInVirtualTime(t, "nothing overtakes deliveries that are not yet read from the file", func(t *testing.T) {
		f := newFaults()
		x := stoppedFixture(t, f, dispatch.Options{})
		sub := x.subscribe(t, "a.example", respond(200))
		x.run(t)
		x.setActive(t, sub, false)
		x.publish(t, 3)
		f.fail(true, "PendingJobs")
		x.setActive(t, sub, true)
		synctest.Wait()
		x.publish(t, 1)
		synctest.Wait()
		if n := len(x.requests("a.example")); n != 0 {
			t.Errorf("%d requests before the older deliveries", n)
		}
		f.fail(false, "PendingJobs")
		time.Sleep(time.Minute)
		checkDeliveredOnce(t, x, "a.example", 4)
	})

	runInVirtualTime(t, "a delivery that has begun and waits for a slot is not sent after a discard", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{Concurrency: 1})
		x.subscribe(t, "slow.example", respondAfter(10*time.Second, respond(200)))
		synctest.Wait()
		x.publish(t, 1)
		synctest.Wait()
		x.setReceiver("next.example", respond(200))
		sub, _ := storagetest.Subscription(t, x.Store, x.owner, "https://next.example/hook", "order.shipped")
		synctest.Wait()
		storagetest.Publish(t, x.Store, x.owner, "order.shipped")
		synctest.Wait()
		if n := x.outcomes(t, sub); n[webhook.Sending] != 1 {
			t.Fatalf("on record: %v", n)
		}
		if n, err := x.Queue.Discard(t.Context(), x.actor(), x.org(), sub.ID, 0); err != nil || n != 1 {
			t.Fatalf("%d are dropped, error %v", n, err)
		}
		time.Sleep(time.Minute)
		checkDeliveredOnce(t, x, "slow.example", 1)
		if n := len(x.requests("next.example")); n != 0 {
			t.Errorf("%d requests after the discard", n)
		}
	})

	runInVirtualTime(t, "a delivery that has begun when the dispatcher stops is released, and sent after the next start", func(t *testing.T) {
		o := storagetest.Options(t, t.TempDir()+"/keyhook.db")
		store, closeStore := storagetest.OpenWith(t, o)
		x := fixtureOn(t, store, nil, dispatch.Options{Concurrency: 1, Grace: time.Second})
		sub := x.subscribe(t, "a.example", respondAfter(500*time.Millisecond, respond(200)))
		x.run(t)
		synctest.Wait()
		x.publish(t, 3)
		synctest.Wait()
		x.stop()
		x.publish(t, 1) // nobody takes a place after the stop
		if n := x.outcomes(t, sub); n[webhook.Succeeded] != 1 || len(n) != 1 {
			t.Errorf("on record: %v", n)
		}
		closeStore()
		store, _ = storagetest.OpenWith(t, o)
		x.connect(t, store, nil, dispatch.Options{})
		x.run(t)
		time.Sleep(time.Minute)
		checkDeliveredOnce(t, x, "a.example", 4)
		if n := x.outcomes(t, sub); n[webhook.Succeeded] != 4 || len(n) != 1 {
			t.Errorf("after the restart: %v", n)
		}
	})
}

// slowWhenFull makes a transaction wait for 2 s when it finds no more places. Meanwhile, the dispatcher begins attempts.
type slowWhenFull struct {
	webhook.Watcher
	isSlow bool
}

func (w *slowWhenFull) TakePlace(organization, subscription int64) bool {
	took := w.Watcher.TakePlace(organization, subscription)
	if !took && w.isSlow {
		w.isSlow = false
		time.Sleep(2 * time.Second)
	}
	return took
}
