package dispatch_test

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// neverFailing keeps subscriptions healthy after any number of failures.
var neverFailing = webhook.Policy{MaxAttempts: 5, FailingAfter: 1_000_000, DisabledAfter: 2_000_000}

func TestRetries(t *testing.T) {
	t.Parallel()

	t.Run("a receiver that always fails gets five attempts with growing delays, each signed anew", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{Policy: neverFailing})
			sub, secret := x.subscribeWithSecret(t, "a.example", respond(500))
			x.publish(t, 1)
			time.Sleep(3 * time.Hour)
			synctest.Wait()

			got := x.requests("a.example")
			if len(got) != 5 {
				t.Fatalf("%d requests, want 5", len(got))
			}
			want := []time.Duration{15 * time.Second, time.Minute, 4 * time.Minute, 10 * time.Minute}
			signatures := map[string]bool{}
			for i, q := range got {
				if err := signature.Verify(secret.Reveal(), q.header, []byte(q.body), q.at, time.Second); err != nil {
					t.Errorf("attempt %d: %v", i+1, err)
				}
				if err := signature.VerifyStandard(secret.Reveal(), q.header, []byte(q.body), q.at, time.Second); err != nil {
					t.Errorf("attempt %d: %v", i+1, err)
				}
				signatures[q.header.Get("X-Service-Signature")] = true
				if n := q.header.Get("X-Service-Attempt"); n != strconv.Itoa(i+1) {
					t.Errorf("attempt %d says it is %s", i+1, n)
				}
				if q.body != got[0].body {
					t.Errorf("attempt %d has another body", i+1)
				}
				if i == 0 {
					continue
				}
				wait := q.at.Sub(got[i-1].at)
				if low, high := want[i-1]*8/10, min(want[i-1]*12/10, 10*time.Minute); wait < low || wait > high+10*time.Millisecond {
					t.Errorf("attempt %d came %s after the one before, want %s to %s", i+1, wait, low, high)
				}
			}
			if len(signatures) != 5 {
				t.Errorf("%d different signatures, want 5", len(signatures))
			}
			attempts := x.attempts(t, sub)
			if len(attempts) != 5 {
				t.Fatalf("%d attempts on record, want 5", len(attempts))
			}
			for i, a := range attempts {
				if a.Number != i+1 || a.Outcome != webhook.Failed || a.Error != "http_status: 500" || *a.ResponseStatus != 500 || a.ResponseBody != "said 500" {
					t.Errorf("attempt %d on record: %+v", i+1, a)
				}
				if trigger := map[bool]webhook.Trigger{true: webhook.ByEvent, false: webhook.ByRetry}[i == 0]; a.Trigger != trigger {
					t.Errorf("attempt %d was made by %s", i+1, a.Trigger)
				}
				if a.NextAttemptAt != nil {
					t.Errorf("attempt %d announces another one, and all are over", i+1)
				}
			}
			if n := x.health(t, sub).PendingDeliveries; n != 0 {
				t.Errorf("%d deliveries pending, want 0", n)
			}
		})
	})

	t.Run("a receiver that recovers gets no further attempts", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			var n atomic.Int64
			sub := x.subscribe(t, "a.example", func(q *http.Request) (*http.Response, error) {
				if n.Add(1) < 3 {
					return newResponse(503, ""), nil
				}
				return newResponse(200, ""), nil
			})
			x.publish(t, 1)
			time.Sleep(time.Hour)
			if got := len(x.requests("a.example")); got != 3 {
				t.Errorf("%d requests, want 3", got)
			}
			if h := x.health(t, sub); h.ConsecutiveFailures != 0 || h.LastError != "" || h.PendingDeliveries != 0 {
				t.Errorf("after success: %+v", h)
			}
		})
	})
}

func TestRetryTimes(t *testing.T) {
	t.Parallel()

	t.Run("every retry comes at its due time, also after a restart", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			o := storagetest.Options(t, t.TempDir()+"/keyhook.db")
			o.Policy = neverFailing
			store, closeStore := storagetest.OpenWith(t, o)
			x := fixtureOn(t, store, nil, dispatch.Options{Policy: neverFailing})
			sub := x.subscribe(t, "a.example", respond(500))
			x.run(t)
			for range 8 {
				x.publish(t, 1)
				time.Sleep(time.Second)
			}
			announced := map[string]int64{}
			for _, a := range x.attempts(t, sub) {
				announced[a.EventID] = *a.NextAttemptAt
			}
			x.stop()
			closeStore()
			time.Sleep(3 * time.Second)

			store, _ = storagetest.OpenWith(t, o)
			x.connect(t, store, nil, dispatch.Options{Policy: neverFailing})
			x.run(t)
			time.Sleep(20 * time.Second)
			got := x.requests("a.example")
			if len(got) != 16 {
				t.Fatalf("%d requests, want 16", len(got))
			}
			restarted := got[8].at.UnixMilli()
			for _, q := range got[8:] {
				due := max(announced[q.header.Get("Webhook-Id")], restarted)
				if late := q.at.UnixMilli() - due; late < 0 || late > 10 {
					t.Errorf("a retry came %d ms late", late)
				}
			}
		})
	})

	t.Run("a retry that is due before the others of its subscription does not wait for another subscription", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{Policy: neverFailing})
			x.subscribe(t, "a.example", respond(503, "Retry-After", "300"))
			x.subscribe(t, "b.example", respond(503, "Retry-After", "600"))
			x.publish(t, 1)
			time.Sleep(time.Second)
			x.setReceiver("a.example", respond(200))
			x.setReceiver("b.example", respond(500))
			x.publish(t, 1)
			time.Sleep(19 * time.Second)
			got := x.requests("b.example")
			if len(got) != 3 {
				t.Fatalf("%d requests, want 3", len(got))
			}
			if wait := got[2].at.Sub(got[1].at); wait > 18*time.Second+10*time.Millisecond {
				t.Errorf("the retry came after %s", wait)
			}
		})
	})

	t.Run("retries and new deliveries do not wait for each other", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{Policy: neverFailing})
			var n atomic.Int64
			x.subscribe(t, "a.example", func(*http.Request) (*http.Response, error) {
				if n.Add(1) == 1 {
					return newResponse(500, ""), nil
				}
				return newResponse(200, ""), nil
			})
			first := x.publish(t, 1)[0]
			time.Sleep(5 * time.Second)
			x.publish(t, 3)
			synctest.Wait()
			if got := len(x.requests("a.example")); got != 4 {
				t.Errorf("%d requests at once, want 4", got)
			}
			time.Sleep(20 * time.Second)
			got := x.requests("a.example")
			if len(got) != 5 || got[4].header.Get("Webhook-Id") != first {
				t.Errorf("%d requests, want 5, the last of the first event", len(got))
			}
		})
	})
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when a bubble begins
	for value, want := range map[string][2]time.Duration{
		"":                        {12 * time.Second, 18 * time.Second},
		"1":                       {12 * time.Second, 18 * time.Second}, // not sooner than without the header
		"120":                     {120 * time.Second, 120 * time.Second},
		" 120 ":                   {120 * time.Second, 120 * time.Second},
		"599":                     {599 * time.Second, 599 * time.Second},
		"601":                     {600 * time.Second, 600 * time.Second},
		"99999999999999999999999": {600 * time.Second, 600 * time.Second},
		"-5":                      {12 * time.Second, 18 * time.Second},
		"1.5":                     {12 * time.Second, 18 * time.Second},
		"soon":                    {12 * time.Second, 18 * time.Second},
		now.Add(5 * time.Minute).Format(http.TimeFormat): {299 * time.Second, 300 * time.Second},
		now.Add(5 * time.Hour).Format(http.TimeFormat):   {600 * time.Second, 600 * time.Second},
		now.Add(-time.Hour).Format(http.TimeFormat):      {12 * time.Second, 18 * time.Second},
		now.Add(5 * time.Minute).Format(time.RFC850):     {299 * time.Second, 300 * time.Second},
		now.Add(5 * time.Minute).Format(time.RFC3339):    {12 * time.Second, 18 * time.Second},
	} {
		for _, status := range []int{302, 404, 429, 503} {
			t.Run(strconv.Itoa(status)+" with Retry-After "+value, func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T) {
					x := newFixture(t, dispatch.Options{})
					x.subscribe(t, "a.example", respond(status, "Retry-After", value))
					x.publish(t, 1)
					time.Sleep(601 * time.Second)
					got := x.requests("a.example")
					if len(got) < 2 {
						t.Fatal("no second attempt")
					}
					if wait := got[1].at.Sub(got[0].at); wait < want[0] || wait > want[1]+10*time.Millisecond {
						t.Errorf("waited %s, want %s to %s", wait, want[0], want[1])
					}
				})
			})
		}
	}
}

// Retry-After applies to all deliveries of a failing subscription, because it gets one probe at a time.
func TestRetryAfterOfProbes(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{"300": 300 * time.Second, "3600": 600 * time.Second} {
		t.Run("Retry-After "+value, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				x := newFixture(t, dispatch.Options{PerSubscription: 1})
				sub := x.subscribe(t, "a.example", respond(500))
				x.publish(t, 5)
				time.Sleep(time.Second)
				if h := x.health(t, sub); h.Status != webhook.Failing {
					t.Fatalf("not failing: %+v", h)
				}
				x.setReceiver("a.example", respond(503, "Retry-After", value))
				x.publish(t, 50)
				time.Sleep(30 * time.Minute)
				got := x.requests("a.example")[5:]
				if len(got) < 3 {
					t.Fatalf("%d probes", len(got))
				}
				for i := 1; i < len(got); i++ {
					if wait := got[i].at.Sub(got[i-1].at); i < 3 && (wait < want || wait > want+10*time.Millisecond) {
						t.Errorf("probe %d came %s after the one before, want %s", i+1, wait, want)
					}
				}
			})
		})
	}
}

// A backlog larger than the head is delivered completely, each event once, while new events arrive.
func TestLargeBacklog(t *testing.T) {
	t.Parallel()

	t.Run("a backlog larger than the head is delivered completely, each event once", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := stoppedFixture(t, nil, dispatch.Options{PerSubscription: 4})
			sub := x.subscribe(t, "a.example", respondAfter(10*time.Millisecond, respond(200)))
			for range 3 {
				x.publish(t, 400)
			}
			x.run(t)
			for range 16 {
				time.Sleep(100 * time.Millisecond)
				x.publish(t, 50)
			}
			time.Sleep(2000 / 4 * 10 * time.Millisecond)
			checkDeliveredOnce(t, x, "a.example", 2000)
			if n := x.health(t, sub).PendingDeliveries; n != 0 {
				t.Errorf("%d pending", n)
			}
			if one, _ := x.peak("a.example"); one != 4 {
				t.Errorf("%d requests at once, want 4", one)
			}
		})
	})

	t.Run("a backlog is delivered completely despite failures", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{Policy: neverFailing})
			var n atomic.Int64
			x.subscribe(t, "a.example", func(*http.Request) (*http.Response, error) {
				if n.Add(1)%7 == 0 {
					return newResponse(500, ""), nil
				}
				return newResponse(200, ""), nil
			})
			for range 10 {
				x.publish(t, 100)
				time.Sleep(time.Second)
			}
			time.Sleep(time.Hour)
			succeeded := map[string]bool{}
			for _, q := range x.requests("a.example") {
				succeeded[q.header.Get("Webhook-Id")] = true
			}
			if b, err := x.Store.Survey.Backlog(context.Background()); err != nil || b.OldestDue != 0 {
				t.Errorf("%v, something is pending since %d", err, b.OldestDue)
			}
			if len(succeeded) != 1000 {
				t.Errorf("%d events arrived, want 1000", len(succeeded))
			}
		})
	})
}

// checkDeliveredOnce fails the test unless the host got n events, each in one request.
func checkDeliveredOnce(t *testing.T, x *fixture, host string, n int) {
	t.Helper()
	seen := map[string]int{}
	for _, q := range x.requests(host) {
		seen[q.header.Get("Webhook-Id")]++
	}
	if len(seen) != n {
		t.Errorf("%s has got %d events, want %d", host, len(seen), n)
	}
	for id, times := range seen {
		if times != 1 {
			t.Fatalf("%s has got %s %d times", host, id, times)
		}
	}
}

// A due time too far away was computed before the clock was set back. The delivery is due.
func TestClockSetBack(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := newFaults()
		x := stoppedFixture(t, f, dispatch.Options{})
		x.subscribe(t, "a.example", respond(200))
		x.publish(t, 10)
		f.dueShift = 24 * time.Hour
		x.connect(t, x.Store, f, dispatch.Options{}) // which has not heard of the events
		x.run(t)
		time.Sleep(time.Second)
		checkDeliveredOnce(t, x, "a.example", 10)
	})
}

// TestClockSetBackBehindRetries has such deliveries wait behind more retries than one read takes. What is due is sent before them.
func TestClockSetBackBehindRetries(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		x := stoppedFixture(t, nil, dispatch.Options{})
		x.subscribe(t, "a.example", respondAfter(100*time.Millisecond, respond(200)))
		events := x.publish(t, 64)
		year := (365 * 24 * time.Hour).Milliseconds()
		if err := x.Store.File.Write(t.Context(), sqlite.Work{}, func(tx *sqlite.Tx) error {
			return tx.Exec(`
				UPDATE deliveries SET due_at = due_at + CASE WHEN nth % 16 = 0 THEN 0 WHEN nth % 2 = 0 THEN ? ELSE 500000 END
				FROM (SELECT id AS of, row_number() OVER (ORDER BY id) - 1 AS nth FROM deliveries) WHERE of = id`, year)
		}); err != nil {
			t.Fatal(err)
		}
		x.connect(t, x.Store, nil, dispatch.Options{RetryMax: 10 * time.Minute, PerSubscription: 1})
		x.run(t)
		time.Sleep(400 * time.Second)
		var sent []string
		for _, q := range x.requests("a.example") {
			sent = append(sent, q.header.Get("Webhook-Id"))
		}
		var due, late []string
		for i, id := range events {
			if i%16 == 0 {
				due = append(due, id)
			} else if i%2 == 0 {
				late = append(late, id)
			}
		}
		if d := cmp.Diff(append(due, late...), sent); d != "" {
			t.Errorf("sent, in this order (-want +got):\n%s", d)
		}
		time.Sleep(200 * time.Second)
		checkDeliveredOnce(t, x, "a.example", len(events))
	})
}
