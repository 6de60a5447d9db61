package webhook_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/webhook"
)

var policy = webhook.Policy{MaxAttempts: 5, FailingAfter: 5, DisabledAfter: 15}

func fresh() webhook.Health { return webhook.Health{Status: webhook.Healthy, Epoch: 1} }

func fail(h webhook.Health, n int) webhook.Health {
	for i := range n {
		h = h.Fail(h.Epoch, fmt.Sprintf("failure %d", i+1), 100+int64(i), 1000+int64(i), policy)
	}
	return h
}

const hour = int64(time.Hour / time.Millisecond)

var probing = webhook.Policy{MaxAttempts: 5, FailingAfter: 5, DisabledAfter: 15, ProbeDisabled: time.Hour}

// probed fails n times under a policy with probes of disabled subscriptions.
func probed(n int) webhook.Health {
	h := fresh()
	for i := range n {
		h = h.Fail(h.Epoch, fmt.Sprintf("failure %d", i+1), 100+int64(i), 1000, probing)
	}
	return h
}

func TestHealth(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		got, want webhook.Health
	}{
		"four failures leave it healthy, with a count and a reason": {
			fail(fresh(), 4),
			webhook.Health{Status: webhook.Healthy, ConsecutiveFailures: 4, FailingSince: 100, LastError: "failure 4", Epoch: 1},
		},
		"the fifth makes it failing and sets the time of the first probe": {
			fail(fresh(), 5),
			webhook.Health{Status: webhook.Failing, ConsecutiveFailures: 5, FailingSince: 100, LastError: "failure 5", Epoch: 2, ProbeAt: 1004},
		},
		"nine failed probes leave it failing": {
			fail(fail(fresh(), 5), 9),
			webhook.Health{Status: webhook.Failing, ConsecutiveFailures: 14, FailingSince: 100, LastError: "failure 9", Epoch: 2, ProbeAt: 1008},
		},
		"the tenth disables it": {
			fail(fail(fresh(), 5), 10),
			webhook.Health{Status: webhook.Disabled, ConsecutiveFailures: 15, FailingSince: 100, LastError: "failure 10", Epoch: 3},
		},
		"a burst begun while it was healthy makes it failing and never disabled": {
			func() webhook.Health {
				h := fresh()
				for range 64 {
					h = h.Fail(1, "down", 100, 1000, policy)
				}
				return h
			}(),
			webhook.Health{Status: webhook.Failing, ConsecutiveFailures: 5, FailingSince: 100, LastError: "down", Epoch: 2, ProbeAt: 1000},
		},
		"a failure does not heal, although the limit is larger since a restart": {
			func() webhook.Health {
				h, larger := fail(fresh(), 5), policy
				larger.FailingAfter = 10
				return h.Fail(h.Epoch, "still down", 105, 1005, larger)
			}(),
			webhook.Health{Status: webhook.Failing, ConsecutiveFailures: 6, FailingSince: 100, LastError: "still down", Epoch: 2, ProbeAt: 1005},
		},
		"a success heals": {
			func() webhook.Health { h := fail(fresh(), 7); return h.Succeed(h.Epoch) }(),
			webhook.Health{Status: webhook.Healthy, Epoch: 3},
		},
		"a success begun before it was failing does not": {
			fail(fresh(), 5).Succeed(1),
			webhook.Health{Status: webhook.Failing, ConsecutiveFailures: 5, FailingSince: 100, LastError: "failure 5", Epoch: 2, ProbeAt: 1004},
		},
		"a success does not bring back what its owner has switched off": {
			func() webhook.Health { h := fresh().Deactivate("ana"); return h.Succeed(h.Epoch) }(),
			webhook.Health{Status: webhook.Disabled, LastError: "deactivated by ana", Epoch: 2, Paused: true},
		},
		"its owner brings it back with a clean count": {
			fail(fail(fresh(), 5), 10).Activate(),
			webhook.Health{Status: webhook.Healthy, Epoch: 4},
		},
		"what was begun before it was brought back does not count": {
			fail(fail(fresh(), 5), 10).Activate().Fail(2, "late", 1, 1, policy),
			webhook.Health{Status: webhook.Healthy, Epoch: 4},
		},
		"switching off what is disabled already keeps the reason, and ends its probes": {
			fail(fail(fresh(), 5), 10).Deactivate("ana"),
			webhook.Health{Status: webhook.Disabled, ConsecutiveFailures: 15, FailingSince: 100, LastError: "failure 10", Epoch: 4, ProbeAt: -1},
		},
		"with probes, a disabled subscription has a time for the next one": {
			probed(15),
			webhook.Health{Status: webhook.Disabled, ConsecutiveFailures: 15, FailingSince: 100, LastError: "failure 15", Epoch: 3, ProbeAt: 114 + hour},
		},
		"a failed probe leaves it disabled in the same epoch": {
			probed(16),
			webhook.Health{Status: webhook.Disabled, ConsecutiveFailures: 16, FailingSince: 100, LastError: "failure 16", Epoch: 3, ProbeAt: 115 + hour},
		},
		"a successful probe brings it back": {
			func() webhook.Health { h := probed(16); return h.Succeed(h.Epoch) }(),
			webhook.Health{Status: webhook.Healthy, Epoch: 4},
		},
		"a probe that its owner overtakes by switching off does not bring it back": {
			func() webhook.Health { h := probed(15); return h.Deactivate("ana").Succeed(h.Epoch) }(),
			webhook.Health{Status: webhook.Disabled, ConsecutiveFailures: 15, FailingSince: 100, LastError: "failure 15", Epoch: 4, ProbeAt: -1},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(test.want, test.got); d != "" {
				t.Errorf("health (-want +got):\n%s", d)
			}
		})
	}
}

// TestHealthInvariants walks every sequence of eight steps and checks what must always hold.
func TestHealthInvariants(t *testing.T) {
	t.Parallel()
	small := webhook.Policy{FailingAfter: 2, DisabledAfter: 4}
	steps := map[string]func(webhook.Health) webhook.Health{
		"succeed":    func(h webhook.Health) webhook.Health { return h.Succeed(h.Epoch) },
		"fail":       func(h webhook.Health) webhook.Health { return h.Fail(h.Epoch, "down", 5, 7, small) },
		"fail late":  func(h webhook.Health) webhook.Health { return h.Fail(h.Epoch-1, "late", 5, 7, small) },
		"activate":   webhook.Health.Activate,
		"deactivate": func(h webhook.Health) webhook.Health { return h.Deactivate("ana") },
		"renew":      webhook.Health.Renew,
	}
	seen := map[webhook.Status]bool{}
	var walk func(h webhook.Health, path string, left int)
	walk = func(h webhook.Health, path string, left int) {
		seen[h.Status] = true
		for name, step := range steps {
			next := step(h)
			at := path + " → " + name
			switch {
			case next.Status != webhook.Healthy && next.LastError == "":
				t.Fatalf("%s: %s without a reason", at, next.Status)
			case (next.ProbeAt > 0) != (next.Status == webhook.Failing):
				t.Fatalf("%s: a probe is set for %d while %s", at, next.ProbeAt, next.Status)
			case (next.FailingSince != 0) != (next.ConsecutiveFailures > 0):
				t.Fatalf("%s: failing since %d with %d failures", at, next.FailingSince, next.ConsecutiveFailures)
			case next.Status != h.Status && next.Epoch == h.Epoch:
				t.Fatalf("%s: the status changed within an epoch", at)
			case next.Epoch < h.Epoch:
				t.Fatalf("%s: the epoch went back", at)
			case h.Status == webhook.Healthy && next.Status == webhook.Disabled && name != "deactivate":
				t.Fatalf("%s: disabled without having been failing", at)
			case name == "fail late" && next != h:
				t.Fatalf("%s: an attempt of another epoch counted", at)
			case name == "succeed" && h.Status != webhook.Disabled && (next.Status != webhook.Healthy || next.ConsecutiveFailures != 0):
				t.Fatalf("%s: a success left %+v", at, next)
			}
			if left > 1 {
				walk(next, at, left-1)
			}
		}
	}
	walk(fresh(), "new", 8)
	if len(seen) != 3 {
		t.Errorf("the walk saw only %v", seen)
	}
}

func TestAnOutageBeginsNotAfterItsFailures(t *testing.T) {
	t.Parallel()
	h := fail(fresh(), 5) // from 100 on
	h = h.Fail(h.Epoch, "after a correction of the clock", 40, 1000, policy)
	h = h.Fail(h.Epoch, "later", 41, 1000, policy)
	if h.FailingSince != 40 {
		t.Errorf("failing since %d, want 40: a recovery leaves out what failed before that", h.FailingSince)
	}
}
