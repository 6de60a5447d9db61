package dispatch_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// setRateLimit sets the rate limit of a subscription; 0 removes it.
func (x *fixture) setRateLimit(tb testing.TB, sub webhook.Subscription, perSecond int64) {
	tb.Helper()
	c := webhook.SubscriptionChange{RateLimitPerSecond: new((*int64)(nil))}
	if perSecond != 0 {
		*c.RateLimitPerSecond = &perSecond
	}
	if _, err := x.Subscriptions.UpdateSubscription(context.Background(), x.actor(), x.org(), sub.ID, c); err != nil {
		tb.Fatal(err)
	}
}

// checkRate fails the test if any second holds more requests than the limit and its burst allow.
func checkRate(t *testing.T, got []received, limit int) {
	t.Helper()
	most := limit + 1 + limit/10
	for first, last := 0, 0; last < len(got); last++ {
		for got[last].at.Sub(got[first].at) >= time.Second {
			first++
		}
		if n := last - first + 1; n > most {
			t.Fatalf("%d requests within a second, up to the one at %s, want %d at most", n, got[last].at.Format("05.000"), most)
		}
	}
}

func TestRateLimit(t *testing.T) {
	t.Parallel()

	for _, limit := range []int{1, 3, 10, 19, 100, 700} {
		runInVirtualTime(t, fmt.Sprintf("a limit of %d a second is kept, and reached", limit), func(t *testing.T) {
			x := newFixture(t, dispatch.Options{PerSubscription: 128})
			sub := x.subscribe(t, "a.example", respondAfter(20*time.Millisecond, respond(200)))
			x.setRateLimit(t, sub, int64(limit))
			begin, n := time.Now(), min(10*limit, 1000)
			x.publish(t, n)
			for range 9 {
				time.Sleep(190 * time.Millisecond)
				synctest.Wait()
				if begun := x.attemptsInProgress(t, sub); begun > x.requestsInProgress("a.example") {
					t.Fatalf("%d attempts are recorded, but not all are sent", begun)
				}
			}
			time.Sleep(time.Minute)
			checkDeliveredOnce(t, x, "a.example", n)
			got := x.requests("a.example")
			checkRate(t, got, limit)
			least := time.Duration(n-1-limit/10) * time.Second / time.Duration(limit)
			if took := got[n-1].at.Sub(begin); took < least || took > least*102/100+time.Millisecond {
				t.Errorf("%d requests took %s, want %s", n, took, least)
			}
			if h := x.health(t, sub); h.PendingDeliveries != 0 || h.ConsecutiveFailures != 0 {
				t.Errorf("in the end: %+v", h)
			}
		})
	}

	runInVirtualTime(t, "requests are evenly spaced when the burst is one", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{})
		x.setRateLimit(t, x.subscribe(t, "a.example", respond(200)), 8)
		begin := time.Now()
		x.publish(t, 100)
		time.Sleep(20 * time.Second)
		for i, q := range x.requests("a.example") {
			if at := q.at.Sub(begin); at != time.Duration(i)*125*time.Millisecond {
				t.Errorf("request %d came at %s", i, at)
			}
		}
	})

	runInVirtualTime(t, "a slow store does not lower the rate", func(t *testing.T) {
		x := stoppedFixture(t, nil, dispatch.Options{})
		d := dispatch.New(slowStore{x.Store}, dispatch.Options{Transport: x.receivers, Logger: slog.New(slog.DiscardHandler)})
		x.Dispatcher = d
		x.Queue.Watch(d)
		x.run(t)
		x.setRateLimit(t, x.subscribe(t, "a.example", respond(200)), 8)
		begin := time.Now()
		x.publish(t, 80)
		time.Sleep(20 * time.Second)
		got := x.requests("a.example")
		checkRate(t, got, 8)
		if took := got[len(got)-1].at.Sub(begin); len(got) != 80 || took > 10100*time.Millisecond {
			t.Errorf("%d requests took %s", len(got), took)
		}
	})
}

func TestRateLimitBacklog(t *testing.T) {
	t.Parallel()

	runInVirtualTime(t, "waiting deliveries have no record and are seldom read", func(t *testing.T) {
		f := newFaults()
		x := stoppedFixture(t, f, dispatch.Options{})
		sub := x.subscribe(t, "a.example", respond(200))
		x.setRateLimit(t, sub, 10)
		x.publish(t, 500) // two may be sent at once
		x.run(t)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := x.outcomes(t, sub); n[webhook.Succeeded] != 202 || len(n) != 1 {
			t.Errorf("after twenty seconds: %v", n)
		}
		if n, reads := f.called("Begin"), f.called("PendingJobs"); n != 201 || reads > 201/3 || f.called("Target") != 1 {
			t.Errorf("Begin %d times, PendingJobs %d times, Target %d times", n, reads, f.called("Target"))
		}
	})

	runInVirtualTime(t, "many limited subscriptions with large backlogs delay nobody else", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{})
		for i := range 40 {
			x.setRateLimit(t, x.subscribe(t, "paced"+strconv.Itoa(i)+".example", respond(200)), 1+int64(i%3))
		}
		large := make([]webhook.NewEvent, 20) // forty times 5 MB are more than the memory limit
		for i := range large {
			large[i] = webhook.NewEvent{Type: "order.paid", Data: fmt.Appendf(nil, `{"x":"%0250000d"}`, i)}
		}
		if _, err := x.Queue.PublishEvents(t.Context(), x.org(), large); err != nil {
			t.Fatal(err)
		}
		x.subscribe(t, "free.example", respondAfter(100*time.Millisecond, respond(200)))
		time.Sleep(2 * time.Second)
		for n := range 5 {
			begin := time.Now()
			if _, err := x.Queue.PublishEvents(t.Context(), x.org(), large[:8]); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			got := x.requests("free.example")
			// Rarely, a delivery finds no memory. Then it is read again when another one has ended, or 100 ms later.
			if len(got) != 8*(n+1) || got[len(got)-2].at.Sub(begin) > 10*time.Millisecond || got[len(got)-1].at.Sub(begin) > 100*time.Millisecond {
				t.Fatalf("%d requests after %d events, the last after %s", len(got), 8*(n+1), got[len(got)-1].at.Sub(begin))
			}
		}
		for i := range 40 {
			checkRate(t, x.requests("paced"+strconv.Itoa(i)+".example"), 1+i%3)
			if n := len(x.requests("paced" + strconv.Itoa(i) + ".example")); n < 7 {
				t.Errorf("lane %d: %d requests in seven seconds", i, n)
			}
		}
	})

	for name, meanwhile := range map[string]func(*testing.T, *fixture, webhook.Subscription){
		"ran dry": func(*testing.T, *fixture, webhook.Subscription) {},
		"was closed": func(t *testing.T, x *fixture, sub webhook.Subscription) {
			x.setActive(t, sub, false)
			synctest.Wait()
			x.setActive(t, sub, true)
		},
	} {
		runInVirtualTime(t, "no second burst for a lane that "+name, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			sub := x.subscribe(t, "a.example", respond(200))
			x.setRateLimit(t, sub, 100)
			var at []time.Duration
			begin := time.Now()
			x.publish(t, 11) // as many as may be sent at once
			time.Sleep(25 * time.Millisecond)
			meanwhile(t, x, sub)
			x.publish(t, 4)
			time.Sleep(time.Second)
			for _, q := range x.requests("a.example")[11:] {
				at = append(at, q.at.Sub(begin))
			}
			// Two tokens have come in the meantime. After that, one comes every ten milliseconds.
			if want := "[25ms 25ms 30ms 40ms]"; fmt.Sprint(at) != want {
				t.Errorf("the others came at %s, want %s", at, want)
			}
		})
	}
}

func TestRateLimitChanges(t *testing.T) {
	t.Parallel()

	runInVirtualTime(t, "the limit can change while deliveries wait", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{})
		sub := x.subscribe(t, "a.example", respond(200))
		x.setRateLimit(t, sub, 1)
		x.publish(t, 500)
		synctest.Wait()
		for _, step := range []struct {
			limit       int64
			during      time.Duration
			least, most int
		}{
			{1, 5500 * time.Millisecond, 5, 5},
			{50, 2 * time.Second, 99, 101}, // raised: nobody waits for the old next time
			{1, 10 * time.Second, 9, 11},   // lowered
			{200, time.Second, 199, 201},
			{3, 2 * time.Second, 6, 7},
			{0, 0, 100, 500}, // removed: all others are sent at once
		} {
			before := len(x.requests("a.example"))
			x.setRateLimit(t, sub, step.limit)
			time.Sleep(step.during)
			synctest.Wait()
			if n := len(x.requests("a.example")) - before; n < step.least || n > step.most {
				t.Errorf("at %d a second, %d requests in %s, want %d to %d", step.limit, n, step.during, step.least, step.most)
			}
			if n := x.attemptsInProgress(t, sub); n != 0 {
				t.Errorf("at %d a second, %d attempts wait on record", step.limit, n)
			}
		}
		checkDeliveredOnce(t, x, "a.example", 500)
	})

	runInVirtualTime(t, "frequent changes of the limit give no extra burst", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{})
		sub := x.subscribe(t, "a.example", respond(200))
		x.setRateLimit(t, sub, 100)
		x.publish(t, 1000)
		for i := range 400 {
			x.setRateLimit(t, sub, 100+int64(i%2))
			time.Sleep(5 * time.Millisecond)
		}
		checkRate(t, x.requests("a.example"), 101)
		if n := len(x.requests("a.example")); n < 200 {
			t.Errorf("%d requests in two seconds", n)
		}
	})

	runInVirtualTime(t, "a lower limit releases attempts begun under the old one", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{PerSubscription: 1})
		sub := x.subscribe(t, "a.example", respondAfter(time.Second, respond(200)))
		x.setRateLimit(t, sub, 10_000)
		x.publish(t, 100)
		x.subscribe(t, "b.example", respond(200))
		time.Sleep(2500 * time.Millisecond)
		x.setRateLimit(t, sub, 1)
		synctest.Wait()
		if n := x.attemptsInProgress(t, sub); n > 2 { // one in progress, and the next one
			t.Errorf("%d attempts on record", n)
		}
		time.Sleep(200 * time.Second)
		checkDeliveredOnce(t, x, "a.example", 100)
		checkRate(t, x.requests("a.example")[3:], 1)
	})
}

func TestRateLimitOfProbesAndTests(t *testing.T) {
	t.Parallel()

	runInVirtualTime(t, "the limit also holds for probes and retries", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{RetryBase: 10 * time.Millisecond, RetryFactor: 1, RetryMax: 10 * time.Millisecond})
		sub := x.subscribe(t, "a.example", respond(500))
		x.setRateLimit(t, sub, 2)
		x.publish(t, 20)
		time.Sleep(5100 * time.Millisecond)
		if h := x.health(t, sub); h.Status != webhook.Failing || h.ConsecutiveFailures != 11 || h.PendingDeliveries < 18 {
			t.Errorf("after five seconds: %+v", h)
		}
		if n := x.outcomes(t, sub); n[webhook.Failed] != 11 || len(n) != 1 {
			t.Errorf("after five seconds: %v", n)
		}
		x.setReceiver("a.example", respond(200))
		time.Sleep(30 * time.Second)
		if h := x.health(t, sub); h.Status != webhook.Healthy || h.PendingDeliveries != 0 {
			t.Errorf("in the end: %+v", h)
		}
		checkRate(t, x.requests("a.example"), 2)
	})

	runInVirtualTime(t, "the limit does not delay probes", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{})
		sub := x.subscribe(t, "a.example", respond(500))
		x.setRateLimit(t, sub, 10)
		x.publish(t, 100)
		time.Sleep(2 * time.Hour)
		if h := x.health(t, sub); h.Status != webhook.Disabled || h.PendingDeliveries != 100 || len(x.requests("a.example")) != 15 {
			t.Errorf("%d requests, %+v", len(x.requests("a.example")), h)
		}
		x.setReceiver("a.example", respond(200))
		x.setActive(t, sub, true)
		time.Sleep(10 * time.Second)
		if h := x.health(t, sub); h.Status != webhook.Healthy || h.PendingDeliveries != 0 {
			t.Errorf("in the end: %+v", h)
		}
		checkRate(t, x.requests("a.example"), 10)
	})

	runInVirtualTime(t, "a test does not wait for the limit, but takes a token if there is one", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{})
		sub := x.subscribe(t, "a.example", respond(200))
		x.setRateLimit(t, sub, 1)
		begin := time.Now()
		for range 3 {
			if a, err := x.Test(t.Context(), x.org(), sub.ID, ""); err != nil || a.Outcome != webhook.Succeeded {
				t.Fatalf("%v, %+v", err, a)
			}
			x.publish(t, 1)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("tests took %s", took)
		}
		time.Sleep(time.Minute)
		var at []time.Duration
		for _, q := range x.requests("a.example") {
			at = append(at, q.at.Sub(begin))
		}
		// The first request takes the only token. Tests and waiting do not create more tokens.
		if len(at) != 6 || at[2] != 0 || at[len(at)-1] != 3*time.Second && at[len(at)-1] != 2*time.Second {
			t.Errorf("requests at %s", at)
		}
	})
}

func TestRateLimitAcrossRestart(t *testing.T) {
	t.Parallel()

	runInVirtualTime(t, "a stop loses no delivery", func(t *testing.T) {
		o := storagetest.Options(t, t.TempDir()+"/keyhook.db")
		store, closeStore := storagetest.OpenWith(t, o)
		x := fixtureOn(t, store, nil, dispatch.Options{})
		sub := x.subscribe(t, "a.example", respond(200))
		x.setRateLimit(t, sub, 5)
		x.run(t)
		x.publish(t, 100)
		time.Sleep(4100 * time.Millisecond)
		begin := time.Now()
		x.stop()
		if took := time.Since(begin); took != 0 {
			t.Errorf("the stop took %s", took)
		}
		if n := x.outcomes(t, sub); n[webhook.Succeeded] != 21 || len(n) != 1 {
			t.Errorf("on record: %v", n)
		}
		closeStore()

		store, _ = storagetest.OpenWith(t, o)
		x.connect(t, store, nil, dispatch.Options{})
		x.run(t)
		time.Sleep(20 * time.Second)
		checkDeliveredOnce(t, x, "a.example", 100)
		checkRate(t, x.requests("a.example")[21:], 5)
		if n := x.outcomes(t, sub); n[webhook.Succeeded] != 100 || len(n) != 1 {
			t.Errorf("on record: %v", n)
		}
	})
}

// attemptsInProgress counts the attempts of a subscription that are recorded without a result.
func (x *fixture) attemptsInProgress(tb testing.TB, sub webhook.Subscription) int {
	tb.Helper()
	outcome := webhook.Sending
	page, err := x.History.AttemptPage(context.Background(), x.org(), sub.ID, webhook.AttemptFilter{Limit: 500, Outcome: &outcome})
	if err != nil {
		tb.Fatal(err)
	}
	return len(page.Attempts)
}

// requestsInProgress counts the requests in progress to the host.
func (r *receivers) requestsInProgress(host string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[host]
}

// slowStore takes 20 ms to begin attempts.
type slowStore struct{ *storage.Store }

func (s slowStore) Begin(ctx context.Context, starts []webhook.Start) ([]int64, error) {
	time.Sleep(20 * time.Millisecond)
	return s.Store.Queue.Begin(ctx, starts)
}

// Events, responses and limits are random. The limit is never exceeded, and no delivery waits without need.
func TestRateLimitAtRandom(t *testing.T) {
	t.Parallel()
	seeds := 5
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		runInVirtualTime(t, fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 2))
			x := newFixture(t, dispatch.Options{Policy: neverFailing, RetryBase: time.Second})
			type paced struct {
				webhook.Subscription
				host  string
				limit int
			}
			var subs []paced
			for i := range 5 {
				s := paced{host: "r" + strconv.Itoa(i) + ".example", limit: []int{1, 1 + r.IntN(20), 1 + r.IntN(200), 1 + r.IntN(2000), 1 + r.IntN(10_000)}[i]}
				takes, fails := time.Duration(r.IntN(20))*time.Millisecond, r.IntN(2) == 0
				var n atomic.Int64
				s.Subscription = x.subscribe(t, s.host, func(q *http.Request) (*http.Response, error) {
					if fails && n.Add(1)%5 == 0 {
						return newResponse(500, ""), nil
					}
					return respondAfter(takes, respond(200))(q)
				})
				x.setRateLimit(t, s.Subscription, int64(s.limit))
				subs = append(subs, s)
			}
			published := 0
			for range 12 {
				n := 1 + r.IntN(30)
				x.publish(t, n)
				published += n
				time.Sleep(time.Duration(r.ExpFloat64() * float64(300*time.Millisecond)))
			}
			time.Sleep(15 * time.Minute)
			for _, s := range subs {
				got := x.requests(s.host)
				checkRate(t, got, s.limit)
				if n := x.health(t, s.Subscription).PendingDeliveries; n != 0 {
					t.Errorf("%s: %d pending", s.host, n)
				}
				seen := map[string]bool{}
				for _, q := range got {
					seen[q.header.Get("Webhook-Id")] = true
				}
				if len(seen) != published {
					t.Errorf("%s has got %d events of %d", s.host, len(seen), published)
				}
			}
		})
	}
}

// TestAPausedLaneThatIsActiveAgain gets what is published later at once, although its lane was dropped in the pause.
func TestAPausedLaneThatIsActiveAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		x := newFixture(t, dispatch.Options{})
		sub := x.subscribe(t, "a.example", respond(200))
		x.setRateLimit(t, sub, 10)
		x.publish(t, 1)
		time.Sleep(time.Second)
		x.setActive(t, sub, false)
		x.publish(t, 1)
		time.Sleep(40 * time.Second) // the list of all pending deliveries does not bring it back
		x.setActive(t, sub, true)
		time.Sleep(3 * time.Second)
		for range 3 {
			x.publish(t, 1)
			time.Sleep(time.Second)
		}
		if got := len(x.requests("a.example")); got != 5 {
			t.Errorf("%d requests, want 5", got)
		}
	})
}

// TestEventsThatKeepComingOvertakeNobody publishes as much as the rate limit allows, while the events of a pause and a retry wait in the table.
func TestEventsThatKeepComingOvertakeNobody(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		x := newFixture(t, dispatch.Options{})
		sub := x.subscribe(t, "a.example", failFirst(1))
		failed := x.publish(t, 1)
		time.Sleep(time.Second)
		x.setRateLimit(t, sub, 10)
		x.setActive(t, sub, false)
		paused := x.publish(t, 200)
		x.setActive(t, sub, true)
		for range 120 {
			x.publish(t, 11)
			time.Sleep(time.Second)
		}
		got := map[string]int{}
		for _, id := range x.eventsAt("a.example") {
			got[id]++
		}
		missing := 0
		for _, id := range paused {
			if got[id] == 0 {
				missing++
			}
		}
		if missing > 0 || got[failed[0]] != 2 {
			t.Errorf("%d of 200 events of the pause did not arrive, and the failed one had %d attempts", missing, got[failed[0]])
		}
		if n := len(x.requests("a.example")); n < 1150 {
			t.Errorf("%d requests in two minutes", n)
		}
	})
}

// TestTheRateOnASlowDisk has a disk that takes a tenth of a second for each transaction that begins attempts.
func TestTheRateOnASlowDisk(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := newFaults()
		f.beginTakes = 100 * time.Millisecond
		x := stoppedFixture(t, f, dispatch.Options{})
		sub := x.subscribe(t, "a.example", respond(200))
		x.setRateLimit(t, sub, 9)
		x.publish(t, 500)
		x.run(t)
		time.Sleep(30 * time.Second)
		if n := len(x.requests("a.example")); n < 8*30 || n > 9*30+10 {
			t.Errorf("%d requests in 30 s, with a limit of 9 a second", n)
		}
	})
}
