package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// otherOrganization returns the same fixture with another organization.
func (x *fixture) otherOrganization(tb testing.TB, name string) *fixture {
	tb.Helper()
	of := *x
	of.owner, _ = storagetest.Organization(tb, x.Store, name, "enterprise", access.RoleOwner)
	return &of
}

// subscribeMany makes n subscriptions with one receiver.
func (x *fixture) subscribeMany(tb testing.TB, n int, host string, a handler) []webhook.Subscription {
	tb.Helper()
	x.setReceiver(host, a)
	subs := make([]webhook.Subscription, n)
	var making sync.WaitGroup
	for i := range subs { // concurrently, so that they share transactions
		making.Go(func() {
			subs[i], _ = storagetest.Subscription(tb, x.Store, x.owner, "https://"+host+"/"+strconv.Itoa(i), "order.paid")
		})
	}
	making.Wait()
	return subs
}

var respondSlowly = respondAfter(14*time.Second, respond(204))

// TestOrganizations shows that one organization does not slow down another.
func TestOrganizations(t *testing.T) {
	t.Parallel()
	slowLanes := func(organizations, subscriptions, events int) func(t *testing.T, x *fixture) {
		return func(t *testing.T, x *fixture) {
			for i := range organizations {
				name := "attacker" + strconv.Itoa(i)
				other := x.otherOrganization(t, name)
				other.subscribeMany(t, subscriptions, name+".example", respondSlowly)
				other.publish(t, events)
			}
		}
	}
	for name, attack := range map[string]func(t *testing.T, x *fixture){
		"1,500 slow subscriptions of another":  slowLanes(1, 1500, 1),
		"5,000 slow subscriptions of another":  slowLanes(1, 5000, 1),
		"three others with slow subscriptions": slowLanes(3, 100, 3),
		"test deliveries of another": func(t *testing.T, x *fixture) {
			other := x.otherOrganization(t, "attacker")
			ctx, cancel := context.WithCancel(t.Context())
			var testing sync.WaitGroup
			t.Cleanup(func() { cancel(); testing.Wait() })
			for _, sub := range other.subscribeMany(t, 300, "attacker.example", respondSlowly) {
				testing.Go(func() {
					for ctx.Err() == nil {
						_, _ = other.Test(ctx, other.org(), sub.ID, "")
					}
				})
			}
		},
		"large events of another": func(t *testing.T, x *fixture) {
			other := x.otherOrganization(t, "attacker")
			other.setReceiver("attacker.example", respondSlowly)
			for i := range 140 { // each to its own subscription, more than fits into memory
				eventType := "large.of" + strconv.Itoa(i%70)
				if i < 70 {
					storagetest.Subscription(t, other.Store, other.owner, "https://attacker.example/", eventType)
				}
				other.publishOf(t, eventType, 250_000)
			}
		},
	} {
		runInVirtualTime(t, "beside "+name+", deliveries take no more than twice as long as alone", func(t *testing.T) {
			x := newFixture(t, dispatch.Options{
				RetryBase: time.Second, RetryMax: time.Second,
				Policy: webhook.Policy{MaxAttempts: 200, FailingAfter: 5, DisabledAfter: 100_000},
			})
			x.subscribeMany(t, 10, "victim.example", respondAfter(victimTakes, respond(204)))
			size := 0
			if strings.HasPrefix(name, "large") {
				size = 250_000
			}
			alone := x.slowestDelivery(t, 5*time.Second, size)
			attack(t, x)
			beside := x.slowestDelivery(t, 30*time.Second, size)
			if beside > 2*alone {
				t.Errorf("%s beside the others, %s alone", beside, alone)
			}
			if _, err := x.Dispatcher.Ready(t.Context()); err != nil {
				t.Error(err)
			}
			if one, all := x.peak("attacker0.example"); all > 256 || one != 0 && one < 70 {
				t.Errorf("%d at once to the other, %d in all", one, all)
			}
		})
	}
}

// victimTakes is how long the victim's receiver takes.
const victimTakes = 50 * time.Millisecond

// slowestDelivery publishes an event of the given size every half second. It returns the 99th percentile of the
// delivery times.
func (x *fixture) slowestDelivery(t *testing.T, during time.Duration, size int) time.Duration {
	t.Helper()
	published := map[string]time.Time{}
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		published[x.publishOf(t, "order.paid", size)] = time.Now()
	}
	time.Sleep(time.Second)
	var all []time.Duration
	for _, q := range x.requests("victim.example") {
		if at, ok := published[q.header.Get("Webhook-Id")]; ok {
			all = append(all, q.at.Add(victimTakes).Sub(at))
		}
	}
	if len(all) != 10*len(published) {
		t.Errorf("%d of %d deliveries arrived", len(all), 10*len(published))
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

// publishOf publishes an event with that many bytes of data and returns its id.
func (x *fixture) publishOf(tb testing.TB, eventType string, size int) string {
	tb.Helper()
	e := webhook.NewEvent{Type: eventType, Data: fmt.Appendf(nil, `{"x":"%0*d"}`, size, 0)}
	published, err := x.Queue.PublishEvents(context.Background(), x.org(), []webhook.NewEvent{e})
	if err != nil {
		tb.Fatal(err)
	}
	return published[0].ID
}

// A failing subscription gets its probes in time, however many subscriptions of another organization hang.
func TestProbesOfOrganizations(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		x := newFixture(t, dispatch.Options{
			RetryBase: time.Second, RetryMax: time.Second, Policy: webhook.Policy{MaxAttempts: 200, FailingAfter: 5, DisabledAfter: 100_000},
		})
		x.subscribe(t, "victim.example", respond(500))
		x.publish(t, 6)
		other := x.otherOrganization(t, "attacker")
		other.subscribeMany(t, 200, "attacker.example", respond(500))
		other.publish(t, 6)
		time.Sleep(100 * time.Millisecond) // all are failing now
		other.setReceiver("attacker.example", hang)
		for range 20 {
			before := len(x.requests("victim.example"))
			time.Sleep(1500 * time.Millisecond)
			if n := len(x.requests("victim.example")) - before; n == 0 {
				t.Fatal("no probe in 1.5 s, though one is due every second")
			}
		}
		if n := len(x.requests("attacker.example")); n < 1000+112 {
			t.Errorf("only %d requests to the other", n)
		}
	})
}

// The probes of an organization leave places for the first attempts of another, also with few slots.
func TestProbesTakeNoPlacesOfOthers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		x := newFixture(t, dispatch.Options{
			Concurrency: 15, RetryBase: time.Minute, RetryMax: time.Minute, Policy: policy(200, 2, 100_000), Random: func() float64 { return 0.5 },
		})
		x.subscribeMany(t, 200, "a.example", hang)
		x.setReceiver("failing.example", respond(500))
		for range 10 {
			storagetest.Subscription(t, x.Store, x.owner, "https://failing.example/", "failing")
		}
		other := x.otherOrganization(t, "other")
		other.subscribe(t, "b.example", respond(200))
		for range 2 {
			synctest.Wait()
			x.publishOf(t, "failing", 0)
		}
		time.Sleep(58 * time.Second) // the probes come after two more
		x.publish(t, 1)
		time.Sleep(4 * time.Second)
		other.publish(t, 1)
		synctest.Wait()
		checkRequests(t, x, "b.example", 1)
	})
}

// An organization whose own receiver is slow goes on soon after another one has finished, and does not wait for that receiver.
func TestWhatOthersFreeIsUsed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ events, size, ofOther int }{"slots": {16, 0, 300}, "memory": {8, 250_000, 60}} {
		runInVirtualTime(t, name, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			other := x.otherOrganization(t, "other")
			x.setReceiver("slow.example", respondSlowly)
			x.setReceiver("other.example", respondAfter(time.Second, respond(204)))
			storagetest.Subscription(t, x.Store, x.owner, "https://slow.example/", "slow")
			for i := range tt.ofOther {
				storagetest.Subscription(t, x.Store, other.owner, "https://other.example/", fmt.Sprint("other.", i))
			}
			synctest.Wait()
			for i := range tt.ofOther {
				other.publishOf(t, fmt.Sprint("other.", i), tt.size)
			}
			synctest.Wait()
			for range tt.events {
				x.publishOf(t, "slow", tt.size)
			}
			synctest.Wait()
			if n := len(x.requests("slow.example")); n == 0 || n == tt.events {
				t.Fatalf("%d requests beside those of the other", n)
			}
			time.Sleep(5 * time.Second)
			checkRequests(t, x, "other.example", tt.ofOther)
			checkRequests(t, x, "slow.example", tt.events)
		})
	}
}

func TestOneOrganizationAloneUsesNearlyAllSlots(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		x := newFixture(t, dispatch.Options{})
		x.subscribeMany(t, 400, "a.example", respondSlowly)
		x.publish(t, 2)
		time.Sleep(3 * time.Minute)
		if one, _ := x.peak("a.example"); one != 224 {
			t.Errorf("%d at once, want 224 of 256", one)
		}
		// 800 deliveries of 14 s over 224 slots take 56 s.
		checkRequests(t, x, "a.example", 800)
	})
}

// checkRequests fails the test unless the host got n requests.
func checkRequests(t *testing.T, x *fixture, host string, n int) {
	t.Helper()
	if got := len(x.requests(host)); got != n {
		t.Errorf("%s has got %d requests, want %d", host, got, n)
	}
}
