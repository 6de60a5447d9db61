package directory_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// withLimits creates a fixture with a plan of its own.
func withLimits(t *testing.T, subscriptions, keys *int64) (platform, access.Principal) {
	t.Helper()
	store := storagetest.Open(t)
	x := platform{storagetest.PlatformOf(t, store)}
	must[access.Plan](t)(x.Directory.CreatePlan(t.Context(), x.By, access.Plan{
		Name: "bounded", APIKeys: true, Webhooks: true, MaxSubscriptions: subscriptions, MaxAPIKeys: keys,
	}))
	owner, _ := storagetest.Organization(t, store, "acme", "bounded", access.RoleOwner)
	return x, owner
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
		if made := callTwentyTimes(t, func() error { _, err := x.Subscribe(t, owner); return err }); made != 7 {
			t.Errorf("%d were made", made)
		}
		_, err := x.Subscribe(t, owner)
		requireLimitReached(t, err, `"bounded"`, "max_subscriptions", "allows 7", "has 7", "at most 5000")
	})
	t.Run("twenty parallel requests create only as many keys as the plan allows", func(t *testing.T) {
		t.Parallel()
		x, owner := withLimits(t, nil, new(int64(7)))
		if made := callTwentyTimes(t, func() error { _, err := x.Create(t, owner, access.EventsRead); return err }); made != 7 {
			t.Errorf("%d were made", made)
		}
		_, err := x.Create(t, owner, access.EventsRead)
		requireLimitReached(t, err, `"bounded"`, "max_api_keys", "allows 7", "has 7", "at most 10000")
	})
	t.Run("a deleted subscription makes room, and a disabled one can be activated at the limit", func(t *testing.T) {
		t.Parallel()
		x, owner := withLimits(t, new(int64(1)), nil)
		first := must[webhook.Subscription](t)(x.Subscribe(t, owner))
		org := owner.Organization.RowID
		for _, active := range []bool{false, true} {
			must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(t.Context(), x.By, org, first.ID, webhook.SubscriptionChange{IsActive: &active}))
		}
		if err := x.Subscriptions.DeleteSubscription(t.Context(), x.By, org, first.ID); err != nil {
			t.Fatal(err)
		}
		must[webhook.Subscription](t)(x.Subscribe(t, owner))
		_, err := x.Subscribe(t, owner)
		requireLimitReached(t, err)
	})
	t.Run("revoked and expired keys make room", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x, owner := withLimits(t, nil, new(int64(1)))
			first := must[access.Key](t)(x.Create(t, owner, access.EventsRead))
			if err := x.Directory.RevokeKey(t.Context(), x.By, owner.Organization.RowID, first.ID); err != nil {
				t.Fatal(err)
			}
			must[access.Key](t)(x.Directory.CreateKey(t.Context(), owner, x.By, access.NewKey{
				Credential: access.Mint("svc"), Name: "short", Scope: access.NewScope(access.EventsRead),
				ExpiresAt: new(time.Now().Add(time.Minute).UnixMilli()),
			}))
			_, err := x.Create(t, owner, access.EventsRead)
			requireLimitReached(t, err)
			time.Sleep(time.Minute + time.Second)
			must[access.Key](t)(x.Create(t, owner, access.EventsRead))
		})
	})
}

func TestPlanLimitsOfRotation(t *testing.T) {
	t.Parallel()

	t.Run("an organization at its limit can rotate with a grace period, which makes no room", func(t *testing.T) {
		t.Parallel()
		x, owner := withLimits(t, nil, new(int64(2)))
		first := must[access.Key](t)(x.Create(t, owner, access.EventsRead))
		must[access.Key](t)(x.Create(t, owner, access.EventsRead))
		made, _ := x.rotated(t, owner, first.ID, time.Hour)
		x.rotated(t, owner, made.ID, time.Hour)
		_, err := x.Create(t, owner, access.EventsRead)
		requireLimitReached(t, err, "has 2")
	})
	t.Run("rotation keeps a bounded number of keys alive", func(t *testing.T) {
		t.Parallel()
		x, owner := withLimits(t, nil, new(int64(2)))
		newest := must[access.Key](t)(x.Create(t, owner, access.EventsRead))
		for range 10 {
			made, _ := x.rotated(t, owner, newest.ID, time.Hour)
			newest = made.Key
		}
		_, _, err := x.rotate(t, owner, newest.ID, time.Hour)
		requireLimitReached(t, err, "has 10 rotated", `"bounded"`, "max_api_keys", "grace_seconds 0")
		made, _ := x.rotated(t, owner, newest.ID, 0)
		if err := x.Directory.RevokeKey(t.Context(), x.By, owner.Organization.RowID, *newest.Replaces); err != nil {
			t.Fatal(err)
		}
		x.rotated(t, owner, made.ID, time.Hour)
	})
	t.Run("every key beyond a lowered limit can be rotated with a grace period", func(t *testing.T) {
		t.Parallel()
		x, owner := withLimits(t, nil, nil)
		var keys []access.Key
		for range 12 {
			keys = append(keys, must[access.Key](t)(x.Create(t, owner, access.EventsRead)))
		}
		must[access.Plan](t)(x.Directory.UpdatePlan(t.Context(), x.By, "bounded", access.PlanChange{MaxAPIKeys: new(new(int64(1)))}))
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
			must[webhook.Subscription](t)(x.Subscribe(t, owner))
			must[access.Key](t)(x.Create(t, owner, access.EventsRead))
		}
		lowered := must[access.Plan](t)(x.Directory.UpdatePlan(t.Context(), x.By, "bounded",
			access.PlanChange{MaxSubscriptions: new(new(int64(1))), MaxAPIKeys: new(new(int64(0)))}))
		if *lowered.MaxSubscriptions != 1 || *lowered.MaxAPIKeys != 0 {
			t.Errorf("%+v", lowered)
		}
		_, err := x.Subscribe(t, owner)
		requireLimitReached(t, err, "allows 1", "has 2")
		_, err = x.Create(t, owner, access.EventsRead)
		requireLimitReached(t, err, "allows 0", "has 2")
		subs, err := x.History.SubscriptionPage(t.Context(), owner.Organization.RowID, webhook.SubscriptionFilter{Limit: 10})
		keys, err2 := x.Directory.KeyPage(t.Context(), owner.Organization.RowID, access.KeyFilter{Status: access.Active, Now: time.Now().UnixMilli(), Limit: 10})
		if len(subs.Rows) != 2 || len(keys.Rows) != 2 || errors.Join(err, err2) != nil {
			t.Errorf("%d subscriptions and %d keys are left, errors %v %v", len(subs.Rows), len(keys.Rows), err, err2)
		}
	})
	t.Run("a plan without a limit has the limit of Keyhook", func(t *testing.T) {
		t.Parallel()
		x, owner := withLimits(t, nil, nil)
		sub := must[webhook.Subscription](t)(x.Subscribe(t, owner))
		if err := x.Directory.RunStatement(t.Context(), `
				WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
				INSERT INTO subscriptions (public_id, organization_id, url, url_at, event_types, audit_events, description, status, consecutive_failures,
					last_error, epoch, failing_since, probe_at, paused, secret, previous_until, birth, created_at, updated_at, ordered)
				SELECT public_id || i, organization_id, url, url_at, event_types, audit_events, description, status, 0, '', 1, 0, 0, 0, secret, 0, birth, 0, 0, 0
				FROM subscriptions, n WHERE id = ?`, sub.RowID); err != nil {
			t.Fatal(err)
		}
		_, err := x.Subscribe(t, owner)
		requireLimitReached(t, err, `"bounded"`, "sets no max_subscriptions", "5000")
	})
}

// TestLimitsOfTheOrganizationActedIn creates and rotates keys for a customer, by an operator whose own organization has other limits.
func TestLimitsOfTheOrganizationActedIn(t *testing.T) {
	t.Parallel()
	t.Run("the customer's plan bounds the keys, and not the plan of the operator", func(t *testing.T) {
		t.Parallel()
		x, owner := withLimits(t, nil, new(int64(1)))
		by := x.Operator.In(owner.Home)
		must[access.Key](t)(x.createOf(t, by, "", access.EventsRead))
		_, err := x.createOf(t, by, "", access.EventsRead)
		requireLimitReached(t, err, "bounded")
	})
	t.Run("the customer's plan bounds the stored bytes, and not the plan of the operator", func(t *testing.T) {
		t.Parallel()
		x, owner := withLimits(t, nil, nil)
		key, _ := storagetest.Key(t, x.Store, owner, access.EventsRead)
		must[access.Plan](t)(x.Directory.UpdatePlan(t.Context(), x.By, "bounded", access.PlanChange{MaxStoredBytes: new(new(int64(1)))}))
		by := x.Operator.In(owner.Home)
		_, err := x.createOf(t, by, "", access.EventsRead)
		storagetest.ExpectFault(t, err, fault.Limited, "storage_quota_exceeded")
		_, err = x.Directory.RotateKey(t.Context(), by, by.Actor("", ""), key.ID, access.Mint("svc"), 0)
		storagetest.ExpectFault(t, err, fault.Limited, "storage_quota_exceeded")
	})
	t.Run("sessions have 10 MB beyond the stored bytes, so that people can sign in", func(t *testing.T) {
		t.Parallel()
		x, owner := withLimits(t, nil, nil)
		limit := func(bytes int64) {
			must[access.Plan](t)(x.Directory.UpdatePlan(t.Context(), x.By, "bounded", access.PlanChange{MaxStoredBytes: new(&bytes)}))
		}
		identity := access.Identity{Subject: "ada"}
		start := func() (err1, err2 error) {
			_, err1 = x.Directory.CreateSession(t.Context(), owner, owner.Actor("", ""), access.MintSession())
			_, err2 = x.Directory.CreateIdentitySession(t.Context(), owner, identity, owner.Actor("", ""), access.MintSession())
			return err1, err2
		}
		limit(1)
		if err1, err2 := start(); err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		storagetest.Exec(t, x.Store, "UPDATE organization_days SET stored_bytes = 10000000 WHERE organization_id = ?", owner.Home.RowID)
		limit(0) // the counts are read again
		err1, err2 := start()
		storagetest.ExpectFault(t, err1, fault.Limited, "storage_quota_exceeded")
		storagetest.ExpectFault(t, err2, fault.Limited, "storage_quota_exceeded")
	})
}
