package dispatch_test

import (
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch"
)

func TestUnsavedCountsTheResultsThatCannotBeSaved(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		f := newFaults()
		x := stoppedFixture(t, f, dispatch.Options{})
		x.subscribe(t, "a.example", respondAfter(time.Second, respond(200))) // all are on their way before the first result fails
		x.run(t)
		f.fail(true, "Record")
		x.publish(t, 3)
		time.Sleep(10 * time.Second)
		if n := x.Unsaved(); n != 3 {
			t.Errorf("%d results, want 3", n)
		}
		f.fail(false, "Record")
		time.Sleep(10 * time.Second)
		if n := x.Unsaved(); n != 0 {
			t.Errorf("%d results after the store works again", n)
		}
	})
}
