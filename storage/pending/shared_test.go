package pending_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/pending"
)

// TestASharedReadTakesATenthOfTheTime asks all the time for what a read of a second finds. An error is no result.
func TestASharedReadTakesATenthOfTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		get := pending.SharedRead()
		var reads atomic.Int64
		read := func(context.Context) (int, error) {
			time.Sleep(time.Second)
			n := reads.Add(1)
			if n == 3 {
				return 0, errors.New("the disk is gone")
			}
			return int(n), nil
		}
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				for i := range 400 { // 40 s
					time.Sleep(time.Duration(i+1)*100*time.Millisecond - time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)))
					if n, err := get(t.Context(), read); err == nil && n == 3 {
						t.Error("got the result of a read that failed")
					}
				}
			})
		}
		callers.Wait()
		if n := reads.Load(); n != 5 { // in seconds 1, 12, 23, 24 and 35
			t.Errorf("%d reads in 40 s", n)
		}
	})
}
