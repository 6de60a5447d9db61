package dispatch_test

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage/webhook"
)

// eventsAt returns the events that a host got, in the order of their requests.
func (x *fixture) eventsAt(host string) (events []string) {
	for _, q := range x.requests(host) {
		events = append(events, q.header.Get("X-Service-Event-Id"))
	}
	return events
}

// checkOrderAt checks which events a host got, in their order, one at a time.
func (x *fixture) checkOrderAt(t *testing.T, host string, want []string) {
	t.Helper()
	got, same := x.eventsAt(host), 0
	for same < min(len(got), len(want)) && got[same] == want[same] {
		same++
	}
	if same < max(len(got), len(want)) {
		t.Errorf("%s got %d events, want %d; from number %d: %q, want %q", host, len(got), len(want), same,
			got[same:min(same+5, len(got))], want[same:min(same+5, len(want))])
	}
	if n, _ := x.peak(host); n > 1 {
		t.Errorf("%d requests at once", n)
	}
}

// subscribeInOrder makes an ordered subscription and its receiver.
func (x *fixture) subscribeInOrder(tb testing.TB, host string, a handler) webhook.Subscription {
	tb.Helper()
	sub := x.subscribe(tb, host, a)
	x.setOrdered(tb, sub, true)
	return sub
}

// failFirst fails the first n requests.
func failFirst(n int) handler {
	return func(*http.Request) (*http.Response, error) {
		if n--; n >= 0 {
			return newResponse(500, ""), nil
		}
		return newResponse(200, ""), nil
	}
}

// TestEventsKeepComing publishes all the time while the first event of an ordered subscription waits for its next attempt. Those that wait in
// the table are sent too.
func TestEventsKeepComing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := newFaults()
		x := stoppedFixture(t, f, dispatch.Options{})
		x.run(t)
		sub := x.subscribeInOrder(t, "a.example", respondAfter(2*time.Millisecond, failFirst(1)))
		want := x.publish(t, 1)
		want = append(want, want...)
		for range 300 { // 100 events a second
			want = append(want, x.publish(t, 10)...)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond)
		x.checkOrderAt(t, "a.example", want)
		if n := f.refused(); n != 0 || x.health(t, sub).PendingDeliveries != 0 {
			t.Errorf("%d attempts were refused, %d deliveries wait", n, x.health(t, sub).PendingDeliveries)
		}
	})
}

func TestOrderedSubscription(t *testing.T) {
	t.Parallel()

	runInVirtualTime(t, "a backlog is sent in order, without a refused attempt and with few reads", func(t *testing.T) {
		f := newFaults()
		x := stoppedFixture(t, f, dispatch.Options{})
		x.run(t)
		x.subscribeInOrder(t, "a.example", respondAfter(10*time.Millisecond, respond(200)))
		other := x.subscribe(t, "b.example", respondAfter(time.Second, respond(200)))
		want := x.publish(t, 1000)
		time.Sleep(5 * time.Second)
		for range 100 { // while the others wait
			want = append(want, x.publish(t, 1)...)
			time.Sleep(7 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		x.checkOrderAt(t, "a.example", want)
		if n, reads := f.refused(), f.called("OrderedJobs"); n != 0 || reads > 150 {
			t.Errorf("%d attempts were refused, %d reads", n, reads)
		}
		time.Sleep(time.Hour)
		if n, _ := x.peak("b.example"); n < 16 || x.health(t, other).PendingDeliveries != 0 {
			t.Errorf("the other subscription got %d requests at once", n)
		}
	})

	runInVirtualTime(t, "a retry delays all later events, and costs nothing while it waits", func(t *testing.T) {
		f := newFaults()
		x := stoppedFixture(t, f, dispatch.Options{})
		x.run(t)
		x.subscribeInOrder(t, "a.example", failFirst(2))
		want := x.publish(t, 5)
		time.Sleep(time.Second)
		before := f.called("OrderedJobs") + f.called("Begin")
		for range 500 {
			want = append(want, x.publish(t, 1)...)
			time.Sleep(10 * time.Millisecond)
		}
		if n := f.called("OrderedJobs") + f.called("Begin") - before; n > 2 || len(x.requests("a.example")) != 1 {
			t.Errorf("%d reads and writes, and %d requests", n, len(x.requests("a.example")))
		}
		time.Sleep(2 * time.Minute)
		x.checkOrderAt(t, "a.example", append([]string{want[0], want[0]}, want...))
		if n := f.refused(); n != 0 {
			t.Errorf("%d attempts were refused", n)
		}
	})

	runInVirtualTime(t, "an exhausted event lets the next one go, which is the probe of a failing subscription", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{})
		sub := x.subscribeInOrder(t, "a.example", failFirst(7))
		events := x.publish(t, 20)
		time.Sleep(time.Hour)
		want := slices.Concat(slices.Repeat(events[:1], 5), slices.Repeat(events[1:2], 2), events[1:])
		x.checkOrderAt(t, "a.example", want)
		if x.health(t, sub).Status != webhook.Healthy {
			t.Error("it is not healthy")
		}
		if r, err := x.Queue.Recover(t.Context(), x.actor(), x.org(), sub.ID, webhook.RecoveryRequest{Since: 1}); err != nil || r.Deliveries != 1 {
			t.Fatalf("%+v, error %v", r, err)
		}
		time.Sleep(time.Minute)
		x.checkOrderAt(t, "a.example", append(want, events[0]))
	})

	runInVirtualTime(t, "the first of the order is the probe, also with a redelivery beside it", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{})
		sub := x.subscribeInOrder(t, "a.example", failFirst(6))
		events := x.publish(t, 3)
		for len(x.requests("a.example")) < 6 { // the last is the first probe
			time.Sleep(time.Second)
		}
		if err := x.Queue.HoldQueue(t.Context(), x.actor(), ""); err != nil {
			t.Fatal(err)
		}
		if err := x.Queue.Redeliver(t.Context(), x.actor(), x.org(), sub.ID, x.attempts(t, sub)[0].ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // all are due
		if _, err := x.Queue.ReleaseQueue(t.Context(), x.actor()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		x.checkOrderAt(t, "a.example", slices.Concat(slices.Repeat(events[:1], 5), slices.Repeat(events[1:2], 2), events[:1], events[2:]))
	})

	runInVirtualTime(t, "a new event is sent at once if nothing is in front, also after each other", func(t *testing.T) {
		f := newFaults()
		x := stoppedFixture(t, f, dispatch.Options{})
		x.run(t)
		x.subscribeInOrder(t, "a.example", respond(200))
		want := x.publish(t, 1) // the lane does not know the subscription yet
		time.Sleep(time.Second)
		before := f.called("Begin")
		for range 50 {
			want = append(want, x.publish(t, 1)...)
			time.Sleep(20 * time.Millisecond)
		}
		x.checkOrderAt(t, "a.example", want)
		if n := f.called("Begin") - before; n != 0 {
			t.Errorf("%d attempts began in a transaction of their own", n)
		}
	})
}

func TestChangesOfOrder(t *testing.T) {
	t.Parallel()

	runInVirtualTime(t, "a subscription becomes ordered while requests are in progress", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{PerSubscription: 4})
		sub := x.subscribe(t, "a.example", respondAfter(3*time.Second, respond(200)))
		events := x.publish(t, 30)
		time.Sleep(time.Second)
		x.setOrdered(t, sub, true)
		before := len(x.eventsAt("a.example"))
		time.Sleep(10 * time.Minute)
		got := x.eventsAt("a.example")
		rest := slices.DeleteFunc(events, func(id string) bool { return slices.Contains(got[:before], id) })
		if before != 4 || !slices.Equal(got[before:], rest) {
			t.Errorf("%d before, then\n%v, want\n%v", before, got[before:], rest)
		}
		x.setOrdered(t, sub, false)
		x.publish(t, 30)
		time.Sleep(13 * time.Second)
		if n := len(x.eventsAt("a.example")); n < 30+4*4 {
			t.Errorf("%d requests, so they are still sent one at a time", n)
		}
	})

	runInVirtualTime(t, "what waits for a disabled subscription is sent in order, with what is recovered and published then", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{Policy: webhook.Policy{MaxAttempts: 2, FailingAfter: 3, DisabledAfter: 6}})
		sub := x.subscribeInOrder(t, "a.example", failFirst(6))
		events := x.publish(t, 10)
		time.Sleep(2 * time.Hour)
		events = append(events, x.publish(t, 10)...)
		if h := x.health(t, sub); h.Status != webhook.Disabled || h.PendingDeliveries != 17 {
			t.Fatalf("%+v", h)
		}
		before := len(x.eventsAt("a.example"))
		if r, err := x.Queue.Recover(t.Context(), x.actor(), x.org(), sub.ID, webhook.RecoveryRequest{}); err != nil || r.Deliveries != 3 {
			t.Fatalf("%+v, error %v", r, err)
		}
		events = append(events, x.publish(t, 10)...)
		time.Sleep(time.Minute)
		if got := x.eventsAt("a.example")[before:]; !slices.Equal(got, events) {
			t.Errorf("after the recovery\n%v, want\n%v", got, events)
		}
	})

	runInVirtualTime(t, "a redelivery is sent while the order waits for a retry", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{})
		sub := x.subscribeInOrder(t, "a.example", respond(200))
		first := x.publish(t, 1)
		time.Sleep(time.Second)
		x.setReceiver("a.example", failFirst(1))
		events := x.publish(t, 3)
		time.Sleep(time.Second)
		if err := x.Queue.Redeliver(t.Context(), x.actor(), x.org(), sub.ID, x.attempts(t, sub)[0].ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		x.checkOrderAt(t, "a.example", []string{first[0], events[0], first[0]})
		time.Sleep(time.Minute)
		x.checkOrderAt(t, "a.example", slices.Concat(first, events[:1], first, events))
	})

	runInVirtualTime(t, "a redelivery that fails does not stop the order", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{})
		var refused atomic.Pointer[string]
		sub := x.subscribeInOrder(t, "a.example", func(q *http.Request) (*http.Response, error) {
			if event := refused.Load(); event != nil && q.Header.Get("X-Service-Event-Id") == *event {
				return newResponse(500, ""), nil
			}
			return newResponse(200, ""), nil
		})
		sent := x.publish(t, 1)
		time.Sleep(time.Second)
		refused.Store(&sent[0])
		if err := x.Queue.Redeliver(t.Context(), x.actor(), x.org(), sub.ID, x.attempts(t, sub)[0].ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // long before its retry
		events := x.publish(t, 3)
		time.Sleep(time.Second)
		x.checkOrderAt(t, "a.example", slices.Concat(sent, sent, events))
	})

	runInVirtualTime(t, "discarded deliveries leave the order, and a pace keeps it", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{})
		sub := x.subscribeInOrder(t, "a.example", failFirst(1))
		x.setRateLimit(t, sub, 5)
		gone := x.publish(t, 40)
		time.Sleep(time.Second)
		if n, err := x.Queue.Discard(t.Context(), x.actor(), x.org(), sub.ID, 0); err != nil || n != 40 {
			t.Fatalf("%d are discarded, error %v", n, err)
		}
		events := x.publish(t, 40)
		time.Sleep(5 * time.Second)
		got := len(x.eventsAt("a.example"))
		if got < 20 || got > 30 {
			t.Errorf("%d requests in 5 seconds, at 5 a second", got)
		}
		time.Sleep(5 * time.Second)
		x.checkOrderAt(t, "a.example", append(gone[:1], events...))
	})
}

func TestOrderBesideOtherWork(t *testing.T) {
	t.Parallel()

	runInVirtualTime(t, "a replayed event goes before a backlog in memory", func(t *testing.T) {
		f := newFaults()
		x := stoppedFixture(t, f, dispatch.Options{})
		x.run(t)
		sub := x.subscribeInOrder(t, "a.example", failFirst(5))
		first := x.publish(t, 1)
		time.Sleep(time.Hour)
		x.setActive(t, sub, true)
		x.setReceiver("a.example", respondAfter(time.Second, respond(200)))
		events := x.publish(t, 50)
		time.Sleep(9500 * time.Millisecond)
		if n, err := x.Queue.Replay(t.Context(), x.actor(), x.org(), sub.ID, webhook.Replay{Since: 1, Only: webhook.OnlyFailed}); err != nil || n.Exhausted != 1 {
			t.Fatalf("%+v, error %v", n, err)
		}
		time.Sleep(time.Minute)
		x.checkOrderAt(t, "a.example", slices.Concat(slices.Repeat(first, 5), events[:10], first, events[10:]))
		if n := f.refused(); n != 0 {
			t.Errorf("%d attempts were refused", n)
		}
	})

	runInVirtualTime(t, "attempts that have begun and wait for a slot are released", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{Concurrency: 1, PerSubscription: 1})
		x.subscribe(t, "hangs.example", hang)
		x.publish(t, 1)
		time.Sleep(time.Second)
		sub := x.subscribe(t, "a.example", respond(200))
		events := x.publish(t, 10)
		time.Sleep(time.Second)
		if x.attemptsInProgress(t, sub) == 0 {
			t.Fatal("none has begun")
		}
		x.setOrdered(t, sub, true)
		time.Sleep(100 * time.Millisecond)
		if n := x.attemptsInProgress(t, sub); n > 1 {
			t.Errorf("%d are still in progress", n)
		}
		time.Sleep(time.Hour)
		x.checkOrderAt(t, "a.example", events)
	})

	runInVirtualTime(t, "a test waits for the request in progress", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{})
		sub := x.subscribeInOrder(t, "a.example", respondAfter(3*time.Second, respond(200)))
		x.publish(t, 10)
		time.Sleep(time.Second)
		if a, err := x.Test(t.Context(), x.org(), sub.ID, ""); err != nil || a.Outcome != webhook.Succeeded {
			t.Errorf("%+v, error %v", a, err)
		}
		time.Sleep(time.Minute)
		if n, _ := x.peak("a.example"); n != 1 || len(x.requests("a.example")) != 11 {
			t.Errorf("%d at once, %d in all", n, len(x.requests("a.example")))
		}
	})

	runInVirtualTime(t, "an event that is published during a read is not forgotten", func(t *testing.T) {
		f := newFaults()
		f.readTakes = time.Second
		x := stoppedFixture(t, f, dispatch.Options{})
		x.run(t)
		x.subscribeInOrder(t, "a.example", failFirst(1))
		events := x.publish(t, 1)
		time.Sleep(10 * time.Second)
		for before := f.called("OrderedJobs"); f.called("OrderedJobs") == before; { // until the retry is read
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond)
		events = append(events, x.publish(t, 1)...)
		time.Sleep(3 * time.Second)
		x.checkOrderAt(t, "a.example", append(events[:1:1], events...))
	})
}
