package webhook_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/webhook"
)

func TestNextAttempt(t *testing.T) {
	t.Parallel()
	const now, first, second = int64(1000), int64(1), int64(2)
	open := func(change func(*webhook.Schedule)) webhook.Schedule {
		s := webhook.Schedule{Subscription: webhook.Subscription{Gate: webhook.Gate{Health: fresh(), Webhooks: true}}}
		if change != nil {
			change(&s)
		}
		return s
	}
	failing := open(func(s *webhook.Schedule) { s.Health, s.First = fail(fresh(), 5), new(first); s.ProbeAt = now + 500 })
	probed := func(change func(*webhook.Schedule)) webhook.Schedule {
		return open(func(s *webhook.Schedule) {
			s.Health, s.First, s.ProbedEvery = fail(fail(fresh(), 5), 10), new(first), time.Second
			s.ProbeAt = now + 500
			if change != nil {
				change(s)
			}
		})
	}
	for name, tt := range map[string]struct {
		schedule webhook.Schedule
		delivery int64
		due      *int64
		want     *int64
	}{
		"a retry to come": {open(nil), first, new(now + 1), new(now + 1)},
		"a delivery that is due now waits for a slot":      {open(nil), first, new(now), nil},
		"a delivery that was due":                          {open(nil), first, new(now - 1), nil},
		"a delivery that has ended":                        {open(nil), first, nil, nil},
		"a deleted subscription":                           {webhook.Schedule{}, first, new(now + 1), nil},
		"a paused subscription":                            {open(func(s *webhook.Schedule) { s.Health = s.Deactivate("ana") }), first, new(now + 1), nil},
		"a disabled subscription":                          {open(func(s *webhook.Schedule) { s.Health = fail(fail(fresh(), 5), 10) }), first, new(now + 1), nil},
		"the probe of a disabled subscription":             {probed(nil), first, new(now - 7), new(now + 500)},
		"another delivery waits for that probe":            {probed(nil), second, new(now - 6), nil},
		"a probe that is due":                              {probed(func(s *webhook.Schedule) { s.ProbeAt = now }), first, new(now - 7), nil},
		"a probe of a delivery that is due later":          {probed(nil), first, new(now + 900), new(now + 900)},
		"a probe from before the clock was set back":       {probed(func(s *webhook.Schedule) { s.ProbeAt = now + 5000 }), first, new(now - 7), nil},
		"a probed subscription whose plan has no webhooks": {probed(func(s *webhook.Schedule) { s.Webhooks = false }), first, new(now - 7), nil},
		"a probed subscription while the queue is held":    {probed(func(s *webhook.Schedule) { s.QueueHeld = true }), first, new(now - 7), nil},
		"a plan without webhooks":                          {open(func(s *webhook.Schedule) { s.Webhooks = false }), first, new(now + 1), nil},
		"a held queue":                                     {open(func(s *webhook.Schedule) { s.QueueHeld = true }), first, new(now + 1), nil},
		"the next probe":                                   {failing, first, new(now + 5), new(now + 500)},
		"another delivery waits for the probe":             {failing, second, new(now + 5), nil},
		"a probe that is due later than its pause":         {failing, first, new(now + 900), new(now + 900)},
		"a probe on the wire":                              {failing, second, new(now - 5), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.due != nil && tt.schedule.ProbeAt == 1004 { // of fail
				tt.schedule.ProbeAt = now
			}
			if d := cmp.Diff(tt.want, tt.schedule.NextAttempt(tt.delivery, tt.due, now)); d != "" {
				t.Errorf("next attempt (-want +got):\n%s", d)
			}
		})
	}
}
