package storage_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestRetentionLooksAtFewDeliveries has old events that cannot be deleted yet, so only the size of a batch limits its
// reads.
func TestRetentionLooksAtFewDeliveries(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	x := fixtureOf(t, store)
	must[access.Organization](t)(store.Directory.UpdateOrganization(t.Context(), x.Actor(), x.Owner.Organization.ID,
		access.OrganizationChange{Plan: new("enterprise")}))
	if err := store.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID); err != nil { // it receives audit events, too
		t.Fatal(err)
	}
	for range 400 {
		storagetest.Subscription(t, store, x.Owner, "https://example.com/", "wide")
	}
	future := time.Now().Add(time.Hour).UnixMilli()
	if _, err := store.DeleteEvents(t.Context(), future); err != nil { // the published audit events
		t.Fatal(err)
	}
	for range 5 {
		storagetest.Publish(t, store, x.Owner, "wide")
	}
	const want = 4 // for two events, two events, one event, and none
	if transactions, err := store.DeleteEvents(t.Context(), future); err != nil || transactions != want {
		t.Fatalf("%d transactions have looked at the events, want %d, error %v", transactions, want, err)
	}
}

// TestAnEventIsKeptForItsWholeTime deletes at the last millisecond of an event, and at the next one.
func TestAnEventIsKeptForItsWholeTime(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.disable(t)
	p := storagetest.Publish(t, x.Store, x.Owner, "none")
	for _, after := range []int64{0, 1} {
		if _, err := x.DeleteEvents(t.Context(), p.At+after); err != nil || x.isDeleted(t, p.ID) != (after > 0) {
			t.Errorf("%d ms after its time, deleted: %v, error %v", after, x.isDeleted(t, p.ID), err)
		}
	}
}

// TestReplayAfterAllWasForgotten starts on a file whose events were all deleted. New events must get higher numbers
// than the creation of any subscription. Otherwise a replay takes them for older ones and skips them.
func TestReplayAfterAllWasForgotten(t *testing.T) {
	t.Parallel()
	o := hourlyRetention(t)
	synctest.Test(t, func(t *testing.T) {
		store, stop := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		time.Sleep(time.Hour + 15*time.Second)
		if left, err := store.Events(t.Context(), x.Org(), 0, 1); err != nil || len(left) > 0 {
			t.Fatalf("left: %v, error %v", left, err)
		}
		stop()
		x.Store, stop = storagetest.OpenWith(t, o)
		defer stop()
		x.Missed(t, 2, "missed")
		x.Replays(t, webhook.Replay{Since: 1, Only: webhook.OnlyAll, EventTypes: webhook.Types{"missed"}}, 2)
	})
}

// TestQueryPlansOfRetention runs the statements of retention on old and new rows.
func TestQueryPlansOfRetention(t *testing.T) {
	t.Parallel()
	o := hourlyRetention(t)
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		for _, old := range []bool{true, false} {
			x.Publish(t, 100, "a")
			x.EndAll(t, true)
			if old {
				time.Sleep(time.Hour + time.Minute)
			}
		}
		// The rows of one read, a few hundred at a time, are scanned.
		storagetest.NoneGrows(t, store, map[string]string{
			"FROM events WHERE id > ? ORDER BY id LIMIT": "SCAN e", "SET expired_event": "TEMP B-TREE", "GROUP BY e.organization_id": "SCAN gone",
		})
	})
}
