package storage_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestUntold(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	expect := func(want ...webhook.Untold) {
		t.Helper()
		got, err := x.Untold(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("untold (-want +got):\n%s", diff)
		}
	}
	told := func(untold ...webhook.Untold) {
		t.Helper()
		if err := x.MarkTold(t.Context(), untold); err != nil {
			t.Fatal(err)
		}
	}
	set := func(active bool) webhook.Subscription {
		t.Helper()
		return must[webhook.Subscription](t)(x.UpdateSubscription(t.Context(), x.owner.Actor("127.0.0.1", "test"), x.org(), x.sub.ID, webhook.SubscriptionChange{IsActive: &active}))
	}
	expect()
	disabled := webhook.Untold{Subscription: x.sub.RowID, Organization: x.org(), DisabledAt: set(false).DisabledAt}
	expect(disabled)
	set(true)
	expect() // nobody was told
	told(disabled)
	returned := disabled
	returned.DisabledAt = nil
	expect(returned)
	time.Sleep(2 * time.Millisecond)
	again := disabled
	again.DisabledAt = set(false).DisabledAt
	expect(again) // another outage
	told(again)
	expect()
	if err := x.DeleteSubscription(t.Context(), x.owner.Actor("127.0.0.1", "test"), x.org(), x.sub.ID); err != nil {
		t.Fatal(err)
	}
	expect()
}

func TestAlertState(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	state := map[string]int{"a": 1}
	if err := store.AlertState(t.Context(), &state); err != nil || state["a"] != 1 {
		t.Errorf("without a saved state: %v, error %v", state, err)
	}
	for _, n := range []int{2, 3} {
		if err := store.SaveAlertState(t.Context(), map[string]int{"a": n}); err != nil {
			t.Fatal(err)
		}
		if err := store.AlertState(t.Context(), &state); err != nil || state["a"] != n {
			t.Errorf("state %v, want %d, error %v", state, n, err)
		}
	}
}
