package queue_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// atLeast is passed by events whose amount is at least n.
func atLeast(t testing.TB, n int) filter.Filter {
	t.Helper()
	c, problem := filter.New("amount", filter.GreaterOrEqual, fmt.Append(nil, n))
	if problem != nil {
		t.Fatal(problem)
	}
	return filter.Filter{c}
}

// setFilter changes the filter of the subscription.
func (x fixture) setFilter(t *testing.T, f filter.Filter) {
	t.Helper()
	changed, err := x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.SubscriptionChange{Filter: &f})
	if err != nil || changed.Filter.Text() != f.Text() || changed.FilterChangedAt == nil {
		t.Fatalf("%+v, %v", changed, err)
	}
}

// amount publishes an event with that amount.
func (x fixture) amount(t *testing.T, n int, key string) webhook.Published {
	t.Helper()
	published, err := x.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{{Type: "order.paid", Data: fmt.Appendf(nil, `{"amount":%d}`, n), IdempotencyKey: key}})
	if err != nil {
		t.Fatal(err)
	}
	return published[0]
}

func TestFilteredEvents(t *testing.T) {
	t.Parallel()
	x := newOneAttemptFixture(t)
	x.setFilter(t, atLeast(t, 100))
	if p := x.amount(t, 100, "a"); p.Deliveries != 1 || p.Notice != "" {
		t.Errorf("%+v", p)
	}
	first := x.amount(t, 99, "b")
	if first.Deliveries != 0 || first.Notice != webhook.AllFiltered {
		t.Errorf("%+v", first)
	}
	again := x.amount(t, 99, "b")
	if first.Repeated = true; again != first {
		t.Errorf("repeated: %+v, first %+v", again, first)
	}
	other, err := x.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{{Type: "order.paid", Data: []byte(`{}`)}})
	if err != nil || other[0].Notice != webhook.AllFiltered {
		t.Errorf("%+v, %v", other, err)
	}
	x.SetWebhooks(t, false)
	if p := x.amount(t, 1, ""); p.Notice != webhook.PlanLacksHooks {
		t.Errorf("%+v", p)
	}
	x.SetWebhooks(t, true)
	x.setFilter(t, nil)
	if p := x.amount(t, 1, ""); p.Deliveries != 1 {
		t.Errorf("%+v", p)
	}
	if n := x.Pending(t); n != 2 {
		t.Errorf("%d are pending", n)
	}
}

// TestReplaysKeepToTheFilter has events of before and after changes of the filter.
func TestReplaysKeepToTheFilter(t *testing.T) {
	t.Parallel()
	x := newOneAttemptFixture(t)
	x.setFilter(t, atLeast(t, 100))
	for _, n := range []int{10, 50, 100, 200} {
		x.amount(t, n, "")
	}
	x.EndAll(t, false) // 100 and 200 end exhausted
	count := func(o webhook.Only) webhook.Replayed {
		t.Helper()
		return must[webhook.Replayed](t)(x.CountReplay(t.Context(), only(o)))
	}
	if d := cmp.Diff(webhook.Replayed{Exhausted: 2}, count(webhook.OnlyAll)); d != "" {
		t.Errorf("the same filter (-want +got):\n%s", d)
	}
	time.Sleep(2 * time.Millisecond)
	x.setFilter(t, atLeast(t, 150))
	if d := cmp.Diff(webhook.Replayed{Exhausted: 1}, count(webhook.OnlyAll)); d != "" {
		t.Errorf("a narrower filter (-want +got):\n%s", d)
	}
	r := must[webhook.Recovery](t)(x.Queue.Recover(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.RecoveryRequest{Since: 1}))
	if r.Deliveries != 1 {
		t.Errorf("the recovery sends %d", r.Deliveries)
	}
	x.EndAll(t, true)
	x.setFilter(t, atLeast(t, 50))
	if d := cmp.Diff(webhook.Replayed{Exhausted: 1, FilterChanged: 1}, count(webhook.OnlyAll)); d != "" {
		t.Errorf("a wider filter (-want +got):\n%s", d)
	}
	x.Replays(t, only(webhook.OnlyMissed), 1)
	x.setFilter(t, nil)
	if d := cmp.Diff(webhook.Replayed{Exhausted: 1, FilterChanged: 1}, count(webhook.OnlyAll)); d != "" {
		t.Errorf("no filter (-want +got):\n%s", d)
	}
}

// TestAFilterIsExplained reads the facts of events that do not pass. One of them has a delivery from before the filter changed.
func TestAFilterIsExplained(t *testing.T) {
	t.Parallel()
	x := newOneAttemptFixture(t)
	x.setFilter(t, atLeast(t, 100))
	refused, passed := x.amount(t, 99, "").ID, x.amount(t, 100, "").ID
	seen := func(event string) string {
		t.Helper()
		e := must[webhook.EventFacts](t)(x.History.EventFacts(t.Context(), x.Org(), event))
		page := must[access.Page[webhook.ReceiverFacts]](t)(x.History.ReceiverPage(t.Context(), x.Org(), e, webhook.ReceiverFilter{Limit: 10}))
		if missed := page.Rows[0].Missed; missed != nil {
			return missed.Condition.Path + " " + missed.Seen
		}
		return ""
	}
	if a, b := seen(refused), seen(passed); a != "amount 99" || b != "" {
		t.Errorf("what does not pass: %q, %q", a, b)
	}
	time.Sleep(2 * time.Millisecond)
	x.setFilter(t, atLeast(t, 150))
	if a, b := seen(refused), seen(passed); a != "amount 99" || b != "amount 100" {
		t.Errorf("what does not pass the next filter: %q, %q", a, b)
	}
}

// TestFiltersCountInTheLimitsOfARequest has more subscriptions than one request may create deliveries, and each event passes the filter
// of one.
func TestFiltersCountInTheLimitsOfARequest(t *testing.T) {
	t.Parallel()
	x := newOneAttemptFixture(t)
	x.setFilter(t, atLeast(t, 1_000_000))
	for range 99 {
		f := atLeast(t, 1_000_000)
		if _, _, err := x.Subscriptions.CreateSubscription(t.Context(), x.Actor(), x.Org(), webhook.SubscriptionChange{
			URL: new("https://example.com/"), EventTypes: &webhook.Types{"order.*"}, Filter: &f,
		}); err != nil {
			t.Fatal(err)
		}
	}
	event := webhook.NewEvent{Type: "order.paid", Data: []byte(`{"amount":7}`)}
	published, err := x.Queue.PublishEvents(t.Context(), x.Org(), slices.Repeat([]webhook.NewEvent{event}, 1000))
	if err != nil || published[999].Notice != webhook.AllFiltered {
		t.Fatalf("%v", err)
	}
	for name, events := range map[string][]webhook.NewEvent{
		"too many filters":   slices.Repeat([]webhook.NewEvent{event}, 1001),
		"too much to search": slices.Repeat([]webhook.NewEvent{{Type: "order.paid", Data: []byte(`{"a":"` + strings.Repeat("a", 200_000) + `"}`)}}, 21),
	} {
		_, err := x.Queue.PublishEvents(t.Context(), x.Org(), events)
		if f, _ := fault.As(err); f == nil || f.Code != "too_many_filters" || !strings.Contains(f.Message, fmt.Sprintf("at most %d of these events", len(events)-1)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFiltersBeyondTheMemoryCountMore has larger filters than the writer keeps, so it reads some of them for each event of a batch.
func TestFiltersBeyondTheMemoryCountMore(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	owner, _ := storagetest.Organization(t, store, "acme", "enterprise", access.RoleOwner)
	organization := owner.Organization.RowID
	large, problem := filter.New("text", filter.Equal, []byte(`"`+strings.Repeat("x", 3900)+`"`))
	if problem != nil {
		t.Fatal(problem)
	}
	for range 900 {
		if _, _, err := store.Subscriptions.CreateSubscription(t.Context(), owner.Actor("", ""), organization, webhook.SubscriptionChange{
			URL: new("https://example.com/"), EventTypes: &webhook.Types{"wide"}, Filter: &filter.Filter{large},
		}); err != nil {
			t.Fatal(err)
		}
	}
	event := webhook.NewEvent{Type: "wide", Data: []byte(`{"text":"other"}`)}
	if _, err := store.Queue.PublishEvents(t.Context(), organization, slices.Repeat([]webhook.NewEvent{event}, 2)); err != nil {
		t.Errorf("two events: %v", err)
	}
	_, err := store.Queue.PublishEvents(t.Context(), organization, slices.Repeat([]webhook.NewEvent{event}, 10))
	if f, _ := fault.As(err); f == nil || f.Code != "too_many_filters" {
		t.Errorf("ten events: %v", err)
	}
}
