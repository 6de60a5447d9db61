package dispatch_test

import (
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage/storagetest/seeds"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestIsolation(t *testing.T) {
	t.Parallel()

	for hanging, limit := range map[int]time.Duration{
		5: 100 * time.Millisecond, 40: 100 * time.Millisecond,
		120: 400 * time.Millisecond, // which wait for more attempts than an organization may begin
	} {
		t.Run(fmt.Sprintf("%d receivers that hang delay none of 50 that are well", hanging), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				x := newFixture(t, dispatch.Options{})
				for i := range hanging {
					x.subscribe(t, "hangs"+strconv.Itoa(i)+".example", hang)
				}
				for i := range 50 {
					x.subscribe(t, "well"+strconv.Itoa(i)+".example", respondAfter(50*time.Millisecond, respond(200)))
				}
				var published []time.Time
				for range 30 {
					published = append(published, time.Now())
					x.publish(t, 1)
					time.Sleep(500 * time.Millisecond)
				}
				time.Sleep(time.Second)
				for i := range 50 {
					host := "well" + strconv.Itoa(i) + ".example"
					checkDeliveredOnce(t, x, host, 30)
					for n, q := range x.requests(host) {
						if late := q.at.Sub(published[n]); late > limit {
							t.Fatalf("event %d came to %s after %s", n, host, late)
						}
					}
				}
				one, all := x.peak("hangs0.example")
				if one > 16 || all > 256 {
					t.Errorf("%d requests at once to one that hangs, %d in all", one, all)
				}
			})
		})
	}

	t.Run("hanging probes leave slots to healthy subscriptions", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{Concurrency: 16, PerSubscription: 4})
			for i := range 30 {
				x.subscribe(t, "ill"+strconv.Itoa(i)+".example", respond(500))
			}
			x.publish(t, 20)
			time.Sleep(5 * time.Second)
			for i := range 30 {
				x.setReceiver("ill"+strconv.Itoa(i)+".example", hang)
			}
			x.subscribe(t, "well.example", respond(200))
			for range 100 {
				begin := time.Now()
				x.publish(t, 1)
				time.Sleep(time.Second)
				got := x.requests("well.example")
				if len(got) == 0 || got[len(got)-1].at.Before(begin) {
					t.Fatalf("nothing came within a second, %d before", len(got))
				}
			}
		})
	})

	t.Run("a backlog of one subscription delays none of 500 others", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := stoppedFixture(t, nil, dispatch.Options{Concurrency: 64})
			x.subscribe(t, "big.example", respondAfter(20*time.Millisecond, respond(200)))
			for range 2 {
				x.publish(t, 1000)
			}
			for i := range 500 {
				x.subscribe(t, "small"+strconv.Itoa(i)+".example", respondAfter(20*time.Millisecond, respond(200)))
			}
			x.run(t)
			time.Sleep(100 * time.Millisecond)
			begin := time.Now()
			x.publish(t, 1)
			time.Sleep(3 * time.Second)
			// 500 requests of 20 ms over at least 48 slots take 0.2 s.
			for i := range 500 {
				got := x.requests("small" + strconv.Itoa(i) + ".example")
				if len(got) != 1 || got[0].at.Sub(begin) > 300*time.Millisecond {
					t.Fatalf("lane %d: %d requests, the first after %s", i, len(got), got[0].at.Sub(begin))
				}
			}
			time.Sleep(10 * time.Second)
			checkDeliveredOnce(t, x, "big.example", 2001)
		})
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()

	t.Run("concurrent requests stay within both limits, and reach them", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{Concurrency: 32, PerSubscription: 4})
			for i := range 50 {
				x.subscribe(t, "r"+strconv.Itoa(i)+".example", respondAfter(100*time.Millisecond, respond(200)))
			}
			begin := time.Now()
			x.publish(t, 20)
			x.untilIdle(t)
			// 1,000 requests of 0.1 s over 32 slots take 3.1 s.
			if took := time.Since(begin); took > 4500*time.Millisecond {
				t.Errorf("took %s", took)
			}
			for i := range 50 {
				host := "r" + strconv.Itoa(i) + ".example"
				checkDeliveredOnce(t, x, host, 20)
				if one, _ := x.peak(host); one > 4 {
					t.Errorf("%d at once to %s", one, host)
				}
			}
			// An eighth is kept free for other organizations.
			if _, all := x.peak(""); all != 28 {
				t.Errorf("%d at once, want 28", all)
			}
		})
	})

	t.Run("one subscription alone uses all its slots, except the eighth kept for other organizations", func(t *testing.T) {
		for _, limits := range [][2]int{{256, 16}, {64, 64}, {100, 80}, {1, 1}, {8, 16}} {
			want := min(limits[0]-limits[0]/8, limits[1])
			runInVirtualTime(t, fmt.Sprint(limits), func(t *testing.T) {
				x := newFixture(t, dispatch.Options{Concurrency: limits[0], PerSubscription: limits[1]})
				x.subscribe(t, "a.example", respondAfter(time.Second, respond(200)))
				x.publish(t, 300)
				time.Sleep(5500 * time.Millisecond)
				if one, _ := x.peak("a.example"); one != want {
					t.Errorf("%d at once", one)
				}
				if n := len(x.requests("a.example")); n != min(6*want, 300) {
					t.Errorf("%d requests in six seconds", n)
				}
			})
		}
	})

	t.Run("no request is sent without its record", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{Policy: neverFailing})
			var sub webhook.Subscription
			var without atomic.Int64
			sub = x.subscribe(t, "a.example", func(q *http.Request) (*http.Response, error) {
				found := false
				outcome := webhook.Sending
				page, err := x.History.AttemptPage(q.Context(), x.org(), sub.ID, webhook.AttemptFilter{
					Limit: 10, Outcome: &outcome, EventID: q.Header.Get("Webhook-Id"),
				})
				if err != nil {
					return nil, err
				}
				for _, a := range page.Attempts {
					found = found || strconv.Itoa(a.Number) == q.Header.Get("X-Service-Attempt")
				}
				if !found {
					without.Add(1)
				}
				return newResponse(500, ""), nil
			})
			x.publish(t, 100)
			time.Sleep(time.Hour)
			if n := len(x.requests("a.example")); n != 500 || without.Load() != 0 {
				t.Errorf("%d requests, %d without a record", n, without.Load())
			}
		})
	})
}

// runInVirtualTime runs a parallel sub-test in virtual time.
func runInVirtualTime(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inVirtualTime(t, test) })
}

// untilIdle waits until nothing is pending.
func (x *fixture) untilIdle(tb testing.TB) {
	tb.Helper()
	for {
		b, err := x.Store.Survey.Backlog(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		if b.OldestDue == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestIdleCosts(t *testing.T) {
	t.Parallel()

	// calls counts the calls of the store during an hour.
	calls := func(f *faults) map[string]int {
		synctest.Wait()
		f.mu.Lock()
		clear(f.calls)
		f.mu.Unlock()
		time.Sleep(time.Hour)
		f.mu.Lock()
		defer f.mu.Unlock()
		return maps.Clone(f.calls)
	}
	only := func(t *testing.T, calls map[string]int) {
		t.Helper()
		for method, n := range calls {
			if method != "Lanes" || n > 121 {
				t.Errorf("%d calls of %s in an hour", n, method)
			}
		}
	}

	t.Run("without deliveries, the store is hardly called", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			f := newFaults()
			x := stoppedFixture(t, f, dispatch.Options{})
			x.subscribe(t, "a.example", respond(200))
			x.run(t)
			x.publish(t, 100)
			time.Sleep(time.Minute)
			before := time.Now()
			only(t, calls(f))
			if tick := x.LastTick(); tick.Before(before.Add(time.Hour - 2*time.Second)) {
				t.Errorf("the last tick is of %s", tick)
			}
		})
	})

	t.Run("a closed lane costs nothing, however large its backlog", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			f := newFaults()
			x := stoppedFixture(t, f, dispatch.Options{})
			sub := x.subscribe(t, "a.example", hang)
			x.run(t)
			x.publish(t, 1000)
			x.setActive(t, sub, false)
			time.Sleep(time.Minute)
			only(t, calls(f))
		})
	})

	t.Run("a lane whose deliveries are not due costs nothing", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			f := newFaults()
			x := stoppedFixture(t, f, dispatch.Options{Policy: neverFailing, RetryBase: 5 * time.Hour, RetryMax: 5 * time.Hour})
			x.subscribe(t, "a.example", respond(500))
			x.run(t)
			x.publish(t, 300)
			time.Sleep(time.Minute)
			only(t, calls(f))
			time.Sleep(5 * time.Hour)
			if n := len(x.requests("a.example")); n != 600 {
				t.Errorf("%d requests, want 600", n)
			}
		})
	})

	t.Run("a failing lane does nothing between its probes", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			f := newFaults()
			x := stoppedFixture(t, f, dispatch.Options{
				Policy: webhook.Policy{MaxAttempts: 5, FailingAfter: 5, DisabledAfter: 1000}, RetryBase: 10 * time.Minute,
			})
			x.subscribe(t, "a.example", respond(500))
			x.run(t)
			x.publish(t, 1000)
			time.Sleep(time.Minute)
			made := calls(f)
			if made["Begin"] > 8 || made["Record"] > 8 || made["PendingJobs"] > 16 || made["Target"] > 16 {
				t.Errorf("in an hour: %v", made)
			}
		})
	})
}

// Not parallel, because it measures the memory of the process.
func TestMemoryIsBoundedWhateverTheBacklog(t *testing.T) {
	for _, c := range []struct{ subscriptions, events int }{{20, 50}, {200, 4}} {
		if seeds.HasRaceDetector() { // large bodies cost it several times as much; half of them is still three times what may be in memory
			c.events /= 2
		}
		t.Run(fmt.Sprintf("%d subscriptions with %d events each", c.subscriptions, 2*c.events), func(t *testing.T) {
			boundsMemory(t, c.subscriptions, c.events)
		})
	}
}

// boundsMemory publishes twice the given number of events. Every second event is large, so there are 200 MB to send; under the race
// detector, 100 MB.
func boundsMemory(t *testing.T, subscriptions, events int) {
	f := newFaults()
	x := stoppedFixture(t, f, dispatch.Options{Timeout: time.Minute})
	gate := make(chan struct{})
	for i := range subscriptions {
		x.subscribe(t, "slow"+strconv.Itoa(i)+".example", func(*http.Request) (*http.Response, error) {
			<-gate
			return newResponse(200, ""), nil
		})
	}
	large := webhook.NewEvent{Type: "order.paid", Data: []byte(`{"x":"` + strings.Repeat("x", 250_000) + `"}`)}
	small := webhook.NewEvent{Type: "order.paid", Data: []byte(`{}`)}
	publish := func(event webhook.NewEvent) {
		t.Helper()
		if _, err := x.Queue.PublishEvents(t.Context(), x.org(), []webhook.NewEvent{event}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range events { // more than the inbox takes while the dispatcher does not run
		publish([]webhook.NewEvent{small, large}[i/5%2])
	}
	x.run(t)
	for i := range events {
		publish([]webhook.NewEvent{large, small}[i%2])
	}
	// Reads almost stop while no request ends. A slow machine needs some time to get there.
	for deadline := time.Now().Add(20 * time.Second); ; {
		before := f.called("PendingJobs")
		time.Sleep(300 * time.Millisecond)
		n := f.called("PendingJobs") - before
		if n <= subscriptions/4 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("%d reads in 300 ms while nothing ends", n)
			break
		}
	}
	// The limits allow 32 MB, and reads may hold as much again. On a busy machine the last of these end later.
	var m runtime.MemStats
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(300 * time.Millisecond) {
		runtime.GC()
		if runtime.ReadMemStats(&m); m.HeapAlloc <= 80<<20 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("%d MB in use", m.HeapAlloc>>20)
			break
		}
	}
	close(gate)
	x.untilIdle(t)
	for i := range subscriptions {
		checkDeliveredOnce(t, x, "slow"+strconv.Itoa(i)+".example", 2*events)
	}
}
