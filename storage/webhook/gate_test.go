package webhook_test

import (
	"testing"

	"github.com/keyhook/keyhook/storage/webhook"
)

func TestProbesOfDisabledSubscriptions(t *testing.T) {
	t.Parallel()
	h := probed(15)
	early := h
	early.ProbeAt = 0 // disabled before the policy had probes
	for name, tt := range map[string]struct {
		policy webhook.Policy
		health webhook.Health
		now    int64
		want   bool
	}{
		"before its time":                          {probing, h, h.ProbeAt - 1, false},
		"at its time":                              {probing, h, h.ProbeAt, true},
		"without probes in the policy":             {policy, h, h.ProbeAt, false},
		"at a time that cannot be":                 {probing, h, h.ProbeAt - hour - 1, true},
		"after the policy got probes":              {probing, early, 1, true},
		"of a paused subscription":                 {probing, fresh().Deactivate("ana"), h.ProbeAt, false},
		"of one that its owner has switched off":   {probing, h.Deactivate("ana"), h.ProbeAt, false},
		"of a failing subscription, in any policy": {policy, probed(14), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate := webhook.Gate{Health: tt.health, Webhooks: true, ProbedEvery: tt.policy.ProbeDisabled}
			if got := gate.Sends(tt.now); got != tt.want {
				t.Errorf("sends: %v, want %v", got, tt.want)
			}
		})
	}
}
