package storage_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestEventsInAState has one event in each state for one subscription, and a second subscription that wants one of them.
func TestEventsInAState(t *testing.T) {
	t.Parallel()
	o := storagetest.FrailOptions(t, filepath.Join(t.TempDir(), "keyhook.db"))
	o.KeepEvents = time.Hour
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		p := platform{storagetest.Platform{Store: x.Store}}
		second, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://example.net/", "order.waits")
		list := func(state webhook.EventState, subscription string) []string {
			f := webhook.EventFilter{State: state, Subscription: subscription, Limit: 2, WithoutAudit: true}
			return p.listedEvents(t, x.Org(), f)
		}
		events := map[webhook.EventState]string{}
		events[webhook.AnyDelivered] = x.Publish(t, 1, "order.paid")[0]
		x.EndAll(t, true)
		events[webhook.AnyExhausted] = x.Publish(t, 1, "order.paid")[0]
		x.EndAll(t, false)
		events[webhook.AnyDropped] = x.Publish(t, 1, "order.paid")[0]
		must[int64](t)(x.Queue.Discard(t.Context(), x.Actor(), x.Org(), x.Sub.ID, 0))
		events[webhook.ForNobody] = x.Missed(t, 1, "order.paid")[0]
		time.Sleep(time.Second)
		x.SetActive(t, false)
		events[webhook.AnyPending] = x.Publish(t, 1, "order.waits")[0]
		check := func() {
			t.Helper()
			for state, event := range events {
				for _, subscription := range []string{"", x.Sub.ID} {
					if d := cmp.Diff([]string{event}, list(state, subscription)); d != "" {
						t.Errorf("%s, subscription %q (-want +got):\n%s", state, subscription, d)
					}
				}
			}
		}
		check()
		x.SetActive(t, true) // an event with an attempt in progress is pending
		first := x.Jobs(t)[0]
		attempt := x.Begin(t, first)
		check()
		if err := x.Queue.UndoBegin(t.Context(), []int64{attempt}); err != nil {
			t.Fatal(err)
		}
		x.SetActive(t, false)
		if d := cmp.Diff([]string{events[webhook.AnyPending]}, list("", second.ID)); d != "" {
			t.Errorf("with a delivery to the second subscription (-want +got):\n%s", d)
		}
		if got := list(webhook.ForNobody, second.ID); len(got) != 4 {
			t.Errorf("without a delivery to the second subscription: %q", got)
		}
		page := must[access.Page[webhook.Event]](t)(x.History.EventPage(t.Context(), x.Org(), webhook.EventFilter{Type: "order.waits", Limit: 1}))
		if got, want := page.Rows[0].States, (webhook.DeliveryStates{Pending: 2, Held: 1}); got != want {
			t.Errorf("states %+v, want %+v", got, want)
		}
		x.BoundSearches(2, 1)
		check()
		exhausted := webhook.BulkRequest{Events: webhook.EventFilter{State: webhook.AnyExhausted, Since: 1, WithoutAudit: true}, DryRun: true}
		if got := must[webhook.BulkResult](t)(x.Queue.SendListed(t.Context(), x.Actor(), x.Org(), exhausted)); got.Events != 1 || got.Deliveries != 1 {
			t.Errorf("to send again, in a list of several pages: %+v", got)
		}
		if got := list(webhook.AnyExpired, ""); len(got) != 0 {
			t.Errorf("expired: %q", got)
		}
		paused := false
		must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), second.ID, webhook.SubscriptionChange{IsActive: &paused}))
		time.Sleep(time.Hour + time.Millisecond) // before the next pass of retention
		if d := cmp.Diff([]string{events[webhook.AnyPending]}, list(webhook.AnyExpired, "")); d != "" {
			t.Errorf("expired (-want +got):\n%s", d)
		}
		if got := p.listedEvents(t, access.AllOrganizations, webhook.EventFilter{State: webhook.AnyExpired, Limit: 2, WithoutAudit: true}); len(got) != 1 {
			t.Errorf("expired in all organizations: %q", got)
		}
		if err := x.Queue.HoldQueue(t.Context(), x.Actor(), ""); err != nil {
			t.Fatal(err)
		}
		if got := list(webhook.AnyExpired, ""); len(got) != 0 {
			t.Errorf("expired while the queue is held, when retention deletes nothing: %q", got)
		}
		storagetest.NoneGrows(t, x.Store, map[string]string{"SELECT DISTINCT s.public_id": "TEMP B-TREE", "SET expired_event": "TEMP B-TREE", "FROM attempt_minutes": "TEMP B-TREE", "FROM deliveries own": "TEMP B-TREE", "FROM events WHERE id > ? ORDER BY id LIMIT": "SCAN e"})
	})
}

// TestEventsOfADeletedSubscription reads an event between the deletion of its subscription and the drop of its deliveries.
func TestEventsOfADeletedSubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newFixture(t)
		p := platform{storagetest.Platform{Store: x.Store}}
		event := x.Publish(t, 1, "order.paid")[0]
		x.Begin(t, x.Jobs(t)[0])
		waiting := x.Publish(t, 1, "order.paid")[0]
		if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID); err != nil {
			t.Fatal(err)
		}
		for state, want := range map[webhook.EventState][]string{webhook.AnyPending: nil, webhook.AnyDropped: {waiting, event}} {
			if d := cmp.Diff(want, p.listedEvents(t, x.Org(), webhook.EventFilter{State: state, Limit: 2, WithoutAudit: true}), cmpopts.EquateEmpty()); d != "" {
				t.Errorf("%s (-want +got):\n%s", state, d)
			}
		}
		page := must[access.Page[webhook.Event]](t)(x.History.EventPage(t.Context(), x.Org(), webhook.EventFilter{Type: "order.paid", Limit: 2}))
		for _, e := range page.Rows {
			if want := (webhook.DeliveryStates{Dropped: 1}); e.States != want {
				t.Errorf("states %+v, want %+v", e.States, want)
			}
			_, deliveries, err := x.History.Event(t.Context(), x.Org(), e.ID)
			if err != nil || len(deliveries) != 1 || deliveries[0].State != webhook.Dropped {
				t.Errorf("deliveries %+v, error %v", deliveries, err)
			}
		}
	})
}
