package storage_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestUntold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
		o.Policy = webhook.Policy{MaxAttempts: 5, FailingAfter: 1, DisabledAfter: 2}
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		expect := func(what string, want ...*int64) {
			t.Helper()
			got, err := x.Untold(t.Context(), 0, 10)
			if err != nil {
				t.Fatal(err)
			}
			var all []webhook.Untold
			for _, at := range want {
				all = append(all, webhook.Untold{Subscription: x.Sub.RowID, Organization: x.Org(), DisabledAt: at})
			}
			if diff := cmp.Diff(all, got); diff != "" {
				t.Errorf("%s: untold (-want +got):\n%s", what, diff)
			}
		}
		tell := func(at *int64) {
			t.Helper()
			if err := x.MarkTold(t.Context(), []webhook.Untold{{Subscription: x.Sub.RowID, DisabledAt: at}}); err != nil {
				t.Fatal(err)
			}
		}
		disable := func() *int64 {
			t.Helper()
			time.Sleep(time.Second)
			x.Fail(t, 2)
			return must[webhook.Subscription](t)(x.History.Subscription(t.Context(), x.Org(), x.Sub.ID)).DisabledAt
		}
		expect("a new subscription")
		x.SetActive(t, false)
		expect("paused by hand")
		x.SetActive(t, true)
		first := disable()
		expect("disabled by failures", first)
		x.SetActive(t, true)
		expect("active again before anybody was told")
		tell(first)
		x.SetActive(t, false)
		expect("active again, and paused before anybody was told")
		x.SetActive(t, true)
		expect("active again", nil)
		second := disable()
		if s := must[webhook.Subscription](t)(x.AlertSubject(t.Context(), x.Sub.RowID)); s.ID != x.Sub.ID || s.OrganizationName != "acme" || s.PendingDeliveries == 0 || *s.DisabledAt != *second {
			t.Errorf("subject %+v", s)
		}
		expect("disabled again", second)
		tell(second)
		expect("told")
		if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID); err != nil {
			t.Fatal(err)
		}
		tell(nil)
		expect("deleted")
	})
}

// TestUntoldFailing lists a subscription that fails from the time on at which it has failed for long enough, once for each outage.
func TestUntoldFailing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
		o.Policy = webhook.Policy{MaxAttempts: 9, FailingAfter: 1, DisabledAfter: 4}
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		expect := func(what string, before int64, want ...webhook.Untold) {
			t.Helper()
			if diff := cmp.Diff(want, must[[]webhook.Untold](t)(x.Untold(t.Context(), before, 10))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		for _, outage := range []string{"the first outage", "the second outage"} {
			time.Sleep(time.Hour)
			began := time.Now().UnixMilli()
			x.Fail(t, 1)
			time.Sleep(time.Hour)
			x.Fail(t, 1)
			failing := webhook.Untold{Concern: webhook.LongFailure, Subscription: x.Sub.RowID, Organization: x.Org(), FailingSince: began}
			expect(outage+" is too short", began-1)
			expect(outage, began, failing)
			if err := x.MarkTold(t.Context(), []webhook.Untold{failing}); err != nil {
				t.Fatal(err)
			}
			expect(outage+" was told", began+1)
			x.SetActive(t, true)
		}
		x.Fail(t, 4)
		expect("it is disabled, which is told", time.Now().UnixMilli(), webhook.Untold{
			Subscription: x.Sub.RowID, Organization: x.Org(), DisabledAt: new(time.Now().UnixMilli()),
		})
	})
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
