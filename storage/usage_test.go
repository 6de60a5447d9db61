package storage_test

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// used returns the usage of the organization on all days, without the stored bytes.
func (x fixture) used(t *testing.T) (sum access.OrganizationUse) {
	t.Helper()
	for _, u := range must[access.UsagePage](t)(x.OrganizationUsage(t.Context(), x.Org(), access.UsageFilter{Until: math.MaxInt32, Limit: 100})).Rows {
		if u.StoredBytes == 0 {
			t.Errorf("%+v", u)
		}
		sum.Add(u.OrganizationUse)
	}
	sum.StoredBytes = 0
	return sum
}

func TestOrganizationUsage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		o := storagetest.Options(t, path)
		o.Policy = webhook.DefaultPolicy()
		o.Policy.MaxAttempts = 2
		store, stop := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		expect := func(what string, want access.OrganizationUse) {
			t.Helper()
			if d := cmp.Diff(want, x.used(t)); d != "" {
				t.Errorf("%s (-want +got):\n%s", what, d)
			}
		}
		expect("events about audit events do not count", access.OrganizationUse{})
		for _, job := range x.Jobs(t) {
			x.End(t, job, x.Begin(t, job), true)
		}
		before := x.used(t).Succeeded
		x.Publish(t, 3, "a")
		key := []webhook.NewEvent{{Type: "a", Data: []byte(`{}`), IdempotencyKey: "once"}}
		for range 2 {
			must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), x.Org(), key))
		}
		expect("a repeated event counts once", access.OrganizationUse{Events: 4, Succeeded: before})

		jobs := x.Jobs(t)
		for i, job := range jobs[:3] {
			x.End(t, job, x.Begin(t, job), i == 0)
		}
		expect("a failed attempt does not count while others follow", access.OrganizationUse{Events: 4, Succeeded: before + 1})
		again := x.Jobs(t)
		for _, job := range again {
			if job.Attempts == 1 && job.Delivery == jobs[1].Delivery {
				x.End(t, job, x.Begin(t, job), false)
			}
		}
		expect("a delivery counts as failed after its last attempt", access.OrganizationUse{Events: 4, Succeeded: before + 1, Failed: 1})

		attempts := series(t, x.Store, x.Org(), x.Sub.ID)
		_, test, row, err := x.Queue.BeginTest(t.Context(), x.Org(), x.Sub.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		must[[]webhook.Settled](t)(x.Queue.Record(t.Context(), webhook.Result{
			Attempt: row, Delivery: test.Delivery, Subscription: x.Sub.RowID, Epoch: 1, Number: 1, Trigger: webhook.ByTest, Succeeded: true,
		}))
		expect("a test does not count", access.OrganizationUse{Events: 4, Succeeded: before + 1, Failed: 1})
		if d := cmp.Diff(attempts, series(t, x.Store, x.Org(), x.Sub.ID)); d != "" {
			t.Errorf("a test is in the statistics (-want +got):\n%s", d)
		}

		for range 10 { // crashes while the attempt is on the wire
			for _, job := range x.Jobs(t) {
				if job.Delivery == jobs[3].Delivery {
					x.Begin(t, job)
				}
			}
			stop()
			x.Store, stop = storagetest.OpenWith(t, o)
		}
		expect("a delivery that is interrupted too often counts as failed", access.OrganizationUse{Events: 4, Succeeded: before + 1, Failed: 2})
		stop()
	})
}

// TestUsageOfManyKeysEndsAPageEarly has keys without usage between others.
func TestUsageOfManyKeysEndsAPageEarly(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	var want []string
	for i := range 40 {
		key, _ := storagetest.Key(t, x.Store, x.Owner, access.EventsRead)
		if i%13 == 3 {
			storagetest.Exec(t, x.Store, "INSERT INTO key_days VALUES (?, 100, 1, 0, 0), (?, 101, 1, 0, 0)", key.RowID, key.RowID)
			want = append([]string{fmt.Sprint(key.RowID, " 101"), fmt.Sprint(key.RowID, " 100")}, want...)
		}
	}
	x.BoundSearches(5, 2)
	for _, organization := range []int64{x.Org(), access.AllOrganizations} {
		var got []string
		early := 0
		f := access.UsageFilter{Until: 1000, Limit: 3}
		for more := true; more; {
			page := must[access.UsagePage](t)(x.KeyUsage(t.Context(), organization, f))
			for _, u := range page.Rows {
				got = append(got, fmt.Sprint(u.Row, " ", u.Day))
			}
			if len(page.Rows) < f.Limit && page.Next.Row > 0 {
				early++
			}
			f.After, more = page.Next, page.Next.Row > 0
		}
		if d := cmp.Diff(want, got); d != "" || early == 0 {
			t.Errorf("%d pages ended early (-want +got):\n%s", early, d)
		}
	}
}

// TestUsageFollowsItsOrganization deletes an organization that has usage, and closes one.
func TestUsageFollowsItsOrganization(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, storagetest.Options(t, path))
		x := platform{storagetest.PlatformOf(t, store)}
		rows := func(organization int64) (keys, days int) {
			f := access.UsageFilter{Until: math.MaxInt32, Limit: 10}
			return len(must[access.UsagePage](t)(x.KeyUsage(t.Context(), organization, f)).Rows), len(must[access.UsagePage](t)(x.OrganizationUsage(t.Context(), organization, f)).Rows)
		}
		empty := must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "empty", Plan: "growth"}))
		storagetest.Exec(t, store, "INSERT OR REPLACE INTO organization_days VALUES (?, 100, 1, 1, 1, 1)", empty.RowID)
		if err := x.DeleteOrganization(t.Context(), x.By, empty.ID); err != nil {
			t.Fatal(err)
		}
		if keys, days := rows(empty.RowID); keys+days > 0 {
			t.Errorf("%d and %d rows of a deleted organization", keys, days)
		}
		owner, _ := storagetest.Organization(t, store, "acme", "growth", access.RoleOwner)
		_, raw := storagetest.Key(t, store, owner, access.EventsRead)
		x.Directory.Used(must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), raw.Digest())), access.KeyUse{Allowed: 1})
		must[access.Closure](t)(x.CloseOrganization(t.Context(), x.By, owner.Organization.ID))
		time.Sleep(2 * time.Minute)
		page := must[access.UsagePage](t)(x.KeyUsage(t.Context(), owner.Home.RowID, access.UsageFilter{Until: math.MaxInt32, Limit: 10}))
		if keys, days := rows(owner.Home.RowID); keys != 1 || days != 1 || page.Rows[0].Name == "test" {
			t.Errorf("%d and %d rows of a closed organization, of the key %q", keys, days, page.Rows[0].Name)
		}
	})
}

// TestUsesAreKeptAtTheEnd uses a key twice within a minute, and stops.
func TestUsesAreKeptAtTheEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		x := fixtureOf(t, store)
		key, credential := storagetest.Key(t, store, x.Owner, access.EventsRead)
		p := must[access.Principal](t)(store.Directory.PrincipalByKey(t.Context(), credential.Digest()))
		store.Directory.Used(p, access.KeyUse{Allowed: 1})
		time.Sleep(15 * time.Second) // the first use is written
		last := time.Now().UnixMilli()
		store.Directory.Used(p, access.KeyUse{Allowed: 1})
		stop()
		x.Store, stop = storagetest.OpenWith(t, storagetest.Options(t, path))
		defer stop()
		if at := must[access.Key](t)(x.Directory.Key(t.Context(), x.Org(), key.ID)).LastUsedAt; at == nil || *at != last {
			t.Errorf("last used at %v, want %d", at, last)
		}
		page := must[access.UsagePage](t)(x.History.KeyUsage(t.Context(), x.Org(), access.UsageFilter{Until: math.MaxInt32, Limit: 1}))
		if len(page.Rows) != 1 || page.Rows[0].Allowed != 2 {
			t.Errorf("%+v", page.Rows)
		}
	})
}
