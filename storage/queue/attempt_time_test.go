package queue_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestTimeOfLastAttempt records successes and failures, and reads when the last ones were.
func TestTimeOfLastAttempt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		back := time.Duration(0)
		o := storagetest.Options(t, path)
		o.Now = func() time.Time { return time.Now().Add(-back) }
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		start := time.Now()
		ended := func(at time.Duration, succeeded bool) (success, failure *int64) {
			t.Helper()
			time.Sleep(time.Until(start.Add(at)))
			x.Publish(t, 1, "user.created")
			x.EndAll(t, succeeded)
			sub := x.Read(t)
			return sub.LastSuccessAt, sub.LastFailureAt
		}
		is := func(what string, got *int64, want time.Duration) {
			t.Helper()
			if got == nil || *got != start.Add(want).UnixMilli() {
				t.Errorf("%s: %v, want %d", what, got, start.Add(want).UnixMilli())
			}
		}

		success, failure := ended(time.Second, true)
		is("the first success", success, time.Second)
		if failure != nil {
			t.Errorf("a failure at %d", *failure)
		}
		success, _ = ended(1999*time.Millisecond, true)
		is("a success less than a second after the stored one is not stored", success, time.Second)
		success, _ = ended(2*time.Second, true)
		is("a success a second after the stored one", success, 2*time.Second)

		_, failure = ended(2100*time.Millisecond, false)
		is("a failure soon after a success", failure, 2100*time.Millisecond)
		_, failure = ended(2200*time.Millisecond, false)
		is("a failure soon after a failure", failure, 2200*time.Millisecond)
		success, _ = ended(2300*time.Millisecond, true)
		is("a success soon after a failure", success, 2300*time.Millisecond)

		back = time.Hour // the clock was ahead, and is set back
		success, _ = ended(3*time.Second, true)
		is("a success before the stored one", success, 3*time.Second-back)
		_, failure = ended(4*time.Second, false)
		is("a failure before the stored one", failure, 4*time.Second-back)
	})
}
