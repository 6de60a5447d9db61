package dispatch_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestOnSettled(t *testing.T) {
	t.Parallel()

	t.Run("OnSettled is called for each attempt, including tests, after its result is recorded", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			type end struct {
				Number    int
				Trigger   webhook.Trigger
				Succeeded bool
				Error     string
				Took      int64
				State     webhook.DeliveryState
			}
			var mu sync.Mutex
			var ends []end
			x := newFixture(t, dispatch.Options{OnSettled: func(r webhook.Result, settled webhook.Settled) {
				mu.Lock()
				defer mu.Unlock()
				ends = append(ends, end{r.Number, r.Trigger, r.Succeeded, r.Failure.String(), r.DurationMS, settled.State})
			}})
			sub := x.subscribe(t, "a.example", respondAfter(time.Second, respond(503)))
			x.publish(t, 1)
			time.Sleep(10 * time.Second)
			x.setReceiver("a.example", respond(200))
			time.Sleep(time.Hour)
			x.setReceiver("a.example", respond(404))
			if _, err := x.Test(t.Context(), x.org(), sub.ID, ""); err != nil {
				t.Fatal(err)
			}
			want := []end{
				{1, webhook.ByEvent, false, "http_status: 503", 1000, webhook.Pending},
				{2, webhook.ByRetry, true, "", 0, webhook.Delivered},
				{1, webhook.ByTest, false, "http_status: 404", 0, webhook.Exhausted},
			}
			mu.Lock()
			defer mu.Unlock()
			if d := cmp.Diff(want, ends); d != "" {
				t.Errorf("ends (-want +got):\n%s", d)
			}
		})
	})

	t.Run("each of the results that are recorded together has its own state", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			var mu sync.Mutex
			states := map[int]webhook.DeliveryState{} // by the status of the response
			f := newFaults()
			x := stoppedFixture(t, f, dispatch.Options{OnSettled: func(r webhook.Result, settled webhook.Settled) {
				mu.Lock()
				defer mu.Unlock()
				states[*r.ResponseStatus] = settled.State
			}})
			x.run(t)
			f.slow(time.Second)
			x.subscribe(t, "first.example", respond(200)) // while its result is recorded, the two others end
			x.subscribe(t, "a.example", respondAfter(300*time.Millisecond, respond(201)))
			x.subscribe(t, "b.example", respondAfter(300*time.Millisecond, respond(503)))
			x.publish(t, 1)
			time.Sleep(3 * time.Second)
			want := map[int]webhook.DeliveryState{200: webhook.Delivered, 201: webhook.Delivered, 503: webhook.Pending}
			mu.Lock()
			defer mu.Unlock()
			if d := cmp.Diff(want, states); d != "" {
				t.Errorf("states (-want +got):\n%s", d)
			}
		})
	})
}
