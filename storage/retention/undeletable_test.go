package retention_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestAnEventThatCannotBeDeletedKeepsNoOther has one such event among more old ones than a batch has. It goes, too, as soon as it can.
func TestAnEventThatCannotBeDeletedKeepsNoOther(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		o := storagetest.Options(t, path)
		o.KeepEvents = time.Hour
		store, _ := storagetest.OpenWith(t, o)
		owner, _ := storagetest.Organization(t, store, "acme", "growth", access.RoleOwner)
		var ids []string
		for i := range 300 {
			ids = append(ids, storagetest.Publish(t, store, owner, fmt.Sprint("old.", i)).ID)
		}
		storagetest.Exec(t, store, `
			CREATE TRIGGER refusal BEFORE DELETE ON events WHEN OLD.type = 'old.100' BEGIN SELECT RAISE(ABORT, 'refused by the test'); END`)
		left := func() (left []string) {
			for _, id := range ids {
				if _, _, err := store.History.Event(t.Context(), owner.Home.RowID, id); err == nil {
					left = append(left, id)
				} else if fault.KindOf(err) != fault.NotFound {
					t.Fatal(err)
				}
			}
			return left
		}
		time.Sleep(time.Hour + 30*time.Second)
		if left := left(); len(left) != 1 || left[0] != ids[100] {
			t.Errorf("%d events are left", len(left))
		}
		storagetest.Exec(t, store, "DROP TRIGGER refusal")
		time.Sleep(30 * time.Second)
		if left := left(); len(left) != 0 {
			t.Errorf("%d events are left after the end of the failure", len(left))
		}
	})
}
