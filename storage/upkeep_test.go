package storage_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestALongRecoveryDelaysNothingElse has a recovery wait for a replay of the same organization.
func TestALongRecoveryDelaysNothingElse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		o := probed(t, path)
		o.KeepEvents = time.Hour
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		beside := fixture{Store: store}
		beside.owner, _ = storagetest.Organization(t, store, "beside", "growth", access.RoleOwner)
		beside.sub, _ = storagetest.Subscription(t, store, beside.owner, "https://example.com/", "lost", "probe")
		old := storagetest.Publish(t, store, x.owner, "old").ID
		for _, job := range x.jobs(t) {
			x.end(t, job, x.begin(t, job), true)
		}
		time.Sleep(59 * time.Minute)
		end, err := x.TakeReplayTurn(t.Context(), x.org())
		if err != nil {
			t.Fatal(err)
		}
		lost := x.outage(t)
		lostBeside := beside.outage(t)
		time.Sleep(3 * time.Second)
		beside.waitAgain(t, lostBeside)
		time.Sleep(20 * time.Second)
		if _, _, err := x.History.Event(t.Context(), x.org(), old); fault.KindOf(err) != fault.NotFound {
			t.Errorf("an old event is not deleted: %v", err)
		}
		end()
		time.Sleep(3 * time.Second)
		x.waitAgain(t, lost)
	})
}

// TestASearchForOldRowsDelaysNoRecovery has the search wait for a connection, again and again.
func TestASearchForOldRowsDelaysNoRecovery(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		x, _ := newProbed(t, path)
		for range 2 { // all connections for logs
			end, err := x.BeginLogRead(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer end()
		}
		// The search tries every ten seconds, and waits for five. The second outage ends while it waits.
		for range 2 {
			lost := x.outage(t)
			time.Sleep(2 * time.Second)
			x.waitAgain(t, lost)
			for _, job := range x.jobs(t) {
				x.end(t, job, x.begin(t, job), true)
			}
			time.Sleep(500 * time.Millisecond)
		}
	})
}
