package sqlite_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

func TestReserveIsShared(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Reserve = 12 * 24 << 10 // for ten writes, and the growth of the database
	f := open(t, o)
	n := 0
	// write returns how many of as many writes have run.
	write := func(payer int64, writes int) (ran int) {
		t.Helper()
		var fns []func(*sqlite.Tx) error
		for range writes {
			n++
			fns = append(fns, note(fmt.Sprint(n)))
		}
		for _, err := range f.TogetherOnReserve(payer, fns...) {
			if err == nil {
				ran++
			}
		}
		return ran
	}
	if ran := write(1, 8); ran != 5 {
		t.Errorf("the first payer wrote %d times, want half of the reserve", ran)
	}
	if _, err := os.Stat(o.Path + ".reserve"); err == nil {
		t.Error("the reserve was not used")
	}
	if ran := write(1, 2); ran != 0 {
		t.Errorf("it wrote %d times more", ran)
	}
	if ran := write(2, 8); ran != 3 {
		t.Errorf("the second payer wrote %d times, want half of what was left", ran)
	}
	f.TogetherOnReserve(3, func(t *sqlite.Tx) error { return nil }) // costs nothing
	if ran := write(3, 8); ran != 1 {
		t.Errorf("the third payer wrote %d times, want 1", ran)
	}
	if err := f.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ran := write(1, 8); ran != 5 {
		t.Errorf("after a checkpoint, the first payer wrote %d times, want half of the reserve", ran)
	}
	if !f.HoldReserveAgain() {
		t.Fatal("the reserve is not made again")
	}
	if ran := write(1, 8); ran != 5 {
		t.Errorf("on the next full disk, the first payer wrote %d times, want half of the reserve", ran)
	}
}

// A reserve that is too small for a write lets one try, because the log may be longer than what is written to it.
func TestAReserveWithoutRoom(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Reserve = 4096
	f := open(t, o)
	errs := f.TogetherOnReserve(1, note("a"), note("b"))
	if errs[0] != nil || errs[1] == nil {
		t.Errorf("errors %v, want none for the first write only", errs)
	}
}

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
	if _, err := f.Ready(t.Context()); err == nil || !f.Degraded()["disk_full"] {
		t.Error("it is ready")
	}
}

// TestARemovedReserveIsMadeAgain has somebody remove the file, as one does on a full disk.
func TestARemovedReserveIsMadeAgain(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Reserve = 4096
	f := open(t, o)
	if err := os.Remove(o.Path + ".reserve"); err != nil {
		t.Fatal(err)
	}
	if f.HoldReserveAgain(); !f.SpendReserve() {
		t.Error("there is no reserve")
	}
}
