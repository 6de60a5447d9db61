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
			if _, err := x.Test(t.Context(), x.org(), sub.ID); err != nil {
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
}
