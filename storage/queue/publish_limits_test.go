package queue_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// unlimited makes a fixture on a plan without limits.
func unlimited(t *testing.T) (platform, access.Principal) {
	t.Helper()
	x := newPlatform(t)
	owner, _ := storagetest.Organization(t, x.Store, "acme", "enterprise", access.RoleOwner)
	return x, owner
}

func TestOneRequestMakesABoundedNumberOfDeliveries(t *testing.T) {
	t.Parallel()
	x, owner := unlimited(t)
	for range 100 {
		must[webhook.Subscription](t)(x.Subscribe(t, owner))
	}
	batch := func(n int) []webhook.NewEvent {
		events := make([]webhook.NewEvent, n)
		for i := range events {
			events[i] = webhook.NewEvent{Type: "a", Data: []byte(`{}`)}
		}
		return events
	}
	org := owner.Organization.RowID
	_, err := x.Queue.PublishEvents(t.Context(), org, batch(102))
	f, ok := fault.As(err)
	if !ok || f.Kind != fault.Invalid || f.Code != "too_many_deliveries" {
		t.Fatalf("error %v", err)
	}
	for _, text := range []string{"first 101 of these 102", "10100 deliveries", "at most 10000", "Nothing was published", "at most 100 of these"} {
		if !strings.Contains(f.Message, text) {
			t.Errorf("%q does not say %q", f.Message, text)
		}
	}
	if events := must[[]webhook.Event](t)(x.Events(t.Context(), org, 0, 1)); events[0].Type == "a" {
		t.Error("some of them were published")
	}
	must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), org, batch(100)))
}

// TestFeedsCountInTheLimitsOfARequest has feeds, which get no deliveries. The writer looks at each of them for each event.
func TestFeedsCountInTheLimitsOfARequest(t *testing.T) {
	t.Parallel()
	x, owner := unlimited(t)
	for range 101 {
		storagetest.Subscription(t, x.Store, owner, "", "a")
	}
	batch := slices.Repeat([]webhook.NewEvent{{Type: "a", Data: []byte(`{}`)}}, 1000)
	_, err := x.Queue.PublishEvents(t.Context(), owner.Organization.RowID, batch)
	storagetest.ExpectFault(t, err, fault.Invalid, "too_many_deliveries")
	for _, text := range []string{"first 991 of these 1000", "100091 times", "at most 100000", "Nothing was published", "at most 990 of these"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v does not say %q", err, text)
		}
	}
	must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), owner.Organization.RowID, batch[:990]))
}

func TestNewsAboutHealthIsBounded(t *testing.T) {
	t.Parallel()
	// deactivate makes events about a subscription and returns how many get it.
	deactivate := func(t *testing.T, x platform, organization int64, id string) int {
		t.Helper()
		must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(t.Context(), x.By, organization, id, webhook.SubscriptionChange{IsActive: new(false)}))
		for _, e := range must[[]webhook.Event](t)(x.Events(t.Context(), organization, 0, 2)) {
			if e.Type == access.SubscriptionDisabled {
				return e.Deliveries
			}
		}
		t.Fatal("there is no event")
		return 0
	}
	t.Run("it goes to healthy subscriptions at other hosts", func(t *testing.T) {
		t.Parallel()
		x, owner := unlimited(t)
		for _, url := range []string{"https://EXAMPLE.com:8443/other", "https://example.com./", "https://b.example/", "https://c.example/"} {
			storagetest.Subscription(t, x.Store, owner, url, access.SubscriptionDisabled)
		}
		failing, _ := storagetest.Subscription(t, x.Store, owner, "https://d.example/", access.SubscriptionDisabled)
		if err := x.Queue.Write(t.Context(), func(t *queue.Tx) error {
			return t.WriteHealth(failing.RowID, webhook.Health{Status: webhook.Failing, ConsecutiveFailures: 5, LastError: "timeout", Epoch: 2})
		}); err != nil {
			t.Fatal(err)
		}
		subject, _ := storagetest.Subscription(t, x.Store, owner, "https://example.com/", "a")
		if got := deactivate(t, x, owner.Organization.RowID, subject.ID); got != 2 {
			t.Errorf("%d subscriptions got it, instead of those at b.example and c.example", got)
		}
	})
	t.Run("an organization gets so many of it in a minute and no more", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x, owner := unlimited(t)
			for range 400 {
				storagetest.Subscription(t, x.Store, owner, "https://b.example/", access.SubscriptionDisabled)
			}
			time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
			total := 0
			for range 27 {
				subject, _ := storagetest.Subscription(t, x.Store, owner, "https://a.example/", "a")
				total += deactivate(t, x, owner.Organization.RowID, subject.ID)
			}
			if total != 10_000 {
				t.Errorf("%d deliveries in a minute", total)
			}
			time.Sleep(time.Minute)
			subject, _ := storagetest.Subscription(t, x.Store, owner, "https://a.example/", "a")
			if got := deactivate(t, x, owner.Organization.RowID, subject.ID); got != 400 {
				t.Errorf("%d subscriptions got it in the next minute", got)
			}
		})
	})
}
