package subscription_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// pace sets the rate limit of the subscription; 0 removes it.
func pace(t *testing.T, x storagetest.Customer, perSecond int64) webhook.Subscription {
	t.Helper()
	c := webhook.SubscriptionChange{RateLimitPerSecond: new((*int64)(nil))}
	if perSecond != 0 {
		*c.RateLimitPerSecond = &perSecond
	}
	return storagetest.Must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID, c))
}

// changeCounter counts the changes of one subscription that the dispatcher hears of.
type changeCounter struct {
	of    int64
	named atomic.Int64
}

func (*changeCounter) TakePlace(int64, int64) bool     { return false }
func (*changeCounter) ReturnPlace(int64, int64)        {}
func (*changeCounter) DeliveriesCreated([]webhook.Job) {}
func (*changeCounter) BodiesChanged([]int64)           {}

func (w *changeCounter) SubscriptionsChanged(subscriptions ...int64) {
	if slices.Contains(subscriptions, w.of) {
		w.named.Add(1)
	}
}

func TestRateLimit(t *testing.T) {
	t.Parallel()

	t.Run("a rate limit is stored, announced, audited and removed", func(t *testing.T) {
		t.Parallel()
		x := storagetest.CustomerOf(t, storagetest.Open(t))
		w := changeCounter{of: x.Sub.RowID}
		x.Queue.Watch(&w)
		before := storagetest.Must[webhook.Target](t)(x.Queue.Target(t.Context(), x.Sub.RowID))
		if x.Sub.RateLimitPerSecond != nil || before.RateLimitPerSecond != nil {
			t.Fatalf("a new subscription has a limit: %+v", x.Sub)
		}
		for i, step := range []struct {
			limit int64
			audit string
		}{{10, `{"rate_limit_per_second":10}`}, {10_000, `{"rate_limit_per_second":10000}`}, {0, `{"rate_limit_per_second":null}`}} {
			changed := pace(t, x, step.limit)
			read := storagetest.Must[webhook.Subscription](t)(x.History.Subscription(t.Context(), x.Org(), x.Sub.ID))
			at := storagetest.Must[webhook.Target](t)(x.Queue.Target(t.Context(), x.Sub.RowID))
			for _, limit := range []*int64{changed.RateLimitPerSecond, read.RateLimitPerSecond, at.RateLimitPerSecond} {
				if step.limit == 0 != (limit == nil) || limit != nil && *limit != step.limit {
					t.Errorf("a limit of %d is kept as %v", step.limit, limit)
				}
			}
			if at.Epoch != before.Epoch || at.Status != before.Status {
				t.Errorf("the limit changes the health: %+v", at.Health)
			}
			if n := w.named.Load(); n != int64(i+1) {
				t.Errorf("told of %d changes, want %d", n, i+1)
			}
			log := storagetest.Must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), x.Org(), access.AuditFilter{Limit: 1})).Rows
			if len(log) != 1 || log[0].Type != access.SubscriptionUpdated || string(log[0].Details) != step.audit {
				t.Errorf("audit log %+v, want %s", log, step.audit)
			}
		}
	})

	t.Run("a rate limit survives other changes and may be set at creation", func(t *testing.T) {
		t.Parallel()
		x := storagetest.CustomerOf(t, storagetest.Open(t))
		url, description, limit := "https://example.com/other", "slow", int64(7)
		sub, _, err := x.Subscriptions.CreateSubscription(t.Context(), x.Actor(), x.Org(), webhook.SubscriptionChange{
			URL: &url, RateLimitPerSecond: new(&limit),
		})
		if err != nil {
			t.Fatal(err)
		}
		sub = storagetest.Must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), sub.ID, webhook.SubscriptionChange{Description: &description}))
		if sub.RateLimitPerSecond == nil || *sub.RateLimitPerSecond != 7 || sub.Description != "slow" {
			t.Errorf("%+v", sub)
		}
	})

	t.Run("the schema refuses a rate limit that is out of range", func(t *testing.T) {
		t.Parallel()
		x := storagetest.CustomerOf(t, storagetest.Open(t))
		for _, limit := range []int64{-1, 0, webhook.MaxRateLimit + 1} {
			_, err := x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.SubscriptionChange{RateLimitPerSecond: new(&limit)})
			if err == nil || !strings.Contains(err.Error(), "CHECK") {
				t.Errorf("a limit of %d: %v", limit, err)
			}
		}
	})

	t.Run("deliveries that wait for a rate limit are not late", func(t *testing.T) {
		t.Parallel()
		x := storagetest.CustomerOf(t, storagetest.Open(t))
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
		for _, limit := range []int64{0, 1, 0} {
			pace(t, x, limit)
			if b, err := x.Survey.Backlog(t.Context()); err != nil || (b.OldestDue != 0) != (limit == 0) {
				t.Errorf("with a limit of %d, the oldest of the backlog is due at %d, error %v", limit, b.OldestDue, err)
			}
		}
	})
}
