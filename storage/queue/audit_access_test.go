package queue_test

import (
	"slices"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// actorWithoutAuditRead returns an actor who may manage webhooks but not read the audit log.
func (x fixture) actorWithoutAuditRead(t *testing.T) access.Actor {
	t.Helper()
	key, _ := storagetest.Key(t, x.Store, x.Owner, access.WebhooksRead, access.WebhooksWrite, access.EventsWrite)
	p := x.Owner
	p.Key = &key
	return p.Actor("127.0.0.1", "test")
}

// types lists the types of the pending events.
func (x fixture) types(t *testing.T) (types []string) {
	t.Helper()
	for _, job := range x.Jobs(t) {
		types = append(types, job.EventType)
	}
	sub, err := x.History.Subscription(t.Context(), x.Org(), x.Sub.ID)
	if err != nil || sub.PendingDeliveries != int64(len(types)) {
		t.Fatalf("%d deliveries are pending, the count says %d, error %v", len(types), sub.PendingDeliveries, err)
	}
	slices.Sort(types)
	return types
}

func TestSubscriptionWithoutAuditRead(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	by := x.actorWithoutAuditRead(t)
	sub, _, err := x.Subscriptions.CreateSubscription(t.Context(), by, x.Org(), webhook.SubscriptionChange{URL: new("https://example.com/all")})
	if err != nil || sub.AuditEvents {
		t.Fatalf("audit_events %v, error %v", sub.AuditEvents, err)
	}
	full := x.Sub
	x.Sub = sub

	t.Run("the subscription receives every type except audit events", func(t *testing.T) {
		storagetest.Key(t, x.Store, x.Owner, access.EventsRead) // an audit event
		storagetest.Publish(t, x.Store, x.Owner, "order.paid")
		if got := x.types(t); !slices.Equal(got, []string{"order.paid"}) {
			t.Errorf("pending are %v", got)
		}
	})
	t.Run("a replay sends no audit events", func(t *testing.T) {
		r := webhook.Replay{Since: 1, Until: time.Now().Add(time.Hour).UnixMilli(), Only: webhook.OnlyAll}
		counted, err := x.CountReplay(t.Context(), r)
		if made, err2 := x.Queue.Replay(t.Context(), x.Actor(), x.Org(), x.Sub.ID, r); counted.Total() != 0 || made.Total() != 0 || err != nil || err2 != nil {
			t.Errorf("%+v counted, %+v made, errors %v, %v; want none", counted, made, err, err2)
		}
		r.EventTypes = webhook.Types{access.KeyCreated}
		if made, err := x.Queue.Replay(t.Context(), x.Actor(), x.Org(), x.Sub.ID, r); made.Total() != 0 || err != nil {
			t.Errorf("%+v made where the type is named, error %v", made, err)
		}
	})
	t.Run("its URL and types change without audit:read", func(t *testing.T) {
		for _, types := range []webhook.Types{{"order.*"}, {}} {
			if err := x.Change(t, by, webhook.SubscriptionChange{URL: new("https://example.com/new"), EventTypes: &types}); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("turning on audit events needs audit:read", func(t *testing.T) {
		for name, c := range map[string]webhook.SubscriptionChange{
			"the property":          {AuditEvents: new(true)},
			"a type":                {EventTypes: &webhook.Types{access.KeyCreated}},
			"a type without effect": {EventTypes: &webhook.Types{access.KeyCreated}, AuditEvents: new(false)},
		} {
			if err := x.Change(t, by, c); fault.KindOf(err) != fault.Forbidden {
				t.Errorf("%s: %v", name, err)
			}
			c.URL = new("https://example.com/other")
			if _, _, err := x.Subscriptions.CreateSubscription(t.Context(), by, x.Org(), c); fault.KindOf(err) != fault.Forbidden {
				t.Errorf("%s, of a new one: %v", name, err)
			}
		}
	})
	t.Run("an actor with audit:read turns audit events on", func(t *testing.T) {
		if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{AuditEvents: new(true)}); err != nil {
			t.Fatal(err)
		}
		storagetest.Key(t, x.Store, x.Owner, access.EventsRead)
		if got := x.types(t); !slices.Equal(got, []string{access.KeyCreated, "order.paid"}) {
			t.Errorf("pending are %v", got)
		}
	})
	if !full.AuditEvents {
		t.Error("a subscription that an owner makes receives no audit events")
	}
}

func TestSubscriptionStopsReceivingAuditEvents(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) (x fixture, narrow access.Actor) {
		x = newFixture(t)
		narrow = x.actorWithoutAuditRead(t) // an audit event, like the next ones
		storagetest.Key(t, x.Store, x.Owner, access.EventsRead)
		storagetest.Publish(t, x.Store, x.Owner, "order.paid")
		if n := len(x.types(t)); n != 3 {
			t.Fatalf("%d are pending", n)
		}
		return x, narrow
	}
	elsewhere := new("https://example.net/mine")

	t.Run("its URL does not change without audit:read", func(t *testing.T) {
		t.Parallel()
		x, narrow := begin(t)
		for _, c := range []webhook.SubscriptionChange{
			{URL: elsewhere}, {EventTypes: &webhook.Types{"order.*"}}, {URL: elsewhere, AuditEvents: new(true)},
		} {
			if err := x.Change(t, narrow, c); fault.KindOf(err) != fault.Forbidden {
				t.Errorf("%+v: %v", c, err)
			}
		}
		if n := len(x.types(t)); n != 3 {
			t.Errorf("%d are pending", n)
		}
	})
	t.Run("pending audit events do not go to the new URL", func(t *testing.T) {
		t.Parallel()
		x, narrow := begin(t)
		held := x.Jobs(t) // as the dispatcher has them in memory
		failed := x.Begin(t, held[0])
		if err := x.Change(t, narrow, webhook.SubscriptionChange{URL: elsewhere, AuditEvents: new(false)}); err != nil {
			t.Fatal(err)
		}
		if got := x.types(t); !slices.Equal(got, []string{"order.paid"}) {
			t.Errorf("pending are %v", got)
		}
		for _, job := range held[1:] {
			if begun := x.Begin(t, job) != 0; begun != (job.EventType == "order.paid") {
				t.Errorf("an attempt of %s is begun: %v", job.EventType, begun)
			}
		}
		attempt, err := x.History.Attempt(t.Context(), failed)
		if err != nil {
			t.Fatal(err)
		}
		err = x.Queue.Redeliver(t.Context(), x.Actor(), x.Org(), x.Sub.ID, attempt.ID)
		if fault.KindOf(err) != fault.Conflict {
			t.Errorf("an audit event is sent again: %v", err)
		}
	})
	t.Run("new types drop pending audit events too, so a later change of the URL sends none", func(t *testing.T) {
		t.Parallel()
		x, narrow := begin(t)
		if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{EventTypes: &webhook.Types{"order.*"}}); err != nil {
			t.Fatal(err)
		}
		if err := x.Change(t, narrow, webhook.SubscriptionChange{URL: elsewhere}); err != nil {
			t.Fatal(err)
		}
		if got := x.types(t); !slices.Equal(got, []string{"order.paid"}) {
			t.Errorf("pending are %v", got)
		}
	})
	t.Run("the change is refused if too much is pending to search", func(t *testing.T) {
		t.Parallel()
		x, narrow := begin(t)
		x.Pend(x.Sub.RowID, 10_000)
		c := webhook.SubscriptionChange{URL: elsewhere, AuditEvents: new(false)}
		if err := x.Change(t, narrow, c); fault.KindOf(err) != fault.Conflict {
			t.Errorf("%v", err)
		}
		x.Pend(x.Sub.RowID, -10_000)
		if err := x.Change(t, narrow, c); err != nil {
			t.Error(err)
		}
	})
}
