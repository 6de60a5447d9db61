package dispatch_test

import (
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch"
)

func TestSlowDisk(t *testing.T) {
	t.Parallel()
	t.Run("a quick receiver gets more and more events for each commit, however long a commit takes", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			const events, commit = 2000, 100 * time.Millisecond
			f := newFaults()
			f.beginTakes, f.recordTakes = commit, commit
			x := stoppedFixture(t, f, dispatch.Options{})
			x.subscribe(t, "quick.example", respondAfter(time.Millisecond, respond(200)))
			for range events / 500 {
				x.publish(t, 500)
			}
			x.run(t)
			begin := time.Now()
			for x.Pending() > 0 && time.Since(begin) < time.Minute {
				time.Sleep(commit / 10)
			}
			checkDeliveredOnce(t, x, "quick.example", events)
			if took := time.Since(begin); took > 100*commit {
				t.Errorf("it took the time of %d commits", took/commit)
			}
		})
	})
}
