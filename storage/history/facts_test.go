package history_test

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestEventFactsAfterRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
		o.KeepEvents = time.Hour
		store, _ := storagetest.OpenWith(t, o)
		x := storagetest.CustomerOf(t, store)
		p := storagetest.Publish(t, x.Store, x.Owner, "order.paid")
		expired := func() bool {
			return storagetest.Must[webhook.EventFacts](t)(x.History.EventFacts(t.Context(), x.Org(), p.ID)).Expired
		}
		time.Sleep(time.Hour)
		if expired() {
			t.Error("an event expires before the end of the retention")
		}
		time.Sleep(time.Minute)
		if expired() {
			t.Error("an event expires while an open subscription waits for it")
		}
		if err := x.Queue.HoldQueue(t.Context(), x.Actor(), ""); err != nil {
			t.Fatal(err)
		}
		storagetest.Must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID,
			webhook.SubscriptionChange{IsActive: new(false)}))
		time.Sleep(time.Minute)
		if expired() {
			t.Error("an event expires while the queue is held")
		}
		if _, err := x.Queue.ReleaseQueue(t.Context(), x.Actor()); err != nil {
			t.Fatal(err)
		}
		if !expired() {
			t.Error("an event that nobody waits for has not expired")
		}
		time.Sleep(time.Minute)
		_, err := x.History.EventFacts(t.Context(), x.Org(), p.ID)
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		if f, _ := fault.As(err); !strings.Contains(f.Message, "storage.retention_events") {
			t.Errorf("the fault is %q", f.Message)
		}
	})
}
