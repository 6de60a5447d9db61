package webhook_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/webhook"
)

func TestNextAttempt(t *testing.T) {
	t.Parallel()
	const now = int64(1000)
	open := func(change func(*webhook.Schedule)) webhook.Schedule {
		s := webhook.Schedule{Subscription: webhook.Subscription{Gate: webhook.Gate{Health: fresh(), Webhooks: true}}}
		if change != nil {
			change(&s)
		}
		return s
	}
	failing := open(func(s *webhook.Schedule) { s.Health, s.FirstDue = fail(fresh(), 5), new(now+5); s.ProbeAt = now + 500 })
	probed := func(change func(*webhook.Schedule)) webhook.Schedule {
		return open(func(s *webhook.Schedule) {
			s.Health, s.FirstDue, s.ProbedEvery = fail(fail(fresh(), 5), 10), new(now-7), time.Second
			s.ProbeAt = now + 500
			if change != nil {
				change(s)
			}
		})
	}
	for name, tt := range map[string]struct {
		schedule webhook.Schedule
		due      *int64
		want     *int64
	}{
		"a retry to come": {open(nil), new(now + 1), new(now + 1)},
		"a delivery that is due now waits for a slot":      {open(nil), new(now), nil},
		"a delivery that was due":                          {open(nil), new(now - 1), nil},
		"a delivery that has ended":                        {open(nil), nil, nil},
		"a deleted subscription":                           {webhook.Schedule{}, new(now + 1), nil},
		"a paused subscription":                            {open(func(s *webhook.Schedule) { s.Health = s.Deactivate("ana") }), new(now + 1), nil},
		"a disabled subscription":                          {open(func(s *webhook.Schedule) { s.Health = fail(fail(fresh(), 5), 10) }), new(now + 1), nil},
		"the probe of a disabled subscription":             {probed(nil), new(now - 7), new(now + 500)},
		"another delivery waits for that probe":            {probed(nil), new(now - 6), nil},
		"a probe that is due":                              {probed(func(s *webhook.Schedule) { s.ProbeAt = now }), new(now - 7), nil},
		"a probe of a delivery that is due later":          {probed(func(s *webhook.Schedule) { s.FirstDue = new(now + 900) }), new(now + 900), new(now + 900)},
		"a probe from before the clock was set back":       {probed(func(s *webhook.Schedule) { s.ProbeAt = now + 5000 }), new(now - 7), nil},
		"a probed subscription whose plan has no webhooks": {probed(func(s *webhook.Schedule) { s.Webhooks = false }), new(now - 7), nil},
		"a probed subscription while the queue is held":    {probed(func(s *webhook.Schedule) { s.QueueHeld = true }), new(now - 7), nil},
		"a plan without webhooks":                          {open(func(s *webhook.Schedule) { s.Webhooks = false }), new(now + 1), nil},
		"a held queue":                                     {open(func(s *webhook.Schedule) { s.QueueHeld = true }), new(now + 1), nil},
		"the next probe":                                   {failing, new(now + 5), new(now + 500)},
		"another delivery waits for the probe":             {failing, new(now + 6), nil},
		"a probe that is due later than its pause":         {open(func(s *webhook.Schedule) { s.Health, s.FirstDue = fail(fresh(), 5), new(now+900) }), new(now + 900), new(now + 900)},
		"a probe on the wire":                              {failing, new(now - 5), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.due != nil && tt.schedule.ProbeAt == 1004 { // of fail
				tt.schedule.ProbeAt = now
			}
			if d := cmp.Diff(tt.want, tt.schedule.NextAttempt(tt.due, now)); d != "" {
				t.Errorf("next attempt (-want +got):\n%s", d)
			}
		})
	}
}
