package faultdisk_test

import (
	"path/filepath"
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/faultdisk"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The commit is what fails, because a small transaction writes nothing to the disk before. What the writer remembers of it
// must go with it.
func TestACommitThatFails(t *testing.T) {
	refuseCommit := func(t *testing.T, do func() error) {
		t.Helper()
		faultdisk.Break(faultdisk.Fault{Op: faultdisk.Write, Code: full, File: writeAheadLog})
		err := do()
		if hits := faultdisk.Mend(); hits == 0 {
			t.Fatal("nothing was written to the log")
		}
		if fault.KindOf(err) != fault.Unavailable {
			t.Fatalf("the change that cannot be committed: %v", err)
		}
	}
	yes, no := true, false

	t.Run("leaves a subscription active whose deactivation was refused", func(t *testing.T) {
		x := open(t, filepath.Join(t.TempDir(), "keyhook.db"))
		defer x.close(t)
		by, org := x.owner.Actor("", ""), x.owner.Organization.RowID
		subs, err := x.History.SubscriptionPage(t.Context(), org, webhook.SubscriptionFilter{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		set := func(active *bool) error {
			_, err := x.Subscriptions.UpdateSubscription(t.Context(), by, org, subs.Rows[0].ID, webhook.SubscriptionChange{IsActive: active})
			return err
		}
		deliveries := func() int { // that do not wait
			published, err := x.Queue.PublishEvents(t.Context(), org, []webhook.NewEvent{{Type: "a", Data: []byte("{}")}})
			if err != nil {
				t.Fatal(err)
			}
			return published[0].Deliveries - published[0].Held
		}
		refuseCommit(t, func() error { return set(&no) })
		if n := deliveries(); n != 1 {
			t.Errorf("after a refused deactivation an event got %d deliveries, want 1", n)
		}
		if err := set(&no); err != nil {
			t.Fatal(err)
		}
		refuseCommit(t, func() error { return set(&yes) })
		if n := deliveries(); n != 0 {
			t.Errorf("after a refused activation an event got %d deliveries, want none", n)
		}
	})

	t.Run("counts no bytes of events that were refused", func(t *testing.T) {
		o := options(t, filepath.Join(t.TempDir(), "keyhook.db"))
		x := openWith(t, o)
		defer x.close(t)
		limit := int64(100_000)
		if _, err := x.Directory.UpdatePlan(t.Context(), x.owner.Actor("", ""), x.owner.Plan.Name,
			access.PlanChange{MaxStoredBytes: new(&limit)}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			refuseCommit(t, func() error { return x.publish(t, 60_000) })
		}
		if err := x.publish(t, 60_000); err != nil {
			t.Errorf("the first event that is stored: %v", err)
		}
	})
}
