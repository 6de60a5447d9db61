package queue_test

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// storedEvent is an event that counts as 10,000 bytes: 450, its type and its data.
var storedEvent = webhook.NewEvent{Type: "a", Data: []byte(`"` + strings.Repeat("x", 10_000-450-1-2) + `"`)}

// withQuota creates a fixture whose plan allows this many more bytes today.
func withQuota(t *testing.T, store *storage.Store, bytes int64) (platform, access.Principal) {
	t.Helper()
	x := platform{storagetest.PlatformOf(t, store)}
	must[access.Plan](t)(x.Directory.CreatePlan(t.Context(), x.By, access.Plan{Name: "bounded", APIKeys: true, Webhooks: true}))
	owner, _ := storagetest.Organization(t, store, "acme", "bounded", access.RoleOwner)
	x.allow(t, owner, bytes)
	return x, owner
}

// allow sets the limit of the plan to this many bytes above the bytes stored today.
func (x platform) allow(t *testing.T, owner access.Principal, bytes int64) {
	t.Helper()
	stored := must[int64](t)(x.StoredToday(t.Context(), owner.Organization.RowID))
	must[access.Plan](t)(x.Directory.UpdatePlan(t.Context(), x.By, "bounded",
		access.PlanChange{MaxStoredBytes: new(new(stored + bytes))}))
}

func (x platform) publish(t *testing.T, by access.Principal, events ...webhook.NewEvent) error {
	_, err := x.Queue.PublishEvents(t.Context(), by.Organization.RowID, events)
	return err
}

// overQuota checks that an error reports the used-up quota.
func overQuota(t *testing.T, err error) {
	t.Helper()
	f, ok := fault.As(err)
	if !ok || f.Kind != fault.Limited || f.Code != "storage_quota_exceeded" ||
		!strings.Contains(f.Message, `"bounded"`) || !strings.Contains(f.Message, "max_stored_bytes_per_day") {
		t.Errorf("error %v", err)
	}
}

func TestStorageQuota(t *testing.T) {
	t.Parallel()
	t.Run("twenty parallel publishers store only as much as the plan allows", func(t *testing.T) {
		t.Parallel()
		x, owner := withQuota(t, storagetest.Open(t), 75_000)
		var made atomic.Int64
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if err := x.publish(t, owner, storedEvent); err == nil {
					made.Add(1)
				} else {
					overQuota(t, err)
				}
			})
		}
		all.Wait()
		if made.Load() != 7 {
			t.Errorf("%d were published", made.Load())
		}
	})
	t.Run("a batch that does not fit is refused whole, and a smaller one fits", func(t *testing.T) {
		t.Parallel()
		x, owner := withQuota(t, storagetest.Open(t), 25_000)
		before := must[int64](t)(x.StoredToday(t.Context(), owner.Organization.RowID))
		overQuota(t, x.publish(t, owner, storedEvent, storedEvent, storedEvent))
		if after := must[int64](t)(x.StoredToday(t.Context(), owner.Organization.RowID)); after != before {
			t.Errorf("the refusal counted %d bytes", after-before)
		}
		if err := x.publish(t, owner, storedEvent, storedEvent); err != nil {
			t.Error(err)
		}
		overQuota(t, x.publish(t, owner, storedEvent))
	})
	t.Run("deliveries count towards the quota", func(t *testing.T) {
		t.Parallel()
		x, owner := withQuota(t, storagetest.Open(t), 1_000_000)
		for range 100 {
			storagetest.Subscription(t, x.Store, owner, "https://example.com/", "a")
		}
		x.allow(t, owner, 19_999)
		overQuota(t, x.publish(t, owner, storedEvent))
		x.allow(t, owner, 20_000)
		if err := x.publish(t, owner, storedEvent); err != nil {
			t.Error(err)
		}
	})
	t.Run("a repeated event is answered beyond the limit", func(t *testing.T) {
		t.Parallel()
		x, owner := withQuota(t, storagetest.Open(t), 10_500)
		e := storedEvent
		e.IdempotencyKey = "once"
		for range 2 {
			if err := x.publish(t, owner, e); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("additions are refused; changes and withdrawals are not", testBeyondQuota)
	t.Run("what the same transaction has stored counts, also after a change of the plan", func(t *testing.T) {
		t.Parallel()
		x, owner := withQuota(t, storagetest.Open(t), 15_000)
		org := owner.Organization.RowID
		before := must[int64](t)(x.StoredToday(t.Context(), org))
		if err := x.Queue.Write(t.Context(), func(tx *queue.Tx) error {
			err := x.PublishEventIn(tx, org, storedEvent)
			tx.ForgetQuotas()
			if stored := must[int64](t)(tx.StoredToday(org)); stored != before+10_000 {
				t.Errorf("%d bytes more are counted in the transaction", stored-before)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		overQuota(t, x.publish(t, owner, storedEvent))
	})
	t.Run("a failed transaction counts nothing", func(t *testing.T) {
		t.Parallel()
		x, owner := withQuota(t, storagetest.Open(t), 10_500)
		org := owner.Organization.RowID
		if err := x.Queue.Write(t.Context(), func(tx *queue.Tx) error {
			if err := x.PublishIn(tx, org, "a"); err != nil {
				return err
			}
			return tx.Run("no statement")
		}); err == nil {
			t.Fatal("the transaction did not fail")
		}
		if err := x.publish(t, owner, storedEvent); err != nil {
			t.Error(err)
		}
		overQuota(t, x.publish(t, owner, storedEvent))
	})
	t.Run("each delivery counts, of an event and of a replay", testDeliveriesCount)
	t.Run("the enterprise plan has no limit", func(t *testing.T) {
		t.Parallel()
		store := storagetest.Open(t)
		if plan := must[access.Plan](t)(store.Directory.Plan(t.Context(), "enterprise")); plan.MaxStoredBytes != nil {
			t.Errorf("limit %d", *plan.MaxStoredBytes)
		}
	})
}

func testDeliveriesCount(t *testing.T) {
	t.Parallel()
	x, owner := withQuota(t, storagetest.Open(t), 1_000_000)
	org := owner.Organization.RowID
	sub := must[webhook.Subscription](t)(x.Subscribe(t, owner))
	counts := func(do func() error) int64 {
		before := must[int64](t)(x.StoredToday(t.Context(), org))
		if err := do(); err != nil {
			t.Fatal(err)
		}
		return must[int64](t)(x.StoredToday(t.Context(), org)) - before
	}
	publish := func(eventType string, n int) int64 {
		return counts(func() error {
			return x.publish(t, owner, slices.Repeat([]webhook.NewEvent{{Type: eventType, Data: []byte("{}")}}, n)...)
		})
	}
	if wanted, unwanted := publish("a", 3), publish("b", 3); wanted != unwanted+300 {
		t.Errorf("3 events count %d bytes with a delivery each, and %d without", wanted, unwanted)
	}
	publish("c", 1)
	must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(t.Context(), owner.Actor("", ""), org, sub.ID,
		webhook.SubscriptionChange{EventTypes: &webhook.Types{"b", "c"}}))
	replay := func(eventType string) int64 {
		return counts(func() error {
			_, err := x.Queue.Replay(t.Context(), owner.Actor("", ""), org, sub.ID, webhook.Replay{Only: webhook.OnlyMissed, EventTypes: webhook.Types{eventType}})
			return err
		})
	}
	if three, one := replay("b"), replay("c"); three != one+200 {
		t.Errorf("replays count %d bytes for 3 deliveries, and %d for 1", three, one)
	}
}

func testBeyondQuota(t *testing.T) {
	t.Parallel()
	x, owner := withQuota(t, storagetest.Open(t), 1_000_000)
	ctx, org, by := t.Context(), owner.Organization.RowID, owner.Actor("", "")
	sub := must[webhook.Subscription](t)(x.Subscribe(t, owner))
	key := must[access.Key](t)(x.Create(t, owner, access.EventsRead))
	if err := x.publish(t, owner, webhook.NewEvent{Type: "b", Data: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(ctx, by, org, sub.ID, webhook.SubscriptionChange{EventTypes: &webhook.Types{"a", "b"}}))
	if _, _, _, err := x.Queue.BeginTest(ctx, org, sub.ID, ""); err != nil {
		t.Fatal(err)
	}
	attempts := must[[]webhook.Attempt](t)(x.Attempts(ctx, org, sub.ID, webhook.AttemptFilter{Limit: 1}))
	catalogue(ctx, t, x.Store, "large", `{"x":"`+strings.Repeat("x", 10_000)+`"}`)
	x.allow(t, owner, 10_000)
	_, _, _, err := x.Queue.BeginTest(ctx, org, sub.ID, "large")
	overQuota(t, err)
	x.allow(t, owner, 0)

	_, err = x.Subscribe(t, owner)
	overQuota(t, err)
	_, err = x.Create(t, owner, access.EventsRead)
	overQuota(t, err)
	_, err = x.Directory.RotateKey(ctx, owner, by, key.ID, access.Mint("svc"), time.Hour)
	overQuota(t, err)
	_, _, err = x.Subscriptions.RotateSecret(ctx, by, org, sub.ID, webhook.Rotation{Overlap: time.Hour})
	overQuota(t, err)
	_, _, _, err = x.Queue.BeginTest(ctx, org, sub.ID, "")
	overQuota(t, err)
	overQuota(t, x.Queue.Redeliver(ctx, by, org, sub.ID, attempts[0].ID))
	if n, err := x.Queue.Replay(ctx, by, org, sub.ID, webhook.Replay{Only: webhook.OnlyMissed, DryRun: true}); n.TypeAdded != 1 || err != nil {
		t.Errorf("a replay would make %+v deliveries, error %v", n, err)
	}
	_, err = x.Queue.Replay(ctx, by, org, sub.ID, webhook.Replay{Only: webhook.OnlyMissed})
	overQuota(t, err)

	for _, active := range []bool{false, true} {
		must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(ctx, by, org, sub.ID, webhook.SubscriptionChange{IsActive: &active}))
	}
	if err := x.Directory.RevokeKey(ctx, by, org, key.ID); err != nil {
		t.Error(err)
	}
	if err := x.Subscriptions.DeleteSubscription(ctx, by, org, sub.ID); err != nil {
		t.Error(err)
	}
}

// TestChangesBeyondTheQuota are refused 10 MB beyond the limit, and a pause is not.
func TestChangesBeyondTheQuota(t *testing.T) {
	t.Parallel()
	x, owner := withQuota(t, storagetest.Open(t), 1_000_000)
	sub, _ := storagetest.Subscription(t, x.Store, owner, "https://example.com/")
	change := func(c webhook.SubscriptionChange) error {
		_, err := x.Subscriptions.UpdateSubscription(t.Context(), owner.Actor("", ""), owner.Organization.RowID, sub.ID, c)
		return err
	}
	storagetest.Exec(t, x.Store, "UPDATE organization_days SET stored_bytes = 20000000 WHERE organization_id = ?", owner.Organization.RowID)
	x.allow(t, owner, 0) // the count is read again
	x.allow(t, owner, -10_000_000)
	overQuota(t, change(webhook.SubscriptionChange{Description: new("x")}))
	if err := change(webhook.SubscriptionChange{IsActive: new(false)}); err != nil {
		t.Error(err)
	}
	for _, isActive := range []bool{false, true} { // neither withdraws anything
		overQuota(t, change(webhook.SubscriptionChange{IsActive: &isActive}))
	}
}

func TestStorageQuotaOverTime(t *testing.T) {
	t.Parallel()
	t.Run("a restart keeps what was stored today", func(t *testing.T) {
		t.Parallel()
		o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
		synctest.Test(t, func(t *testing.T) {
			store, stop := storagetest.OpenWith(t, o)
			x, owner := withQuota(t, store, 10_000)
			if err := x.publish(t, owner, storedEvent); err != nil {
				t.Fatal(err)
			}
			stop()
			x.Store, _ = storagetest.OpenWith(t, o)
			overQuota(t, x.publish(t, owner, storedEvent))
		})
	})
	t.Run("the next UTC day starts at zero, and the counts of old days are deleted", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		synctest.Test(t, func(t *testing.T) {
			o := storagetest.Options(t, path)
			store, stop := storagetest.OpenWith(t, o)
			x, owner := withQuota(t, store, 10_000)
			org := owner.Organization.RowID
			// later lets time pass while the store is closed, because an open one does upkeep each second.
			later := func(d time.Duration) {
				stop()
				time.Sleep(d)
				x.Store, stop = storagetest.OpenWith(t, o)
			}
			if err := x.publish(t, owner, storedEvent); err != nil {
				t.Fatal(err)
			}
			midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
			later(time.Until(midnight) - time.Second)
			overQuota(t, x.publish(t, owner, storedEvent))
			time.Sleep(time.Second)
			if err := x.publish(t, owner, storedEvent); err != nil {
				t.Error(err)
			}
			if stored := must[int64](t)(x.StoredToday(t.Context(), org)); stored != 10_000 {
				t.Errorf("%d bytes are counted on the new day", stored)
			}
			later(400 * 24 * time.Hour)
			time.Sleep(61 * time.Second)
			if days := must[int](t)(x.StorageDays(t.Context(), org)); days != 2 {
				t.Errorf("%d days are kept while the clock is doubted", days)
			}
			if err := x.AcceptClock(t.Context(), x.By); err != nil {
				t.Fatal(err)
			}
			time.Sleep(61 * time.Second)
			if days := must[int](t)(x.StorageDays(t.Context(), org)); days != 1 {
				t.Errorf("%d days are kept instead of that of 400 days ago", days)
			}
		})
	})
}
