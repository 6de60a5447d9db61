package dispatch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch"
)

func TestReady(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		methods []string
		says    string
	}{
		"attempts cannot be begun":            {[]string{"Begin"}, "the database does not take new attempts"},
		"results cannot be recorded":          {[]string{"Record"}, "the database does not take the results of attempts"},
		"subscriptions cannot be read":        {[]string{"Target"}, "the database does not return pending deliveries"},
		"pending deliveries cannot be listed": {[]string{"Lanes"}, "the database does not list pending deliveries"},
		"nothing at all can be read or begun": {[]string{"Begin", "Target", "PendingJobs", "Lanes"}, "the database does not"},
	} {
		runInVirtualTime(t, "it fails from a minute after "+name+" until they can", func(t *testing.T) {
			f := newFaults()
			x := stoppedFixture(t, f, dispatch.Options{})
			x.subscribe(t, "a.example", respondAfter(time.Second, respond(200)))
			f.fail(true, c.methods...)
			x.run(t)
			x.publish(t, 100)
			time.Sleep(59 * time.Second)
			if warning, err := x.Dispatcher.Ready(t.Context()); err != nil || warning != "" {
				t.Errorf("before: %q, %v", warning, err)
			}
			time.Sleep(30 * time.Second)
			for range 10 {
				if _, err := x.Dispatcher.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("at %s: %v", time.Now(), err)
				}
				time.Sleep(7 * time.Second)
			}
			f.fail(false, c.methods...)
			time.Sleep(40 * time.Second)
			if warning, err := x.Dispatcher.Ready(t.Context()); err != nil || warning != "" {
				t.Errorf("after: %q, %v", warning, err)
			}
		})
	}

	t.Run("it neither fails nor warns when owners' settings or failing receivers cause the wait", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			x.setRateLimit(t, x.subscribe(t, "paced.example", respond(200)), 1)
			x.subscribe(t, "down.example", hang)
			x.setActive(t, x.subscribe(t, "off.example", respond(200)), false)
			x.publish(t, 1000)
			for range 15 {
				time.Sleep(time.Minute)
				if warning, err := x.Dispatcher.Ready(t.Context()); err != nil || warning != "" {
					t.Errorf("%q, %v", warning, err)
				}
			}
		})
	})

	t.Run("it warns while a receiver is slow", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			x := newFixture(t, dispatch.Options{})
			x.subscribe(t, "slow.example", respondSlowly)
			x.publish(t, 200)
			for step, warns := range []bool{false, true, true, false} {
				if warning, err := x.Dispatcher.Ready(t.Context()); err != nil || (warning != "") != warns {
					t.Errorf("after %d times 75 s: %q, %v", step, warning, err)
				}
				time.Sleep(75 * time.Second)
			}
		})
	})
}
