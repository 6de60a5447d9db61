package queue_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestReplayBehindRowsFromTheFuture replays right after the clock was set back, and after a restart, before a sweep has
// read the events.
func TestReplayBehindRowsFromTheFuture(t *testing.T) {
	t.Parallel()
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	synctest.Test(t, func(t *testing.T) {
		store, stop := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		x.Missed(t, 5, "before")
		time.Sleep(time.Minute)
		began := time.Now().UnixMilli()
		x.Missed(t, 300, "ahead")
		events, err := store.Events(t.Context(), x.Org(), 0, 300)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.MoveEvents(t.Context(), events[299].RowID, events[0].RowID, 240*time.Hour); err != nil {
			t.Fatal(err)
		}
		x.Missed(t, 5, "behind") // immediately, before upkeep runs
		period := webhook.Replay{Since: began - 1, Until: began + 1, Only: webhook.OnlyAll, EventTypes: webhook.Types{"before", "ahead", "behind"}}
		x.counts(t, period, 5)
		stop()
		x.Store, stop = storagetest.OpenWith(t, o)
		defer stop()
		x.counts(t, period, 5)
		x.counts(t, webhook.Replay{Since: 1, Only: webhook.OnlyAll, EventTypes: period.EventTypes}, 310)
		x.counts(t, webhook.Replay{Since: 1, Until: began - 1, Only: webhook.OnlyAll, EventTypes: period.EventTypes}, 5)
		x.counts(t, webhook.Replay{Since: began, Only: webhook.OnlyAll, EventTypes: webhook.Types{"behind"}}, 5)
	})
}

// TestReplayAfterTheClockWasSetBackInSteps sets the clock back twice by less than clock.Tolerance. Together the steps are longer, so
// a search must not rely on the order of the events.
func TestReplayAfterTheClockWasSetBackInSteps(t *testing.T) {
	t.Parallel()
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		for _, n := range []int{50, 1} {
			x.Missed(t, n, "ahead")
			if err := store.MoveEvents(t.Context(), 1, 1000, 50*time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		x.Missed(t, 1, "now")
		now := time.Now().UnixMilli()
		x.counts(t, webhook.Replay{Since: now - 1, Until: now + 1, Only: webhook.OnlyAll, EventTypes: webhook.Types{"ahead", "now"}}, 1)
	})
}

// counts expects a replay of this many events.
func (x fixture) counts(t *testing.T, r webhook.Replay, want int64) {
	t.Helper()
	if n, err := x.CountReplay(t.Context(), r); err != nil || n.Total() != want {
		t.Errorf("%+v are counted, want %d, error %v", n, want, err)
	}
}
