package quota_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// thousand is an event that counts as 1,000 bytes: 450, its type and its data.
var thousand = webhook.NewEvent{Type: "a", Data: []byte(`"` + strings.Repeat("x", 1000-450-1-2) + `"`)}

// platform is a store with three organizations on one plan.
type platform struct {
	storagetest.Platform
	owners [3]access.Principal
}

func newPlatform(t *testing.T) platform {
	t.Helper()
	return platformOf(t, storagetest.Open(t))
}

func platformOf(t *testing.T, store *storage.Store) platform {
	t.Helper()
	x := platform{Platform: storagetest.PlatformOf(t, store)}
	if _, err := x.Directory.CreatePlan(t.Context(), x.By, access.Plan{Name: "bounded", APIKeys: true, Webhooks: true}); err != nil {
		t.Fatal(err)
	}
	for i := range x.owners {
		x.owners[i], _ = storagetest.Organization(t, x.Store, fmt.Sprint("customer-", i), "bounded", access.RoleOwner)
	}
	return x
}

// stored returns what the organization has stored today.
func (x platform) stored(t *testing.T, i int) int64 {
	t.Helper()
	return x.used(t, i).StoredBytes
}

// used returns the usage of the organization today.
func (x platform) used(t *testing.T, i int) access.OrganizationUse {
	t.Helper()
	today := time.Now().Unix() / 86_400
	page, err := x.History.OrganizationUsage(t.Context(), x.owners[i].Organization.RowID, access.UsageFilter{Since: today, Until: today + 1, Limit: 1})
	if err != nil || len(page.Rows) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	return page.Rows[0].OrganizationUse
}

// leave sets the limit of the plan to so many bytes above what an organization has stored. All must have stored the same.
func (x platform) leave(t *testing.T, bytes int64) {
	t.Helper()
	stored := x.stored(t, 0)
	for i := range x.owners {
		if other := x.stored(t, i); other != stored {
			t.Fatalf("%d and %d bytes are stored", stored, other)
		}
	}
	if _, err := x.Directory.UpdatePlan(t.Context(), x.By, "bounded", access.PlanChange{MaxStoredBytes: new(new(stored + bytes))}); err != nil {
		t.Fatal(err)
	}
}

// publish publishes so many events of 1,000 bytes at once.
func (x platform) publish(t *testing.T, i, n int) error {
	t.Helper()
	events := make([]webhook.NewEvent, n)
	for j := range events {
		events[j] = thousand
	}
	_, err := x.Queue.PublishEvents(t.Context(), x.owners[i].Organization.RowID, events)
	return err
}

func TestEachOrganizationHasItsOwnQuota(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	x.leave(t, 3000)
	limit := x.stored(t, 0) + 3000
	for i := range x.owners {
		if err := x.publish(t, i, 2); err != nil {
			t.Errorf("customer %d: %v", i, err)
		}
		before := x.stored(t, i)
		refused, ok := fault.As(x.publish(t, i, 2))
		if !ok || refused.Kind != fault.Limited || refused.Code != "storage_quota_exceeded" {
			t.Fatalf("customer %d: %v", i, refused)
		}
		for _, want := range []string{fmt.Sprintf(`"bounded" allows %d stored bytes`, limit), fmt.Sprintf("has stored %d today", before), "needs about", "after midnight UTC"} {
			if !strings.Contains(refused.Message, want) {
				t.Errorf("no %q in %s", want, refused.Message)
			}
		}
		if after := x.stored(t, i); after != before {
			t.Errorf("customer %d: the refusal counts %d bytes", i, after-before)
		}
		if err := x.publish(t, i, 1); err != nil { // up to the limit itself
			t.Errorf("customer %d: %v", i, err)
		}
		if stored := x.stored(t, i); stored != limit {
			t.Errorf("customer %d has stored %d of %d bytes", i, stored, limit)
		}
	}
}

// TestWhatFailsIsGivenBack has writes of three organizations, of which only the second fails.
func TestWhatFailsIsGivenBack(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	x.leave(t, 1000)
	allow := storagetest.Refuse(t, x.Store, "INSERT ON events", fmt.Sprintf("NEW.organization_id = %d AND NEW.type = 'a'", x.owners[1].Organization.RowID))
	for range 3 {
		if err := x.publish(t, 1, 1); err == nil || fault.KindOf(err) == fault.Limited {
			t.Errorf("the write fails with %v", err)
		}
	}
	for _, i := range []int{0, 2} {
		if err := x.publish(t, i, 1); err != nil {
			t.Errorf("customer %d: %v", i, err)
		}
	}
	allow()
	if err := x.publish(t, 1, 1); err != nil {
		t.Errorf("after the failures: %v", err)
	}
	for i := range x.owners {
		if err := x.publish(t, i, 1); fault.KindOf(err) != fault.Limited {
			t.Errorf("customer %d, beyond the limit: %v", i, err)
		}
	}
}

func TestAClosedOrganizationTakesNothing(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	if _, err := x.CloseOrganization(t.Context(), x.By, x.owners[1].Organization.ID); err != nil {
		t.Fatal(err)
	}
	for i := range x.owners {
		err := x.publish(t, i, 1)
		if f, _ := fault.As(err); i == 1 && (f == nil || f.Code != "organization_closed") || i != 1 && err != nil {
			t.Errorf("customer %d: %v", i, err)
		}
	}
}

// TestTheLastEventOfAnOrganization is told to a second.
func TestTheLastEventOfAnOrganization(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newPlatform(t)
		last := func(store *storage.Store, i int) time.Time {
			o, err := store.Directory.Organization(t.Context(), x.owners[i].Organization.ID)
			if err != nil {
				t.Fatal(err)
			}
			if o.LastEventAt == nil {
				return time.Time{}
			}
			return time.UnixMilli(*o.LastEventAt)
		}
		var first time.Time
		for _, wait := range []time.Duration{time.Minute, 900 * time.Millisecond, 200 * time.Millisecond, time.Hour, time.Second} {
			time.Sleep(wait)
			if err := x.publish(t, 0, 1); err != nil {
				t.Fatal(err)
			}
			got, off := last(x.Store, 0), time.Second
			if wait >= time.Minute {
				first, off = time.Now(), time.Millisecond
			}
			if behind := time.Since(got); behind < 0 || behind >= off || got.Before(first.Truncate(time.Millisecond)) {
				t.Errorf("after %s, the last event is %s old", wait, behind)
			}
		}
		if other := last(x.Store, 1); !other.Before(first) {
			t.Errorf("another customer's is %s", other)
		}
		before := last(x.Store, 0)
		time.Sleep(time.Minute)
		storagetest.Key(t, x.Store, x.owners[0], access.EventsRead)
		if after := last(x.Store, 0); !after.Equal(before) {
			t.Errorf("a new key makes it %s, not %s", after, before)
		}
	})
}

func TestAQuotaIsOfOneDay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newPlatform(t)
		x.leave(t, 3000)
		if err := x.publish(t, 0, 3); err != nil {
			t.Fatal(err)
		}
		midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		time.Sleep(time.Until(midnight) - time.Millisecond)
		if err := x.publish(t, 0, 1); fault.KindOf(err) != fault.Limited {
			t.Errorf("before midnight: %v", err)
		}
		time.Sleep(time.Millisecond)
		if err := x.publish(t, 0, 1); err != nil {
			t.Errorf("at midnight: %v", err)
		}
		if stored := x.stored(t, 0); stored != 1000 {
			t.Errorf("%d bytes are stored on the new day", stored)
		}
	})
}

// TestAClockThatIsSetBack sets it back within a day, and to an earlier day.
func TestAClockThatIsSetBack(t *testing.T) {
	t.Parallel()
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Duration(0)
		o.Now = func() time.Time { return time.Now().Add(ahead) }
		store, _ := storagetest.OpenWith(t, o)
		x := platformOf(t, store)
		x.leave(t, 2000)
		for _, ahead = range []time.Duration{2 * time.Hour, 0} {
			if err := x.publish(t, 0, 1); err != nil {
				t.Fatal(err)
			}
			last, err := store.Directory.Organization(t.Context(), x.owners[0].Organization.ID)
			if err != nil || last.LastEventAt == nil || *last.LastEventAt != o.Now().UnixMilli() {
				t.Errorf("%s ahead: the last event is that of %v, error %v", ahead, last.LastEventAt, err)
			}
		}
		ahead = 48 * time.Hour
		if err := x.publish(t, 0, 1); err != nil {
			t.Errorf("on a later day: %v", err)
		}
		ahead = 0
		if err := x.publish(t, 0, 1); fault.KindOf(err) != fault.Limited {
			t.Errorf("on the first day again: %v", err)
		}
	})
}

// TestTheQuotaInATransaction reads it after each change of one transaction.
func TestTheQuotaInATransaction(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	organization, before := x.owners[0].Organization.RowID, x.stored(t, 0)
	err := x.Store.Write(t.Context(), sqlite.Work{}, func(tx *sqlite.Tx) error {
		q := quota.New()
		for _, step := range []struct {
			name string
			do   func() error
			want int64
		}{
			{"a count before the first read", func() error { q.Count(tx, organization, 600); return nil }, 600},
			{"a count after it", func() error { q.Count(tx, organization, 1); return nil }, 601},
			{"another organization", func() error { q.Count(tx, x.owners[1].Organization.RowID, 7); return nil }, 601},
			{"a forgotten cache", func() error { q.Forget(); return nil }, 601},
			{"the table", func() error { return q.Write(tx) }, 601},
			{"the table alone", func() error { q.Forget(); return nil }, 601},
			{"a second write", func() error { return q.Write(tx) }, 601},
			{"a rollback", func() error { q.Count(tx, organization, 50); q.Reset(); return nil }, 601},
			{"a removed organization", func() error { q.Count(tx, organization, 50); q.Remove(organization); return nil }, 601},
		} {
			if err := step.do(); err != nil {
				return err
			}
			if has, err := q.Of(tx, organization); err != nil || has.Bytes-before != step.want {
				return fmt.Errorf("%s: %+v (%d before), %w", step.name, has, before, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestWhatAQuotaRefuses(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	organization := x.owners[0].Organization.RowID
	check := func(name, want string, refuse func(*quota.Quotas, *sqlite.Tx) error) {
		err := x.Store.Write(t.Context(), sqlite.Work{}, func(tx *sqlite.Tx) error { return refuse(quota.New(), tx) })
		if f, _ := fault.As(err); want == "" && err != nil || want != "" && (f == nil || f.Code != want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	require := func(of int64, bytes int) func(*quota.Quotas, *sqlite.Tx) error {
		return func(q *quota.Quotas, tx *sqlite.Tx) error { return q.Require(tx, of, bytes) }
	}
	webhooks := func(of int64) func(*quota.Quotas, *sqlite.Tx) error {
		return func(q *quota.Quotas, tx *sqlite.Tx) error { return q.RequireWebhooks(tx, of) }
	}
	change := func(c access.PlanChange) {
		if _, err := x.Directory.UpdatePlan(t.Context(), x.By, "bounded", c); err != nil {
			t.Fatal(err)
		}
	}
	check("bytes of nobody", "not_found", require(1<<40, 1))
	check("webhooks of nobody", "not_found", webhooks(1<<40))
	change(access.PlanChange{MaxStoredBytes: new((*int64)(nil))})
	check("no limit", "", require(organization, 1<<40))
	check("a plan with webhooks", "", webhooks(organization))
	change(access.PlanChange{Webhooks: new(false)})
	check("a plan without webhooks", "plan_capability_required", webhooks(organization))
	if _, err := x.CloseOrganization(t.Context(), x.By, x.owners[0].Organization.ID); err != nil {
		t.Fatal(err)
	}
	check("bytes of a closed organization", "organization_closed", require(organization, 1))
	check("webhooks of a closed organization", "organization_closed", webhooks(organization))
}

func TestTheUsageOfADayAddsUp(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	before := x.stored(t, 0)
	err := x.Store.Write(t.Context(), sqlite.Work{}, func(tx *sqlite.Tx) error {
		q := quota.New()
		for range 2 {
			q.Add(tx, x.owners[0].Organization.RowID, access.OrganizationUse{StoredBytes: 1, Events: 2, Succeeded: 3, Failed: 4})
			if err := q.Write(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := x.used(t, 0); got.StoredBytes != before+2 || got.Events != 4 || got.Succeeded != 6 || got.Failed != 8 {
		t.Errorf("%+v, %d bytes before", got, before)
	}
}

// TestTheMetadataOfAKeyIsStored creates keys that differ only in their metadata and their networks.
func TestTheMetadataOfAKeyIsStored(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	networks := access.Networks{netip.MustParsePrefix("192.0.2.0/24")}
	var plain int64 // bytes of the first key
	for i, k := range []access.NewKey{{}, {Metadata: `{"customer":4711}`}, {Metadata: `{"customer":4711}`, AllowedNetworks: networks}} {
		k.Credential, k.Name, k.Scope = access.Mint("svc"), "key", access.NewScope(access.EventsRead)
		before := x.stored(t, i)
		if _, err := x.Directory.CreateKey(t.Context(), x.owners[i], x.owners[i].Actor("", ""), k); err != nil {
			t.Fatal(err)
		}
		got := x.stored(t, i) - before
		if i == 0 {
			plain = got
		}
		if least := plain + int64(len(k.Metadata)+len(k.AllowedNetworks.String())); got < least {
			t.Errorf("key %d has stored %d bytes, want at least %d", i, got, least)
		}
	}
}
