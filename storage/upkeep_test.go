package storage_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestASearchForOldRowsDelaysNoRecovery has the search wait for a connection, again and again.
func TestASearchForOldRowsDelaysNoRecovery(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		o := storagetest.Options(t, path)
		o.Policy = webhook.Policy{MaxAttempts: 1, FailingAfter: 1, DisabledAfter: 2, ProbeDisabled: time.Minute}
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		if err := x.Customer.Change(t, x.Actor(), webhook.SubscriptionChange{AuditEvents: new(false)}); err != nil {
			t.Fatal(err)
		}
		for range 2 { // all connections for logs
			end, err := x.BeginLogRead(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer end()
		}
		// The search tries every ten seconds, and waits for five. The second outage ends while it waits.
		for range 2 {
			lost := x.Outage(t)
			time.Sleep(2 * time.Second)
			x.WaitAgain(t, lost)
			for _, job := range x.Jobs(t) {
				x.End(t, job, x.Begin(t, job), true)
			}
			time.Sleep(500 * time.Millisecond)
		}
	})
}
