package storage_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestHeldDeliveries publishes while subscriptions are disabled.
func TestHeldDeliveries(t *testing.T) {
	t.Parallel()

	t.Run("what is published while a subscription is off waits, oldest first, and is sent when it is on", func(t *testing.T) {
		t.Parallel()
		for name, turnOff := range map[string]func(t *testing.T, x fixture){
			"by hand":     func(t *testing.T, x fixture) { x.SetActive(t, false) },
			"by failures": func(t *testing.T, x fixture) { x.Fail(t, 15) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					x := fixtureOf(t, storagetest.Open(t))
					turnOff(t, x)
					before := x.Pending(t)
					var want []string
					for range 3 {
						time.Sleep(time.Second)
						p := storagetest.Publish(t, x.Store, x.Owner, "user.created")
						if p.Deliveries != 1 || p.Held != 1 || p.Notice != "" {
							t.Errorf("published %+v", p)
						}
						want = append(want, p.ID)
					}
					if n := x.Pending(t); n != before+3 {
						t.Errorf("%d are pending, want %d", n, before+3)
					}
					var got []string
					for _, job := range x.Jobs(t) {
						if x.Begin(t, job) != 0 {
							t.Error("an attempt has begun")
						}
						if job.EventType == "user.created" && slices.Contains(want, job.EventID) {
							got = append(got, job.EventID)
						}
					}
					if d := cmp.Diff(want, got); d != "" {
						t.Errorf("order (-want +got):\n%s", d)
					}
					x.SetActive(t, true)
					if x.Begin(t, x.Jobs(t)[0]) == 0 {
						t.Error("no attempt begins")
					}
				})
			})
		}
	})

	t.Run("the answer counts held deliveries, and says why there are none", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		other, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/other", "a", "b")
		deleted, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/deleted", "a")
		if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), deleted.ID); err != nil {
			t.Fatal(err)
		}
		x.SetActive(t, false)
		nobody, _ := storagetest.Organization(t, x.Store, "nobody", "growth", access.RoleOwner)
		free, _ := storagetest.Organization(t, x.Store, "free", "free", access.RoleOwner)
		expect := func(what string, by access.Principal, key string, want webhook.Published) {
			t.Helper()
			events := []webhook.NewEvent{{Type: "a", Data: []byte(`{}`), IdempotencyKey: key}, {Type: "b", Data: []byte(`{}`)}}
			for _, again := range []bool{false, true} {
				published, err := x.Queue.PublishEvents(t.Context(), by.Organization.RowID, events)
				if err != nil {
					t.Fatal(err)
				}
				for i, got := range published {
					want := want
					want.ID, want.At, want.Type, want.Repeated = got.ID, got.At, events[i].Type, again && i == 0
					if again && i > 0 {
						continue // it has no key
					}
					if d := cmp.Diff(want, got); d != "" {
						t.Errorf("%s, again %v (-want +got):\n%s", what, again, d)
					}
				}
				// The answer to a repeated request does not follow later changes.
				x.SetActive(t, again)
				y := x
				y.Sub = other
				y.SetActive(t, again)
			}
			x.SetActive(t, false)
		}
		expect("one of two is off", x.Owner, "1", webhook.Published{Deliveries: 2, Held: 1})
		expect("no subscription", nobody, "2", webhook.Published{Notice: webhook.NoSubscription})
		expect("no webhooks in the plan", free, "3", webhook.Published{Notice: webhook.PlanLacksHooks})
		x.SetWebhooks(t, false)
		expect("no webhooks in the plan any more", x.Owner, "4", webhook.Published{Notice: webhook.PlanLacksHooks})
	})
}

// TestHeldDeliveriesExpire lets retention delete what waits for disabled subscriptions.
func TestHeldDeliveriesExpire(t *testing.T) {
	t.Parallel()
	o := hourlyRetention(t)
	observed := &recordingObserver{}
	o.Observer = observed
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		off, on, deleted := x, x, x
		for _, s := range []*fixture{&off, &on, &deleted} {
			s.Sub, _ = storagetest.Subscription(t, store, x.Owner, "https://example.com/more", "a", "b")
		}
		x.SetActive(t, false)
		off.SetActive(t, false)
		deleted.SetActive(t, false)
		x.Publish(t, 3, "a")
		time.Sleep(time.Minute)
		x.Publish(t, 1200, "c") // only x wants these
		if err := store.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), deleted.Sub.ID); err != nil {
			t.Fatal(err)
		}
		on.EndAll(t, true)
		time.Sleep(time.Hour + 2*time.Minute)
		fresh := x.Publish(t, 2, "b")
		time.Sleep(time.Minute)
		for name, want := range map[string]struct {
			fixture
			expired, pending int64
		}{
			"disabled": {off, 3, 2}, "active": {on, 0, 2}, "disabled, and wants all": {x, -1, 2},
		} {
			counts := series(t, store, x.Org(), want.Sub.ID)
			if n := want.fixture.Pending(t); n != want.pending || want.expired >= 0 && counts.Expired != want.expired || counts.Failed != 0 {
				t.Errorf("%s: %d pending, want %d; counts %+v, want %d expired", name, n, want.pending, counts, want.expired)
			}
		}
		all := series(t, store, x.Org(), "")
		if want := series(t, store, x.Org(), x.Sub.ID).Expired + 3; all.Expired != want || want < 1206 || observed.expired != int(want) {
			t.Errorf("%d expired in all, and %d are observed, want %d", all.Expired, observed.expired, want)
		}
		for _, id := range fresh {
			if x.isDeleted(t, id) {
				t.Error("an event was deleted before its time")
			}
		}
	})
}

// series sums the counts of the last day.
func series(t *testing.T, store *storage.Store, organization int64, subscription string) (sum webhook.AttemptCounts) {
	t.Helper()
	now := time.Now().Unix() / 60
	points, err := store.History.Series(t.Context(), organization, subscription, now-24*60, now+1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range points {
		sum.Merge(p.AttemptCounts)
	}
	return sum
}

// TestAnExpiryThatIsUndone rolls the transaction back that deletes held deliveries.
func TestAnExpiryThatIsUndone(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.SetActive(t, false)
	x.Publish(t, 2, "a")
	before := x.Pending(t)
	storagetest.Refuse(t, x.Store, "DELETE ON events", "true")
	if _, err := x.DeleteEvents(t.Context(), time.Now().Add(time.Hour).UnixMilli()); err == nil {
		t.Fatal("the trigger refuses nothing")
	}
	if n := x.Pending(t); n != before || series(t, x.Store, x.Org(), x.Sub.ID).Expired != 0 {
		t.Errorf("%d pending, want %d", n, before)
	}
}
