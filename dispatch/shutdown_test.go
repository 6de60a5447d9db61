package dispatch_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// closableTransport counts how often its idle connections are closed.
type closableTransport struct {
	instantTransport
	closed atomic.Int64
}

func (c *closableTransport) CloseIdleConnections() { c.closed.Add(1) }

func TestShutdown(t *testing.T) {
	t.Parallel()

	t.Run("running attempts end and are recorded, none begin, and those that had begun are released", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{PerSubscription: 64})
			sub := x.subscribe(t, "a.example", respondAfter(10*time.Second, respond(200)))
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

	t.Run("idle connections are closed at the end, not before", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			transport := &closableTransport{}
			x := newFixture(t, dispatch.Options{Transport: transport})
			time.Sleep(time.Hour)
			if n := transport.closed.Load(); n != 0 {
				t.Errorf("closed %d times while it runs", n)
			}
			x.stop()
			if n := transport.closed.Load(); n != 1 {
				t.Errorf("closed %d times, want 1", n)
			}
		})
	})

	t.Run("a read that fails during the stop, after many failed reads, does no harm", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			f := newFaults()
			x := stoppedFixture(t, f, dispatch.Options{})
			sub := x.subscribe(t, "a.example", respond(500))
			x.run(t)
			x.publish(t, 5)
			time.Sleep(time.Second)
			if h := x.health(t, sub); h.Status != webhook.Failing {
				t.Fatalf("%+v", h)
			}
			f.fail(true, "Target")
			url := "https://b.example/hook"
			if _, err := x.Subscriptions.UpdateSubscription(t.Context(), x.actor(), x.org(), sub.ID, webhook.SubscriptionChange{URL: &url}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(4500 * time.Millisecond)
			f.hangTarget()
			time.Sleep(time.Second)
			if n := f.called("Target"); n < 5 {
				t.Fatalf("the target was read %d times", n)
			}
			x.stop()
		})
	})

	t.Run("an attempt cut off after the grace period is interrupted, not failed, and sent again with the next number", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			o := storagetest.Options(t, t.TempDir()+"/keyhook.db")
			store, closeStore := storagetest.OpenWith(t, o)
			x := fixtureOn(t, store, nil, dispatch.Options{Grace: 3 * time.Second})
			sub := x.subscribe(t, "a.example", hang)
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
			x.connect(t, store, nil, dispatch.Options{})
			x.setReceiver("a.example", respond(200))
			x.run(t)
			time.Sleep(time.Second)
			if n := x.outcomes(t, sub); n[webhook.Interrupted] != 16 || n[webhook.Succeeded] != 20 || len(n) != 2 {
				t.Errorf("after the restart: %v", n)
			}
			if h := x.health(t, sub); h.ConsecutiveFailures != 0 || h.PendingDeliveries != 0 {
				t.Errorf("after the restart: %+v", h)
			}
			for _, a := range x.attempts(t, sub)[16:] {
				if a.Number > 2 {
					t.Errorf("%+v", a)
				}
			}
		})
	})
}

func TestInterruption(t *testing.T) {
	t.Parallel()
	for name, respondTo := range map[string]handler{
		"arrives with the interruption": func(q *http.Request) (*http.Response, error) {
			<-q.Context().Done()
			return newResponse(200, ""), nil
		},
		"refuses the event with the interruption": func(q *http.Request) (*http.Response, error) {
			<-q.Context().Done()
			return newResponse(500, ""), nil
		},
		"arrives just before the interruption, and the store is slow": respondAfter(time.Second+3*time.Second-time.Millisecond, respond(200)),
	} {
		runInVirtualTime(t, "a complete response that "+name+" is recorded", func(t *testing.T) {
			f := newFaults()
			f.slow(400 * time.Millisecond) // the first result is saved alone, the others after it
			x := stoppedFixture(t, f, dispatch.Options{Grace: 3 * time.Second})
			sub := x.subscribe(t, "a.example", respondTo)
			x.run(t)
			x.publish(t, 10)
			time.Sleep(time.Second)
			begin := time.Now()
			x.stop()
			if took := time.Since(begin); took > 3*time.Second+time.Second {
				t.Errorf("took %s", took)
			}
			if n := x.outcomes(t, sub); n[webhook.Succeeded]+n[webhook.Failed] != 10 || len(n) != 1 {
				t.Errorf("on record: %v", n)
			}
		})
	}

	runInVirtualTime(t, "a response that the interruption makes incomplete is not known", func(t *testing.T) {
		x := newFixture(t, dispatch.Options{Grace: 3 * time.Second})
		sub := x.subscribe(t, "a.example", func(q *http.Request) (*http.Response, error) {
			r := newResponse(200, "")
			r.ContentLength, r.Body = -1, io.NopCloser(untilDone{q.Context()})
			return r, nil
		})
		x.publish(t, 10)
		time.Sleep(time.Second)
		x.stop()
		if n := x.outcomes(t, sub); n[webhook.Sending] != 10 || len(n) != 1 {
			t.Errorf("on record: %v", n)
		}
	})

	runInVirtualTime(t, "a store that hangs delays the end by a second", func(t *testing.T) {
		f := newFaults()
		f.slow(time.Hour)
		x := stoppedFixture(t, f, dispatch.Options{Grace: 3 * time.Second})
		x.subscribe(t, "a.example", respond(200))
		x.run(t)
		x.publish(t, 10)
		time.Sleep(time.Second)
		begin := time.Now()
		x.stop()
		if took := time.Since(begin); took != 4*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

// untilDone has nothing to read until its context ends.
type untilDone struct{ ctx context.Context }

func (r untilDone) Read([]byte) (int, error) {
	<-r.ctx.Done()
	return 0, r.ctx.Err()
}

func TestCrash(t *testing.T) {
	t.Parallel()
	runTest := func(t *testing.T, after func(x *fixture, sub webhook.Subscription), want map[webhook.Outcome]int) {
		o := storagetest.Options(t, t.TempDir()+"/keyhook.db")
		store, closeStore := storagetest.OpenWith(t, o)
		x := fixtureOn(t, store, nil, dispatch.Options{Grace: time.Second})
		sub := x.subscribe(t, "a.example", hang)
		x.run(t)
		after(x, sub)
		before := len(x.requests("a.example"))
		x.stop() // running requests are interrupted, as by a crash
		closeStore()

		store, _ = storagetest.OpenWith(t, o)
		x.connect(t, store, nil, dispatch.Options{})
		x.setReceiver("a.example", respond(200))
		x.run(t)
		time.Sleep(time.Hour)
		if n := len(x.requests("a.example")) - before; n != 0 {
			t.Errorf("%d requests after the restart", n)
		}
		if h := x.health(t, sub); h.PendingDeliveries != 0 {
			t.Errorf("%d pending", h.PendingDeliveries)
		}
		if d := cmp.Diff(want, x.outcomes(t, sub)); d != "" {
			t.Errorf("on record (-want +got):\n%s", d)
		}
	}

	runInVirtualTime(t, "a test that a crash interrupted is not sent again", func(t *testing.T) {
		runTest(t, func(x *fixture, sub webhook.Subscription) {
			if _, _, _, err := x.Queue.BeginTest(t.Context(), x.org(), sub.ID, ""); err != nil {
				t.Fatal(err)
			}
		}, map[webhook.Outcome]int{webhook.Interrupted: 1})
	})

	runInVirtualTime(t, "discarded deliveries whose attempts a crash interrupted are not sent again", func(t *testing.T) {
		runTest(t, func(x *fixture, sub webhook.Subscription) {
			x.publish(t, 20)
			time.Sleep(time.Second)
			x.hold(t)
			if n, err := x.Queue.DiscardQueue(t.Context(), x.operator(t)); err != nil || n != 20 {
				t.Fatalf("%d discarded, %v", n, err)
			}
		}, map[webhook.Outcome]int{webhook.Interrupted: 16})
	})
}

func TestShutdownEndsInTime(t *testing.T) {
	t.Parallel()

	t.Run("a failing store delays the end no longer than the grace period", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			f := newFaults()
			x := stoppedFixture(t, f, dispatch.Options{})
			x.subscribe(t, "a.example", respondAfter(time.Second, respond(200)))
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

	t.Run("Run ends at once if nothing is in progress, and cannot run twice", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
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
				t.Error("Run was called twice without an error")
			}
			x.publish(t, 3) // nobody reads the inbox, and publish does not block
		})
	})
}

// keptResults is a store whose Record hangs until its context ends, and whose writer still has the results then.
type keptResults struct {
	*storage.Store
	mu     sync.Mutex
	kept   [][]webhook.Result
	copies [][]webhook.Result
}

func (s *keptResults) Record(ctx context.Context, results ...webhook.Result) ([]webhook.Settled, error) {
	s.mu.Lock()
	s.kept, s.copies = append(s.kept, results), append(s.copies, slices.Clone(results))
	s.mu.Unlock()
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestResultsThatTheWriterStillHasStayTheSame(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		x := stoppedFixture(t, nil, dispatch.Options{})
		store := &keptResults{Store: x.Store}
		d := dispatch.New(store, dispatch.Options{Grace: time.Second, Transport: x.receivers, Logger: slog.New(slog.DiscardHandler)})
		x.Dispatcher = d
		x.Queue.Watch(d)
		x.subscribe(t, "a.example", respond(200))
		x.run(t)
		for range 2 { // the second result waits for the first
			x.publish(t, 1)
			synctest.Wait()
		}
		x.stop()
		for i, results := range store.kept {
			if !slices.Equal(results, store.copies[i]) {
				t.Errorf("the results %+v have become %+v", store.copies[i], results)
			}
		}
		if len(store.kept) < 2 {
			t.Errorf("only %d calls", len(store.kept))
		}
	})
}
