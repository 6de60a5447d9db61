package queue_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// eventWithKey is an event with an idempotency key.
func eventWithKey(key, data string) webhook.NewEvent {
	return webhook.NewEvent{Type: "user.created", Data: []byte(data), IdempotencyKey: key, Digest: sha256.Sum256([]byte(data))}
}

func TestPublish(t *testing.T) {
	t.Parallel()

	t.Run("each subscription to the type gets one delivery, active or not", func(t *testing.T) {
		t.Parallel()
		store := storagetest.Open(t)
		owner, _ := storagetest.Organization(t, store, "acme", "growth", access.RoleOwner)
		foreign, _ := storagetest.Organization(t, store, "other", "growth", access.RoleOwner)
		want := map[string]bool{}
		for name, types := range map[string][]string{
			"all": {}, "exact": {"user.created"}, "prefix": {"user.*"}, "both": {"user.*", "user.created", "user.created"},
		} {
			sub, _ := storagetest.Subscription(t, store, owner, "https://example.com/"+name, types...)
			want[sub.ID] = true
		}
		storagetest.Subscription(t, store, owner, "https://example.com/", "user.deleted", "use.*", "user.created.twice")
		storagetest.Subscription(t, store, foreign, "https://example.com/")
		off, _ := storagetest.Subscription(t, store, owner, "https://example.com/")
		no := false
		if _, err := store.Subscriptions.UpdateSubscription(t.Context(), owner.Actor("", ""), owner.Organization.RowID, off.ID, webhook.SubscriptionChange{IsActive: &no}); err != nil {
			t.Fatal(err)
		}
		want[off.ID] = true
		gone, _ := storagetest.Subscription(t, store, owner, "https://example.com/")
		if err := store.Subscriptions.DeleteSubscription(t.Context(), owner.Actor("", ""), owner.Organization.RowID, gone.ID); err != nil {
			t.Fatal(err)
		}
		published := storagetest.Publish(t, store, owner, "user.created")
		_, deliveries, err := store.History.Event(t.Context(), owner.Organization.RowID, published.ID)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, d := range deliveries {
			got[d.SubscriptionID] = true
		}
		if d := cmp.Diff(want, got); d != "" || published.Deliveries != 5 || len(deliveries) != 5 {
			t.Errorf("%d deliveries, %d told (-want +got):\n%s", len(deliveries), published.Deliveries, d)
		}
	})

	t.Run("a plan without webhooks gets no deliveries", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		no := false
		if _, err := x.Directory.UpdatePlan(t.Context(), storagetest.Operator(t, x.Store).Actor("", ""), "growth", access.PlanChange{Webhooks: &no}); err != nil {
			t.Fatal(err)
		}
		if p := storagetest.Publish(t, x.Store, x.Owner, "user.created"); p.Deliveries != 0 || len(x.Jobs(t)) != 0 {
			t.Errorf("%+v, pending %v", p, x.Jobs(t))
		}
	})
}

func TestRepeatedPublish(t *testing.T) {
	t.Parallel()

	t.Run("repeated events get the first answer, whoever comes first", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		var mu sync.Mutex
		var answers []webhook.Published
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				p, err := x.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{eventWithKey("k", `{"n":1}`)})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				answers = append(answers, p...)
				mu.Unlock()
			})
		}
		all.Wait()
		first := 0
		for _, a := range answers {
			if a.ID != answers[0].ID || a.Deliveries != 1 {
				t.Errorf("answers differ: %+v and %+v", a, answers[0])
			}
			if !a.Repeated {
				first++
			}
		}
		if first != 1 || len(x.Jobs(t)) != 1 {
			t.Errorf("%d events, %d deliveries", first, len(x.Jobs(t)))
		}
	})

	t.Run("each event of a repeated batch gets its own answer", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		batch := []webhook.NewEvent{eventWithKey("wanted", `{}`), eventWithKey("unwanted", `{}`), eventWithKey("wanted too", `{}`)}
		batch[1].Type = "other"
		storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/more", "user.created")
		first := must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), x.Org(), batch))
		again := must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), x.Org(), batch))
		for i := range first {
			first[i].Repeated = true
		}
		if d := cmp.Diff(first, again); d != "" || first[0].Deliveries != 2 || first[1].Deliveries != 1 {
			t.Errorf("the answers differ (-first +again):\n%s", d)
		}
	})

	t.Run("another event with the same key is refused with its whole batch", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		if _, err := x.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{eventWithKey("k", `{"n":1}`)}); err != nil {
			t.Fatal(err)
		}
		other := eventWithKey("k", `{"n":3}`)
		other.Path = "events.1."
		_, err := x.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{eventWithKey("new", `{"n":2}`), other})
		f, ok := fault.As(err)
		if !ok || f.Kind != fault.Invalid || f.Fields[0].Field != "events.1.idempotency_key" || f.Fields[0].Code != "idempotency_key_reused" {
			t.Errorf("got %v", err)
		}
		if n := len(x.Jobs(t)); n != 1 {
			t.Errorf("%d pending after a refused batch", n)
		}
	})

	t.Run("another organization may use the same key", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		other, _ := storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
		for _, org := range []int64{x.Org(), other.Organization.RowID} {
			if p, err := x.Queue.PublishEvents(t.Context(), org, []webhook.NewEvent{eventWithKey("k", `{}`)}); err != nil || p[0].Repeated {
				t.Errorf("%+v, %v", p, err)
			}
		}
	})
}

func TestPublishTransaction(t *testing.T) {
	t.Parallel()

	t.Run("the end of the caller's context does not undo a publication", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 {
			_, err := x.Queue.PublishEvents(ctx, x.Org(), []webhook.NewEvent{{Type: "user.created", Data: []byte(`{}`)}})
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		storagetest.Publish(t, x.Store, x.Owner, "last")
	})

	t.Run("one failing write does not harm those that share its commit", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		operator := storagetest.Operator(t, x.Store)
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() { storagetest.Publish(t, x.Store, x.Owner, "user.created") })
			all.Go(func() {
				_, err := x.Directory.CreateUser(t.Context(), operator.Actor("", ""), access.User{Email: "same@example.com", Name: "same", IsActive: true})
				if fault.KindOf(err) != fault.Conflict && err != nil {
					t.Errorf("user %d: %v", i, err)
				}
			})
		}
		all.Wait()
		if n := len(x.Jobs(t)); n < 64 {
			t.Errorf("%d of 64 events are pending", n)
		}
	})
}
