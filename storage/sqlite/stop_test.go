package sqlite_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/keyhook/keyhook/storage/sqlite"
)

// TestWritesAtTheStop ends the file while its writer is busy. The caller of every committed write must get
// success: a caller that gets ErrStopped repeats its change.
func TestWritesAtTheStop(t *testing.T) {
	t.Parallel()
	o := options(t)
	synctest.Test(t, func(t *testing.T) {
		file, err := sqlite.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running, asking sync.WaitGroup
		running.Go(func() {
			if err := file.Run(ctx, func(ctx context.Context) { <-ctx.Done() }, noReads); err != nil {
				t.Error(err)
			}
		})
		release := make(chan struct{})
		errs := make([]error, 100)
		asking.Go(func() {
			_ = file.Write(t.Context(), sqlite.Work{}, func(*sqlite.Tx) error { <-release; return nil })
		})
		synctest.Wait()
		for i := range errs {
			asking.Go(func() { errs[i] = file.Write(t.Context(), sqlite.Work{}, note(strconv.Itoa(i))) })
		}
		synctest.Wait()
		stop()
		synctest.Wait()
		close(release)
		asking.Wait()
		running.Wait()
		for i, err := range errs {
			if err != nil {
				t.Errorf("write %d, which waited at the stop: %v", i, err)
			}
		}
		if err := file.Write(t.Context(), sqlite.Work{}, note("late")); err == nil {
			t.Error("a write after the stop is acknowledged")
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
}
