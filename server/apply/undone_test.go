package apply_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/webhook"
)

// watcher counts what the dispatcher hears.
type watcher struct{ deliveries, changes atomic.Int64 }

func (*watcher) TakePlace(int64, int64) bool            { return false }
func (*watcher) ReturnPlace(int64, int64)               {}
func (w *watcher) DeliveriesCreated(jobs []webhook.Job) { w.deliveries.Add(int64(len(jobs))) }
func (*watcher) BodiesChanged([]int64)                  {}
func (w *watcher) SubscriptionsChanged(...int64)        { w.changes.Add(1) }

// TestUndone has documents undone that change a subscription, create others, and cause audit events for all of them.
func TestUndone(t *testing.T) {
	t.Parallel()
	const audited = `"subscriptions":[
		{"organization":"c7","external_id":"orders","url":"https://other.example/","rate_limit_per_second":5},
		{"organization":"c7","external_id":"audit","url":"https://example.com/","audit_events":true,` + secret + `},
		{"organization":"c7","external_id":"late","url":"https://example.com/",` + secret + `}]`
	for name, undo := range map[string]func(f *fixture) response{
		"a dry run": func(f *fixture) response { return f.apply(t, audited, `"dry_run":true`) },
		"a late problem": func(f *fixture) response {
			return f.apply(t, strings.Replace(audited, `"late","url":"https://example.com/"`, `"late","url":"https://10.0.0.1/"`, 1))
		},
		"a late limit": func(f *fixture) response {
			return f.apply(t, strings.TrimSuffix(audited, "]")+`,{"organization":"poor","external_id":"x","url":"https://example.com/",`+secret+"}]")
		},
	} {
		t.Run(name+" leaves nothing in memory, and nothing is sent", func(t *testing.T) {
			t.Parallel()
			f := serve(t)
			f.apply(t, full).want(t, 200, made...)
			f.apply(t, `"plans":[{"name":"tiny","webhooks":true,"api_rate_limit_per_minute":null,"max_stored_bytes_per_day":1}],
				"organizations":[{"external_id":"poor","name":"Poor","plan":"tiny"}]`)
			heard := &watcher{}
			f.store.Queue.Watch(heard)
			before, counts := f.state(t), f.store.Queue.SubscriptionCounts()
			if r := undo(f); r.status == 200 && name != "a dry run" || r.status != 200 && name == "a dry run" {
				t.Fatal(r.text)
			}
			if d := cmp.Diff(before, f.state(t)); d != "" {
				t.Errorf("(-before +after):\n%s", d)
			}
			if now := f.store.Queue.SubscriptionCounts(); now != counts || heard.deliveries.Load() > 0 || heard.changes.Load() > 0 {
				t.Errorf("%+v subscriptions, want %+v; the dispatcher heard of %d deliveries and %d changes",
					now, counts, heard.deliveries.Load(), heard.changes.Load())
			}
			f.apply(t, audited).want(t, 200,
				"update subscription c7/orders url:https://example.com/hook>https://other.example/"+
					" event_types:[order.*]>[] rate_limit_per_second:<nil>>5",
				"create subscription c7/audit url:<nil>>https://example.com/ audit_events:<nil>>true",
				"create subscription c7/late url:<nil>>https://example.com/")
			if now := f.store.Queue.SubscriptionCounts(); now == counts || heard.deliveries.Load() != 1 || heard.changes.Load() == 0 {
				t.Errorf("%+v subscriptions; the dispatcher heard of %d deliveries and %d changes", now, heard.deliveries.Load(), heard.changes.Load())
			}
		})
	}
}
