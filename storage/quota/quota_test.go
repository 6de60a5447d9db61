package quota_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
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
	x := platform{Platform: storagetest.NewPlatform(t)}
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
	today := time.Now().Unix() / 86_400
	page, err := x.History.OrganizationUsage(t.Context(), x.owners[i].Organization.RowID, access.UsageFilter{Since: today, Until: today + 1, Limit: 1})
	if err != nil || len(page.Rows) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	return page.Rows[0].StoredBytes
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
	if _, err := x.Directory.UpdatePlan(t.Context(), x.By, "bounded", access.PlanChange{SetMaxStoredBytes: true, MaxStoredBytes: new(stored + bytes)}); err != nil {
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
		for _, wait := range []time.Duration{time.Minute, 900 * time.Millisecond, 200 * time.Millisecond, time.Hour} {
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
	})
}
