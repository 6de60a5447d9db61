package sqlite_test

import (
	"testing"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// TestARefusalShowsThatTheReserveIsInUse uses the reserve, and expects that a write that is refused tells the watch of the disk. Otherwise
// nobody would make the reserve again, and no write would run any more.
func TestARefusalShowsThatTheReserveIsInUse(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Reserve = 4096
	f := open(t, o)
	if !f.SpendReserve() {
		t.Fatal("there is no reserve")
	}
	if err := sqlite.Unavailable(f.Together(note("refused"))[0]); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("error %v", err)
	}
	if _, err := f.Ready(); err == nil || !f.Degraded()["disk_full"] {
		t.Error("it is ready")
	}
}
