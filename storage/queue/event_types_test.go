package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// catalogue puts a type into the catalogue. example is the data of an event; empty for none.
func catalogue(ctx context.Context, t *testing.T, store *storage.Store, eventType, example string) {
	t.Helper()
	must[access.Put[webhook.EventType]](t)(store.Catalogue.PutEventType(ctx, storagetest.Operator(t, store).Actor("", ""), eventType,
		webhook.EventTypeChange{Description: new("about " + eventType), Example: new([]byte(example))}))
}

func TestNoticeOfAnUnknownType(t *testing.T) {
	t.Parallel()
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	store, stop := storagetest.OpenWith(t, o)
	owner, _ := storagetest.Organization(t, store, "acme", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, store, owner, "https://example.com/", "order.*")
	x := fixture{storagetest.Customer{Store: store, Owner: owner, Sub: sub}}
	expect := func(t *testing.T, eventType string, deliveries int, want webhook.Notice) {
		t.Helper()
		if p := storagetest.Publish(t, x.Store, x.Owner, eventType); p.Deliveries != deliveries || p.Notice != want {
			t.Errorf("%s: %+v, want %d and %q", eventType, p, deliveries, want)
		}
	}
	expect(t, "invoice.made", 0, webhook.NoSubscription) // there is no catalogue
	expect(t, "order.payd", 1, "")
	catalogue(t.Context(), t, x.Store, "order.paid", "")
	expect(t, "order.paid", 1, "")
	expect(t, "order.payd", 1, webhook.UnknownType)
	expect(t, "invoice.made", 0, webhook.UnknownType)
	x.setFilter(t, atLeast(t, 100))
	expect(t, "order.payd", 0, webhook.AllFiltered)
	repeated := webhook.NewEvent{Type: "order.payd", Data: []byte(`{"amount":100}`), IdempotencyKey: "k"}
	storagetest.Subscription(t, x.Store, x.Owner, "", "order.*") // a feed
	expect(t, "order.paid", 0, webhook.InFeed)
	expect(t, "order.payd", 0, webhook.UnknownType)
	first := must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{repeated}))[0]
	if first.Deliveries != 1 || first.Notice != webhook.UnknownType {
		t.Errorf("%+v", first)
	}
	x.SetWebhooks(t, false)
	expect(t, "order.payd", 0, webhook.PlanLacksHooks)
	x.SetWebhooks(t, true)

	undone := errors.New("undone")
	if err := x.Transact(t.Context(), x.Org(), 10, func(ctx context.Context) error {
		catalogue(ctx, t, x.Store, "invoice.made", "")
		return undone
	}); !errors.Is(err, undone) {
		t.Fatal(err)
	}
	expect(t, "invoice.made", 0, webhook.UnknownType)
	stop()
	o.Bootstrap = access.Credential{}
	x.Store, _ = storagetest.OpenWith(t, o)
	expect(t, "invoice.made", 0, webhook.UnknownType)
	if err := x.Catalogue.DeleteEventType(t.Context(), x.Actor(), "order.paid"); err != nil {
		t.Fatal(err)
	}
	expect(t, "invoice.made", 0, webhook.NoSubscription)
	if again := must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{repeated}))[0]; again.Notice != first.Notice || !again.Repeated {
		t.Errorf("repeated: %+v, first %+v", again, first)
	}
}

// TestTestsOfAType sends the example of a type to a subscription that does not want the type, and looks for the event where it must not
// be.
func TestTestsOfAType(t *testing.T) {
	t.Parallel()
	x := newOneAttemptFixture(t)
	feed, _ := storagetest.Subscription(t, x.Store, x.Owner, "")
	x.Sub, _ = storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/other", "invoice.*")
	catalogue(t.Context(), t, x.Store, "order.paid", `{"number":1001}`)
	catalogue(t.Context(), t, x.Store, "order.bare", "")
	for eventType, code := range map[string]string{"order.none": "unknown_type", "order.bare": "no_example"} {
		_, _, _, err := x.Queue.BeginTest(t.Context(), x.Org(), x.Sub.ID, eventType)
		storagetest.ExpectFault(t, err, fault.Invalid, code)
	}
	var ids []string
	for _, eventType := range []string{"order.paid", ""} {
		_, job, attempt, err := x.Queue.BeginTest(t.Context(), x.Org(), x.Sub.ID, eventType)
		if err != nil {
			t.Fatal(err)
		}
		var body map[string]any
		if err := json.Unmarshal(job.Body, &body); err != nil || body["test"] != true || body["type"] != job.EventType {
			t.Errorf("%v: %s", err, job.Body)
		}
		if eventType != "" && (job.EventType != eventType || !cmp.Equal(body["data"], any(map[string]any{"number": 1001.0}))) {
			t.Errorf("%s: %s", job.EventType, job.Body)
		}
		x.End(t, job, attempt, false)
		ids = append(ids, job.EventID)
		if facts := must[webhook.EventFacts](t)(x.History.EventFacts(t.Context(), x.Org(), job.EventID)); !facts.IsTest {
			t.Errorf("%+v", facts)
		}
	}
	if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{EventTypes: new(webhook.Types{})}); err != nil {
		t.Fatal(err)
	}
	x.Replays(t, everything, 0)
	x.recovers(t, 1, webhook.Recovery{Since: 1})
	page := must[access.Page[webhook.Event]](t)(x.History.EventPage(t.Context(), x.Org(), webhook.EventFilter{Limit: 100, WithoutAudit: true}))
	if got := []string{page.Rows[1].ID, page.Rows[0].ID}; !slices.Equal(got, ids) || !page.Rows[0].Test || !page.Rows[1].Test {
		t.Errorf("listed: %+v", page.Rows)
	}
	for _, state := range []webhook.EventState{webhook.AnyExhausted, webhook.AnyPending, webhook.ForNobody} {
		f := webhook.EventFilter{State: state, Limit: 100, WithoutAudit: true}
		if page := must[access.Page[webhook.Event]](t)(x.History.EventPage(t.Context(), x.Org(), f)); len(page.Rows) > 0 {
			t.Errorf("%s: %+v", state, page.Rows)
		}
	}
	if p := must[webhook.Preview](t)(x.Feeds.PreviewFilter(t.Context(), x.Org(), nil, nil, true)); p.Examined != 0 {
		t.Errorf("%+v", p)
	}
	for _, found := range must[[]webhook.EventType](t)(x.History.EventTypes(t.Context(), x.Org(), "", true)) {
		if found.LastSeenAt != nil || found.Description != "about "+found.Type {
			t.Errorf("%+v", found)
		}
	}
	if page := must[webhook.FeedPage](t)(x.Feeds.Feed(t.Context(), x.Org(), feed.ID, webhook.FeedRequest{Limit: 100, WithoutAudit: true})); len(page.Events) > 0 {
		t.Errorf("in a feed: %+v", page.Events)
	}
}
