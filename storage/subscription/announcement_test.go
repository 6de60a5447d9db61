package subscription_test

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestEveryChangeIsAnnounced changes each field alone. The dispatcher keeps what it has read of a subscription until it hears of a
// change, so a field without an announcement would not reach a lane that has deliveries.
func TestEveryChangeIsAnnounced(t *testing.T) {
	t.Parallel()
	text := "text"
	condition, problem := filter.New("amount", filter.Greater, []byte("5"))
	if problem != nil {
		t.Fatal(problem.Message)
	}
	changes := map[string]webhook.SubscriptionChange{
		"URL":         {URL: new("https://other.example.com/")},
		"EventTypes":  {EventTypes: &webhook.Types{"user.deleted"}},
		"AuditEvents": {AuditEvents: new(true)},
		"Description": {Description: &text},
		"IsActive":    {IsActive: new(false)},
		"Ordered":     {Ordered: new(true)},
		"Headers":     {Headers: &[]webhook.Header{header("X-One", "1")}},
		"ExternalID":  {ExternalID: &text},
		"Filter":      {Filter: &filter.Filter{condition}},

		"RateLimitPerSecond": {RateLimitPerSecond: new(new(int64(1)))},
	}
	for field := range reflect.TypeFor[webhook.SubscriptionChange]().Fields() {
		if field.Name == "Secret" {
			continue // only a new subscription has it
		}
		t.Run(field.Name, func(t *testing.T) {
			t.Parallel()
			change, known := changes[field.Name]
			if !known {
				t.Fatal("the test has no change of this field")
			}
			x := storagetest.CustomerOf(t, storagetest.Open(t))
			w := changeCounter{of: x.Sub.RowID}
			x.Queue.Watch(&w)
			if err := x.Change(t, x.Actor(), change); err != nil {
				t.Fatal(err)
			}
			if n := w.named.Load(); n != 1 {
				t.Errorf("the dispatcher hears of %d changes, want 1", n)
			}
		})
	}
}

// TestAnEmptyChange changes nothing, also not the time of the last change, and nobody hears of it.
func TestAnEmptyChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := storagetest.CustomerOf(t, storagetest.Open(t))
		w := changeCounter{of: x.Sub.RowID}
		x.Queue.Watch(&w)
		time.Sleep(time.Second)
		sub, err := x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.SubscriptionChange{})
		if n := w.named.Load(); err != nil || n != 0 || sub.UpdatedAt != x.Sub.UpdatedAt {
			t.Errorf("it was changed at %d, error %v, and the dispatcher hears of %d changes", sub.UpdatedAt, err, n)
		}
	})
}

// TestTheSameFilterAgain is no change of the filter. An explanation compares the time of its change with that of an event.
func TestTheSameFilterAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := storagetest.CustomerOf(t, storagetest.Open(t))
		change := func(value string) int64 {
			t.Helper()
			time.Sleep(time.Second)
			condition, problem := filter.New("amount", filter.Greater, []byte(value))
			if problem != nil {
				t.Fatal(problem.Message)
			}
			if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{Filter: &filter.Filter{condition}}); err != nil {
				t.Fatal(err)
			}
			return *x.Read(t).FilterChangedAt
		}
		first := change("5")
		if again, other := change("5"), change("6"); again != first || other == first {
			t.Errorf("the filter of %d was changed at %d by the same, and at %d by another one", first, again, other)
		}
	})
}
