package queue_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// sendingPaths are the ways to a new delivery, and to the end of one, with what each needs. organization is whose credential asks.
var sendingPaths = map[string]func(t *testing.T, x fixture, organization int64, attempt string) error{
	"publish": func(t *testing.T, x fixture, organization int64, _ string) error {
		_, err := x.Queue.PublishEvents(t.Context(), organization, []webhook.NewEvent{{Type: "a", Data: []byte(`{}`)}})
		return err
	},
	"count a replay": func(t *testing.T, x fixture, organization int64, _ string) error {
		_, err := x.Queue.Replay(t.Context(), x.Actor(), organization, x.Sub.ID, webhook.Replay{Only: webhook.OnlyAll, DryRun: true})
		return err
	},
	"replay": func(t *testing.T, x fixture, organization int64, _ string) error {
		_, err := x.Queue.Replay(t.Context(), x.Actor(), organization, x.Sub.ID, everything)
		return err
	},
	"count a recovery": func(t *testing.T, x fixture, organization int64, _ string) error {
		_, err := x.Queue.Recover(t.Context(), x.Actor(), organization, x.Sub.ID, webhook.RecoveryRequest{Since: 1, DryRun: true})
		return err
	},
	"recover": func(t *testing.T, x fixture, organization int64, _ string) error {
		_, err := x.Queue.Recover(t.Context(), x.Actor(), organization, x.Sub.ID, webhook.RecoveryRequest{Since: 1})
		return err
	},
	"count a recovery of a list": func(t *testing.T, x fixture, organization int64, _ string) error {
		return x.sendsNamed(t, organization, webhook.BulkRequest{Recover: true, DryRun: true})
	},
	"recover a list": func(t *testing.T, x fixture, organization int64, _ string) error {
		return x.sendsNamed(t, organization, webhook.BulkRequest{Recover: true})
	},
	"redeliver a list": func(t *testing.T, x fixture, organization int64, _ string) error {
		return x.sendsNamed(t, organization, webhook.BulkRequest{})
	},
	"redeliver": func(t *testing.T, x fixture, organization int64, attempt string) error {
		return x.Queue.Redeliver(t.Context(), x.Actor(), organization, x.Sub.ID, attempt)
	},
	"test": func(t *testing.T, x fixture, organization int64, _ string) error {
		_, _, _, err := x.Queue.BeginTest(t.Context(), organization, x.Sub.ID, "")
		return err
	},
	"discard": func(t *testing.T, x fixture, organization int64, _ string) error {
		_, err := x.Queue.Discard(t.Context(), x.Actor(), organization, x.Sub.ID, 0)
		return err
	},
}

// sendsNamed sends again what is exhausted for the subscription.
func (x fixture) sendsNamed(t *testing.T, organization int64, r webhook.BulkRequest) error {
	t.Helper()
	r.Events = webhook.EventFilter{State: webhook.AnyExhausted, Since: 1, Subscription: x.Sub.ID}
	_, err := x.Queue.SendListed(t.Context(), x.Actor(), organization, r)
	return err
}

// guard is one reason to refuse. prepare returns the organization that asks. codes are the faults by path; the other paths work.
type guard struct {
	prepare func(t *testing.T, x fixture) int64
	codes   map[string]string
}

// refusedBy returns the same code for several paths.
func refusedBy(code string, paths ...string) map[string]string {
	codes := map[string]string{}
	for _, path := range paths {
		codes[path] = code
	}
	return codes
}

// guards are the reasons to refuse.
var guards = map[string]guard{
	"another organization, which is older": {func(t *testing.T, x fixture) int64 {
		return storagetest.Operator(t, x.Store).Organization.RowID
	}, refusedBy("not_found", "count a replay", "replay", "count a recovery", "recover", "redeliver", "test", "discard", "count a recovery of a list", "recover a list", "redeliver a list")},
	"another organization, which is newer": {func(t *testing.T, x fixture) int64 {
		newer, _ := storagetest.Organization(t, x.Store, "newer", "growth", access.RoleOwner)
		return newer.Organization.RowID
	}, refusedBy("not_found", "count a replay", "replay", "count a recovery", "recover", "redeliver", "test", "discard", "count a recovery of a list", "recover a list", "redeliver a list")},
	"a deleted subscription": {func(t *testing.T, x fixture) int64 {
		if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID); err != nil {
			t.Fatal(err)
		}
		return x.Org()
	}, refusedBy("not_found", "count a replay", "replay", "count a recovery", "recover", "redeliver", "test", "discard", "count a recovery of a list", "recover a list", "redeliver a list")},
	"a plan without webhooks": {func(t *testing.T, x fixture) int64 {
		x.SetWebhooks(t, false)
		return x.Org()
	}, refusedBy("plan_capability_required", "count a replay", "replay", "count a recovery", "recover", "redeliver", "test", "count a recovery of a list", "recover a list", "redeliver a list")},
	"a used-up quota": {func(t *testing.T, x fixture) int64 {
		must[access.Plan](t)(x.Directory.UpdatePlan(t.Context(), holder(t, x), "growth", access.PlanChange{MaxStoredBytes: new(new(int64(1)))}))
		return x.Org()
	}, refusedBy("storage_quota_exceeded", "publish", "replay", "recover", "redeliver", "test", "recover a list", "redeliver a list")},
	"a held queue": {func(t *testing.T, x fixture) int64 {
		holdQueue(t, x)
		return x.Org()
	}, refusedBy("queue_held", "test")},
	"a paused subscription": {func(t *testing.T, x fixture) int64 {
		x.SetActive(t, false)
		return x.Org()
	}, refusedBy("paused", "count a recovery", "recover")},
	"nothing": {func(_ *testing.T, x fixture) int64 { return x.Org() }, nil},
}

// TestGuardsOfEachPath tries each way to send under each reason to refuse: a guard that one path has may be missing on another. Closed
// organizations have tests of their own.
func TestGuardsOfEachPath(t *testing.T) {
	t.Parallel()
	for name, g := range guards {
		for _, path := range slices.Sorted(maps.Keys(sendingPaths)) {
			t.Run(path+" with "+name, func(t *testing.T) {
				t.Parallel()
				x := newOneAttemptFixture(t)
				x.EndAll(t, true)
				x.Publish(t, 2, "a")
				x.EndAll(t, false) // what a replay and a recovery send again
				attempt := x.all(t)[0].ID
				x.Publish(t, 1, "a") // what a discard drops
				organization := g.prepare(t, x)
				before := x.deliveries(t)
				err := sendingPaths[path](t, x, organization, attempt)
				f, _ := fault.As(err)
				switch want := g.codes[path]; {
				case want == "" && err != nil:
					t.Errorf("error %v", err)
				case want != "" && (f == nil || f.Code != want):
					t.Errorf("error %v, want %s", err, want)
				case want != "" && x.deliveries(t) != before:
					t.Error("the refusal has changed the deliveries")
				}
			})
		}
	}
}

// deliveries returns a sum that every new delivery changes, and every changed state.
func (x fixture) deliveries(t *testing.T) (sum int64) {
	t.Helper()
	if err := x.Queue.Write(t.Context(), func(tx *queue.Tx) error {
		return tx.Get(&sum, "SELECT coalesce(sum(id * 100 + state), 0) FROM deliveries WHERE subscription_id = ?", x.Sub.RowID)
	}); err != nil {
		t.Fatal(err)
	}
	return sum
}
