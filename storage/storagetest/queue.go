package storagetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Customer is a store with an organization that has one subscription to every event. Its methods do what a dispatcher does.
type Customer struct {
	*storage.Store
	Owner access.Principal
	Sub   webhook.Subscription
}

// CustomerOf makes a customer in an open store.
func CustomerOf(tb testing.TB, store *storage.Store) Customer {
	tb.Helper()
	owner, _ := Organization(tb, store, "acme", "growth", access.RoleOwner)
	sub, _ := Subscription(tb, store, owner, "https://example.com/hook")
	return Customer{store, owner, sub}
}

// Actor is the owner, as the audit log names one.
func (x Customer) Actor() access.Actor { return x.Owner.Actor("127.0.0.1", "test") }

// Org is the row of the organization.
func (x Customer) Org() int64 { return x.Owner.Organization.RowID }

// Publish publishes n events of a type at once, and returns their ids.
func (x Customer) Publish(tb testing.TB, n int, eventType string) (ids []string) {
	tb.Helper()
	events := slices.Repeat([]webhook.NewEvent{{Type: eventType, Data: []byte(`{}`)}}, n)
	for _, p := range Must[[]webhook.Published](tb)(x.Queue.PublishEvents(tb.Context(), x.Org(), events)) {
		ids = append(ids, p.ID)
	}
	return ids
}

// Jobs returns the pending deliveries of the subscription, at most 10,000.
func (x Customer) Jobs(tb testing.TB) []webhook.Job {
	tb.Helper()
	return Must[[]webhook.Job](tb)(x.Queue.PendingJobs(tb.Context(), x.Sub.RowID, 0, 10_000, nil))
}

// Begin begins the next attempt of a job and returns its row id, or 0 if it was refused.
func (x Customer) Begin(tb testing.TB, job webhook.Job) int64 {
	tb.Helper()
	return Must[[]int64](tb)(x.Queue.Begin(tb.Context(), []webhook.Start{{
		Delivery: job.Delivery, Subscription: job.Subscription, Epoch: x.epoch(tb, job), Number: job.Number(), Trigger: job.Trigger(),
	}}))[0]
}

// Result is the result of an attempt of the current epoch: the status 200 or 503.
func (x Customer) Result(tb testing.TB, job webhook.Job, attempt int64, succeeded bool) webhook.Result {
	tb.Helper()
	r := webhook.Result{
		Attempt: attempt, Delivery: job.Delivery, Subscription: job.Subscription, Epoch: x.epoch(tb, job), Number: job.Number(),
		Trigger: job.Trigger(), Succeeded: succeeded, ResponseStatus: new(200), DurationMS: 12, RetryAt: 1000, ProbeAt: 2000,
	}
	if !succeeded {
		r.ResponseStatus, r.Failure = new(503), webhook.Failure{Class: webhook.HTTPStatus, Text: "503"}
	}
	return r
}

// End records the result of an attempt.
func (x Customer) End(tb testing.TB, job webhook.Job, attempt int64, succeeded bool) webhook.Settled {
	tb.Helper()
	return Must[[]webhook.Settled](tb)(x.Queue.Record(tb.Context(), x.Result(tb, job, attempt, succeeded)))[0]
}

func (x Customer) epoch(tb testing.TB, job webhook.Job) int64 {
	tb.Helper()
	return Must[webhook.Target](tb)(x.Queue.Target(tb.Context(), job.Subscription)).Epoch
}

// EndAll ends all pending deliveries.
func (x Customer) EndAll(tb testing.TB, succeeded bool) {
	tb.Helper()
	for _, job := range x.Jobs(tb) {
		x.End(tb, job, x.Begin(tb, job), succeeded)
	}
}

// Fail publishes n events, and makes the first attempt of each fail.
func (x Customer) Fail(tb testing.TB, n int) {
	tb.Helper()
	for range n {
		x.Publish(tb, 1, "user.created")
		job := x.Jobs(tb)[0]
		x.End(tb, job, x.Begin(tb, job), false)
	}
}

// Missed publishes n events of a type that the subscription does not receive, because the plan has no webhooks.
func (x Customer) Missed(tb testing.TB, n int, eventType string) (ids []string) {
	tb.Helper()
	x.SetWebhooks(tb, false)
	for left := n; left > 0; left -= 1000 {
		ids = append(ids, x.Publish(tb, min(left, 1000), eventType)...)
	}
	x.SetWebhooks(tb, true)
	return ids
}

// SetWebhooks turns the webhooks of the plan on or off.
func (x Customer) SetWebhooks(tb testing.TB, webhooks bool) {
	tb.Helper()
	Must[access.Plan](tb)(x.Directory.UpdatePlan(tb.Context(), Operator(tb, x.Store).Actor("", ""), "growth", access.PlanChange{Webhooks: &webhooks}))
}

// Change updates the subscription.
func (x Customer) Change(tb testing.TB, by access.Actor, c webhook.SubscriptionChange) error {
	tb.Helper()
	_, err := x.Subscriptions.UpdateSubscription(tb.Context(), by, x.Org(), x.Sub.ID, c)
	return err
}

// SetActive sets is_active of the subscription.
func (x Customer) SetActive(tb testing.TB, on bool) {
	tb.Helper()
	if err := x.Change(tb, x.Actor(), webhook.SubscriptionChange{IsActive: &on}); err != nil {
		tb.Fatal(err)
	}
}

// Read returns the subscription as it is now.
func (x Customer) Read(tb testing.TB) webhook.Subscription {
	tb.Helper()
	return Must[webhook.Subscription](tb)(x.History.Subscription(tb.Context(), x.Org(), x.Sub.ID))
}

// Pending checks that the count of pending deliveries matches the table, and returns it.
func (x Customer) Pending(tb testing.TB) int64 {
	tb.Helper()
	told := x.Read(tb).PendingDeliveries
	if jobs := x.Jobs(tb); int64(len(jobs)) != told {
		tb.Errorf("%d deliveries are pending, %d are told", len(jobs), told)
	}
	return told
}

// CountReplay is a dry run of a replay.
func (x Customer) CountReplay(ctx context.Context, r webhook.Replay) (webhook.Replayed, error) {
	r.DryRun = true
	return x.Queue.Replay(ctx, x.Actor(), x.Org(), x.Sub.ID, r)
}

// CountRecovery is a dry run of a recovery.
func (x Customer) CountRecovery(ctx context.Context, r webhook.RecoveryRequest) (webhook.Recovery, error) {
	r.DryRun = true
	return x.Queue.Recover(ctx, x.Actor(), x.Org(), x.Sub.ID, r)
}

// Replays counts a replay and runs it twice. It expects this many deliveries.
func (x Customer) Replays(tb testing.TB, r webhook.Replay, want int64) {
	tb.Helper()
	before := x.Pending(tb)
	counted, err := x.CountReplay(tb.Context(), r)
	if err != nil || counted.Total() != want || x.Pending(tb) != before {
		tb.Errorf("%+v are counted, want %d, error %v; pending %d, before %d", counted, want, err, x.Pending(tb), before)
	}
	made, err := x.Queue.Replay(tb.Context(), x.Actor(), x.Org(), x.Sub.ID, r)
	if err != nil || made != counted || x.Pending(tb) != before+want {
		tb.Errorf("%+v are made, want %+v, error %v; pending %d, before %d", made, counted, err, x.Pending(tb), before)
	}
	if again, err := x.Queue.Replay(tb.Context(), x.Actor(), x.Org(), x.Sub.ID, r); err != nil || again.Total() != 0 || x.Pending(tb) != before+want {
		tb.Errorf("%+v are made again, error %v; pending %d", again, err, x.Pending(tb))
	}
}

// Outage has two events given up, and then a probe that succeeds. It returns the two events. It needs a synctest bubble, and a policy with
// one attempt, which disables after two failures and probes each minute.
func (x Customer) Outage(tb testing.TB) []string {
	tb.Helper()
	lost := append(x.Publish(tb, 1, "lost"), x.Publish(tb, 1, "lost")...)
	for range 2 {
		job := x.Jobs(tb)[0]
		x.End(tb, job, x.Begin(tb, job), false)
	}
	if sub := x.Read(tb); sub.Status != webhook.Disabled {
		tb.Fatalf("it is %s, not disabled", sub.Status)
	}
	x.Publish(tb, 1, "probe")
	time.Sleep(time.Minute)
	probe := slices.DeleteFunc(x.Jobs(tb), func(j webhook.Job) bool { return j.EventType != "probe" })[0]
	x.End(tb, probe, x.Begin(tb, probe), true)
	if sub := x.Read(tb); sub.Status != webhook.Healthy {
		tb.Fatalf("it is %s after the probe", sub.Status)
	}
	return lost
}

// WaitAgain expects that these events, and no other lost ones, are pending.
func (x Customer) WaitAgain(tb testing.TB, lost []string) {
	tb.Helper()
	var pending []string
	for _, job := range x.Jobs(tb) {
		if job.EventType == "lost" {
			pending = append(pending, job.EventID)
		}
	}
	if slices.Sort(lost); !slices.Equal(slices.Sorted(slices.Values(pending)), lost) {
		tb.Errorf("pending are %v, want %v", pending, lost)
	}
}
