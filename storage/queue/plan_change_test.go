package queue_test

import (
	"sync/atomic"
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// watcher counts what is told to the dispatcher.
type watcher struct{ changed atomic.Int64 }

func (*watcher) TakePlace(int64, int64) bool       { return false }
func (*watcher) ReturnPlace(int64, int64)          {}
func (w *watcher) DeliveriesCreated([]webhook.Job) {}

func (*watcher) BodiesChanged([]int64) {}
func (w *watcher) SubscriptionsChanged(subscriptions ...int64) {
	if len(subscriptions) == 0 {
		w.changed.Add(1)
	}
}

func TestTheDispatcherIsToldOfOtherPlans(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	org := must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "Acme", Plan: "free"}))
	var w watcher
	x.Queue.Watch(&w)
	for _, step := range []struct {
		name string
		do   func() error
		want int64
	}{
		{"of a plan that gains or loses webhooks", func() error {
			_, err := x.Directory.UpdatePlan(t.Context(), x.By, "growth", access.PlanChange{Webhooks: new(false)})
			return err
		}, 1},
		{"of an organization that gets a plan with webhooks", func() error {
			_, err := x.Directory.UpdateOrganization(t.Context(), x.By, org.ID, access.OrganizationChange{Plan: new("business")})
			return err
		}, 2},
		{"and of nothing else", func() error {
			if _, err := x.Directory.UpdatePlan(t.Context(), x.By, "growth", access.PlanChange{APIKeys: new(false)}); err != nil {
				return err
			}
			for _, plan := range []string{"business", "enterprise"} { // both have webhooks
				if _, err := x.Directory.UpdateOrganization(t.Context(), x.By, org.ID, access.OrganizationChange{Plan: &plan}); err != nil {
					return err
				}
			}
			_, err := x.Directory.UpdateOrganization(t.Context(), x.By, org.ID, access.OrganizationChange{Name: new("Acme Inc.")})
			return err
		}, 2},
	} {
		t.Run(step.name, func(t *testing.T) {
			if err := step.do(); err != nil || w.changed.Load() != step.want {
				t.Errorf("told %d times, want %d: %v", w.changed.Load(), step.want, err)
			}
		})
	}
}
