package dispatch_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// operator acts in an organization without subscriptions, so its audit events are delivered to nobody.
func (x *fixture) operator(tb testing.TB) access.Actor {
	return storagetest.Operator(tb, x.Store).Actor("127.0.0.1", "test")
}

func (x *fixture) hold(tb testing.TB) {
	tb.Helper()
	if err := x.Queue.HoldQueue(context.Background(), x.operator(tb), "a test"); err != nil {
		tb.Fatal(err)
	}
}

func (x *fixture) release(tb testing.TB) {
	tb.Helper()
	if _, err := x.Queue.ReleaseQueue(context.Background(), x.operator(tb)); err != nil {
		tb.Fatal(err)
	}
}

func TestHeldQueue(t *testing.T) {
	t.Parallel()

	t.Run("nothing is sent until the release, neither old nor new deliveries", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			up, down := x.subscribe(t, "up.example", respond(200)), x.subscribe(t, "down.example", respond(500))
			x.publish(t, 1)
			time.Sleep(time.Second) // one delivery succeeds, and the other waits for a retry
			x.hold(t)
			x.publish(t, 3)
			time.Sleep(3 * time.Hour)
			if a, b := len(x.requests("up.example")), len(x.requests("down.example")); a != 1 || b != 1 {
				t.Errorf("%d and %d requests", a, b)
			}
			if n := len(x.attempts(t, up)) + len(x.attempts(t, down)); n != 2 {
				t.Errorf("%d attempts on record", n)
			}
			if _, err := x.Test(t.Context(), x.org(), up.ID, ""); fault.KindOf(err) != fault.Conflict {
				t.Errorf("test: %v", err)
			}
			x.setReceiver("down.example", respond(200))
			x.release(t)
			x.publish(t, 1)
			time.Sleep(time.Second)
			for _, sub := range []webhook.Subscription{up, down} {
				if h := x.health(t, sub); h.PendingDeliveries != 0 || h.Status != webhook.Healthy {
					t.Errorf("%+v", h)
				}
			}
			if a, b := len(x.requests("up.example")), len(x.requests("down.example")); a != 5 || b != 6 {
				t.Errorf("%d and %d requests after the release", a, b)
			}
		})
	})

	t.Run("requests in progress end, and attempts begun behind them are released", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{PerSubscription: 2})
			sub := x.subscribe(t, "slow.example", respondAfter(5*time.Second, respond(200)))
			x.publish(t, 50)
			time.Sleep(6 * time.Second) // two have ended, two are in progress, some have begun
			x.hold(t)
			time.Sleep(time.Hour)
			if n := len(x.requests("slow.example")); n != 4 {
				t.Errorf("%d requests", n)
			}
			if o := x.outcomes(t, sub); o[webhook.Succeeded] != 4 || len(o) != 1 {
				t.Errorf("outcomes %v", o)
			}
			x.release(t)
			time.Sleep(5 * time.Minute)
			if o := x.outcomes(t, sub); o[webhook.Succeeded] != 50 || len(o) != 1 {
				t.Errorf("outcomes %v after the release", o)
			}
		})
	})

	t.Run("a held queue hardly reads the store", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			f := newFaults()
			x := stoppedFixture(t, f, dispatch.Options{})
			for _, host := range []string{"a.example", "b.example", "c.example"} {
				x.subscribe(t, host, respond(200))
			}
			x.publish(t, 100)
			x.hold(t)
			x.run(t)
			time.Sleep(time.Hour)
			if reads, begins := f.called("Target")+f.called("PendingJobs"), f.called("Begin"); reads > 10 || begins > 0 {
				t.Errorf("%d reads and %d begins in an hour", reads, begins)
			}
		})
	})

	t.Run("a hold survives a restart, and a release needs none", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
			store, stop := storagetest.OpenWith(t, o)
			x := fixtureOn(t, store, nil, dispatch.Options{})
			sub := x.subscribe(t, "a.example", respond(200))
			x.publish(t, 10)
			x.hold(t)
			stop()

			store, _ = storagetest.OpenWith(t, o)
			x.connect(t, store, nil, dispatch.Options{})
			x.run(t)
			time.Sleep(time.Hour)
			if n := len(x.requests("a.example")); n != 0 {
				t.Errorf("%d requests while held", n)
			}
			x.release(t)
			time.Sleep(time.Second)
			if n := len(x.requests("a.example")); n != 10 || x.health(t, sub).PendingDeliveries != 0 {
				t.Errorf("%d requests after the release", n)
			}
		})
	})
}

// TestReleaseBesideNewDelivery publishes an event after the release, before the dispatcher has listed the older
// deliveries. The lane knows only the new delivery and must still find the older ones.
func TestReleaseBesideNewDelivery(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := newFaults()
		x := stoppedFixture(t, f, dispatch.Options{})
		x.run(t)
		x.subscribe(t, "slow.example", respondAfter(10*time.Second, respond(200)))
		x.hold(t)
		x.publish(t, 3)
		time.Sleep(time.Hour)
		f.fail(true, "Lanes")
		x.release(t)
		x.publish(t, 1)
		time.Sleep(100 * time.Millisecond)
		f.fail(false, "Lanes")
		time.Sleep(3 * time.Second)
		if n := len(x.requests("slow.example")); n != 4 {
			t.Errorf("%d requests 3 s after the release", n)
		}
	})
}
