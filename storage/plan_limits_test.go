package storage_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// withLimits creates a fixture with a plan of its own.
func withLimits(t *testing.T, subscriptions, keys *int64) (platform, access.Principal) {
	t.Helper()
	store := storagetest.Open(t)
	operator := storagetest.Operator(t, store)
	x := platform{store, operator, operator.Actor("", "")}
	must[access.Plan](t)(x.CreatePlan(t.Context(), x.by, access.Plan{
		Name: "bounded", APIKeys: true, Webhooks: true, MaxSubscriptions: subscriptions, MaxAPIKeys: keys,
	}))
	owner, _ := storagetest.Tenant(t, store, "acme", "bounded", access.RoleOwner)
	return x, owner
}

func (x platform) subscribe(t *testing.T, by access.Principal) (webhook.Subscription, error) {
	sub, _, err := x.CreateSubscription(t.Context(), by.Actor("", ""), by.Organization.RowID,
		webhook.SubscriptionChange{URL: new("https://example.com/"), EventTypes: &webhook.Types{"a"}})
	return sub, err
}

// requireLimitReached checks that an error names the limit.
func requireLimitReached(t *testing.T, err error, says ...string) {
	t.Helper()
	f, ok := fault.As(err)
	if !ok || f.Kind != fault.Conflict || f.Code != "limit_reached" {
		t.Fatalf("error %v", err)
	}
	for _, text := range says {
		if !strings.Contains(f.Message, text) {
			t.Errorf("%q does not say %q", f.Message, text)
		}
	}
}

// callTwentyTimes makes twenty parallel calls and returns how many did not reach a limit.
func callTwentyTimes(t *testing.T, call func() error) int64 {
	var made atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := call(); err == nil {
				made.Add(1)
			} else if fault.KindOf(err) != fault.Conflict {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return made.Load()
}

func TestPlanLimits(t *testing.T) {
	t.Parallel()
	t.Run("twenty parallel requests create only as many subscriptions as the plan allows", func(t *testing.T) {
		t.Parallel()
		x, owner := withLimits(t, new(int64(7)), nil)
		if made := callTwentyTimes(t, func() error { _, err := x.subscribe(t, owner); return err }); made != 7 {
			t.Errorf("%d were made", made)
		}
		_, err := x.subscribe(t, owner)
		requireLimitReached(t, err, `"bounded"`, "max_subscriptions", "allows 7", "has 7", "at most 5000")
	})
	t.Run("twenty parallel requests create only as many keys as the plan allows", func(t *testing.T) {
		t.Parallel()
		x, owner := withLimits(t, nil, new(int64(7)))
		if made := callTwentyTimes(t, func() error { _, err := x.create(t, owner, access.EventsRead); return err }); made != 7 {
			t.Errorf("%d were made", made)
		}
		_, err := x.create(t, owner, access.EventsRead)
		requireLimitReached(t, err, `"bounded"`, "max_api_keys", "allows 7", "has 7", "at most 10000")
	})
	t.Run("a deleted subscription makes room, and a disabled one can be activated at the limit", func(t *testing.T) {
		t.Parallel()
		x, owner := withLimits(t, new(int64(1)), nil)
		first := must[webhook.Subscription](t)(x.subscribe(t, owner))
		org := owner.Organization.RowID
		for _, active := range []bool{false, true} {
			must[webhook.Subscription](t)(x.UpdateSubscription(t.Context(), x.by, org, first.ID, webhook.SubscriptionChange{IsActive: &active}))
		}
		if err := x.DeleteSubscription(t.Context(), x.by, org, first.ID); err != nil {
			t.Fatal(err)
		}
		must[webhook.Subscription](t)(x.subscribe(t, owner))
		_, err := x.subscribe(t, owner)
		requireLimitReached(t, err)
	})
	t.Run("revoked and expired keys make room", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x, owner := withLimits(t, nil, new(int64(1)))
			first := must[access.Key](t)(x.create(t, owner, access.EventsRead))
			if err := x.RevokeKey(t.Context(), x.by, owner.Organization.RowID, first.ID); err != nil {
				t.Fatal(err)
			}
			must[access.Key](t)(x.CreateKey(t.Context(), owner, x.by, access.NewKey{
				Credential: access.Mint("svc"), Name: "short", Scope: access.NewScope(access.EventsRead),
				ExpiresAt: new(time.Now().Add(time.Minute).UnixMilli()),
			}))
			_, err := x.create(t, owner, access.EventsRead)
			requireLimitReached(t, err)
			time.Sleep(time.Minute + time.Second)
			must[access.Key](t)(x.create(t, owner, access.EventsRead))
		})
	})
}

func TestPlanLimitsOfRotation(t *testing.T) {
	t.Parallel()

	t.Run("an organization at its limit can rotate with a grace period, which makes no room", func(t *testing.T) {
		t.Parallel()
		x, owner := withLimits(t, nil, new(int64(2)))
		first := must[access.Key](t)(x.create(t, owner, access.EventsRead))
		must[access.Key](t)(x.create(t, owner, access.EventsRead))
		made, _ := x.rotated(t, owner, first.ID, time.Hour)
		x.rotated(t, owner, made.ID, time.Hour)
		_, err := x.create(t, owner, access.EventsRead)
		requireLimitReached(t, err, "has 2")
	})
	t.Run("rotation keeps a bounded number of keys alive", func(t *testing.T) {
		t.Parallel()
		x, owner := withLimits(t, nil, new(int64(2)))
		newest := must[access.Key](t)(x.create(t, owner, access.EventsRead))
		for range 10 {
			made, _ := x.rotated(t, owner, newest.ID, time.Hour)
			newest = made.Key
		}
		_, _, err := x.rotate(t, owner, newest.ID, time.Hour)
		requireLimitReached(t, err, "has 10 rotated", `"bounded"`, "max_api_keys", "grace_seconds 0")
		made, _ := x.rotated(t, owner, newest.ID, 0)
		if err := x.RevokeKey(t.Context(), x.by, owner.Organization.RowID, *newest.Replaces); err != nil {
			t.Fatal(err)
		}
		x.rotated(t, owner, made.ID, time.Hour)
	})
	t.Run("every key beyond a lowered limit can be rotated with a grace period", func(t *testing.T) {
		t.Parallel()
		x, owner := withLimits(t, nil, nil)
		var keys []access.Key
		for range 12 {
			keys = append(keys, must[access.Key](t)(x.create(t, owner, access.EventsRead)))
		}
		must[access.Plan](t)(x.UpdatePlan(t.Context(), x.by, "bounded", access.PlanChange{SetMaxAPIKeys: true, MaxAPIKeys: new(int64(1))}))
		for _, k := range keys {
			x.rotated(t, owner, k.ID, time.Hour)
		}
	})
}

func TestLoweredPlan(t *testing.T) {
	t.Parallel()

	t.Run("a lowered limit deletes nothing and stops creation", func(t *testing.T) {
		t.Parallel()
		x, owner := withLimits(t, new(int64(3)), new(int64(3)))
		for range 2 {
			must[webhook.Subscription](t)(x.subscribe(t, owner))
			must[access.Key](t)(x.create(t, owner, access.EventsRead))
		}
		lowered := must[access.Plan](t)(x.UpdatePlan(t.Context(), x.by, "bounded",
			access.PlanChange{SetMaxSubscriptions: true, MaxSubscriptions: new(int64(1)), SetMaxAPIKeys: true, MaxAPIKeys: new(int64(0))}))
		if *lowered.MaxSubscriptions != 1 || *lowered.MaxAPIKeys != 0 {
			t.Errorf("%+v", lowered)
		}
		_, err := x.subscribe(t, owner)
		requireLimitReached(t, err, "allows 1", "has 2")
		_, err = x.create(t, owner, access.EventsRead)
		requireLimitReached(t, err, "allows 0", "has 2")
		subs, err := x.Subscriptions(t.Context(), owner.Organization.RowID, "", 0, 10)
		keys, err2 := x.Keys(t.Context(), owner.Organization.RowID, access.Active, time.Now().UnixMilli(), 0, 10)
		if len(subs) != 2 || len(keys) != 2 || errors.Join(err, err2) != nil {
			t.Errorf("%d subscriptions and %d keys are left, errors %v %v", len(subs), len(keys), err, err2)
		}
	})
	t.Run("a plan without a limit has the limit of Keyhook", func(t *testing.T) {
		t.Parallel()
		x, owner := withLimits(t, nil, nil)
		sub := must[webhook.Subscription](t)(x.subscribe(t, owner))
		if err := x.Write(t.Context(), func(t *storage.Tx) error {
			return t.Run(`
				WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
				INSERT INTO subscriptions (public_id, organization_id, url, event_types, audit_events, description, status, consecutive_failures,
					last_error, epoch, probe_at, secret, previous_until, birth, created_at, updated_at)
				SELECT public_id || i, organization_id, url, event_types, audit_events, description, status, 0, '', 1, 0, secret, 0, birth, 0, 0
				FROM subscriptions, n WHERE id = ?`, sub.RowID)
		}); err != nil {
			t.Fatal(err)
		}
		_, err := x.subscribe(t, owner)
		requireLimitReached(t, err, `"bounded"`, "sets no max_subscriptions", "5000")
	})
}

func TestOneRequestMakesABoundedNumberOfDeliveries(t *testing.T) {
	t.Parallel()
	x, owner := withLimits(t, nil, nil)
	for range 100 {
		must[webhook.Subscription](t)(x.subscribe(t, owner))
	}
	batch := func(n int) []webhook.NewEvent {
		events := make([]webhook.NewEvent, n)
		for i := range events {
			events[i] = webhook.NewEvent{Type: "a", Data: []byte(`{}`)}
		}
		return events
	}
	org := owner.Organization.RowID
	_, err := x.PublishEvents(t.Context(), org, batch(102))
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
	must[[]webhook.Published](t)(x.PublishEvents(t.Context(), org, batch(100)))
}

func TestNewsAboutHealthIsBounded(t *testing.T) {
	t.Parallel()
	// deactivate causes events about a subscription and returns how many receive them.
	deactivate := func(t *testing.T, x platform, organization int64, id string) int {
		t.Helper()
		must[webhook.Subscription](t)(x.UpdateSubscription(t.Context(), x.by, organization, id, webhook.SubscriptionChange{IsActive: new(false)}))
		for _, e := range must[[]webhook.Event](t)(x.Events(t.Context(), organization, 0, 2)) {
			if e.Type == access.SubscriptionDisabled {
				return e.Deliveries
			}
		}
		t.Fatal("there is no event")
		return 0
	}
	t.Run("events about health go to healthy subscriptions at other hosts", func(t *testing.T) {
		t.Parallel()
		x, owner := withLimits(t, nil, nil)
		for _, url := range []string{"https://EXAMPLE.com:8443/other", "https://example.com./", "https://b.example/", "https://c.example/"} {
			storagetest.Subscription(t, x.Store, owner, url, access.SubscriptionDisabled)
		}
		failing, _ := storagetest.Subscription(t, x.Store, owner, "https://d.example/", access.SubscriptionDisabled)
		if err := x.Write(t.Context(), func(t *storage.Tx) error {
			return t.WriteHealth(failing.RowID, webhook.Health{Status: webhook.Failing, ConsecutiveFailures: 5, LastError: "timeout", Epoch: 2})
		}); err != nil {
			t.Fatal(err)
		}
		subject, _ := storagetest.Subscription(t, x.Store, owner, "https://example.com/", "a")
		if got := deactivate(t, x, owner.Organization.RowID, subject.ID); got != 2 {
			t.Errorf("%d subscriptions got it, instead of those at b.example and c.example", got)
		}
	})
	t.Run("an organization gets a limited number of them per minute", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x, owner := withLimits(t, nil, nil)
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
