package dispatch_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestReplay(t *testing.T) {
	t.Parallel()

	t.Run("a replay delivers each event once, beside older and newer events", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			sub := x.subscribe(t, "a.example", respond(200))
			want := x.publish(t, 3)
			time.Sleep(time.Minute)
			x.setPlan(t, "free")
			want = append(want, x.publish(t, 600)...)
			x.setPlan(t, "growth")
			if n, err := x.Queue.Replay(t.Context(), x.actor(), x.org(), sub.ID, webhook.Replay{Only: webhook.OnlyAll}); n.Plan != 600 || err != nil {
				t.Fatalf("%+v are made, error %v", n, err)
			}
			want = append(want, x.publish(t, 3)...)
			time.Sleep(time.Minute)
			x.checkArrived(t, "a.example", want)
			triggers := map[webhook.Trigger]int{}
			for _, a := range x.attempts(t, sub) {
				triggers[a.Trigger]++
			}
			if d := cmp.Diff(map[webhook.Trigger]int{webhook.ByEvent: 6, webhook.ByHand: 600}, triggers); d != "" {
				t.Errorf("triggers (-want +got):\n%s", d)
			}
		})
	})

	t.Run("a replay delivers failed events again", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{Policy: webhook.Policy{MaxAttempts: 2, FailingAfter: 100, DisabledAfter: 200}})
			sub := x.subscribe(t, "a.example", respond(500))
			want := x.publish(t, 20)
			time.Sleep(time.Hour)
			x.setReceiver("a.example", respond(200))
			r := webhook.Replay{Only: webhook.OnlyFailed}
			if n, err := x.Queue.Replay(t.Context(), x.actor(), x.org(), sub.ID, r); n.Exhausted != 20 || err != nil {
				t.Fatalf("%+v are made, error %v", n, err)
			}
			time.Sleep(time.Minute)
			x.checkArrived(t, "a.example", slices.Concat(want, want, want)) // two attempts failed before
			if h := x.health(t, sub); h.Status != webhook.Healthy || h.PendingDeliveries != 0 {
				t.Errorf("%+v", h)
			}
			if n, err := x.Queue.Replay(t.Context(), x.actor(), x.org(), sub.ID, r); n.Total() != 0 || err != nil {
				t.Errorf("%+v are made of what has arrived, error %v", n, err)
			}
		})
	})

	t.Run("a replay waits while the subscription is disabled", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			sub := x.subscribe(t, "a.example", respond(200))
			x.setPlan(t, "free")
			want := x.publish(t, 10)
			x.setPlan(t, "growth")
			x.setActive(t, sub, false)
			if n, err := x.Queue.Replay(t.Context(), x.actor(), x.org(), sub.ID, webhook.Replay{Only: webhook.OnlyMissed}); n.Plan != 10 || err != nil {
				t.Fatalf("%+v are made, error %v", n, err)
			}
			time.Sleep(time.Hour)
			x.checkArrived(t, "a.example", nil)
			x.setActive(t, sub, true)
			time.Sleep(time.Minute)
			x.checkArrived(t, "a.example", want)
		})
	})
}

// checkArrived checks which events the host got, in any order.
func (x *fixture) checkArrived(t *testing.T, host string, want []string) {
	t.Helper()
	var got []string
	for _, q := range x.requests(host) {
		got = append(got, q.header.Get("X-Service-Event-Id"))
	}
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("%d events have arrived, want %d", len(got), len(want))
	}
}
