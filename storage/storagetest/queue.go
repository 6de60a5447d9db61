package storagetest

import (
	"slices"
	"testing"

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

// Jobs returns the pending deliveries of the subscription, at most 100.
func (x Customer) Jobs(tb testing.TB) []webhook.Job {
	tb.Helper()
	return Must[[]webhook.Job](tb)(x.Queue.PendingJobs(tb.Context(), x.Sub.RowID, 100, nil))
}

// Begin begins the next attempt of a job and returns its row id, or 0 if it was refused.
func (x Customer) Begin(tb testing.TB, job webhook.Job) int64 {
	tb.Helper()
	return Must[[]int64](tb)(x.Queue.Begin(tb.Context(), []webhook.Start{{
		Delivery: job.Delivery, Subscription: job.Subscription, Epoch: x.epoch(tb, job), Number: job.Number(), Trigger: job.Trigger(),
	}}))[0]
}

// End records the result of an attempt of the current epoch: the status 200 or 503.
func (x Customer) End(tb testing.TB, job webhook.Job, attempt int64, succeeded bool) webhook.Settled {
	tb.Helper()
	r := webhook.Result{
		Attempt: attempt, Delivery: job.Delivery, Subscription: job.Subscription, Epoch: x.epoch(tb, job), Number: job.Number(),
		Trigger: job.Trigger(), Succeeded: succeeded, ResponseStatus: new(200), DurationMS: 12, RetryAt: 1000, ProbeAt: 2000,
	}
	if !succeeded {
		r.ResponseStatus, r.Failure = new(503), webhook.Failure{Class: webhook.HTTPStatus, Text: "503"}
	}
	return Must[[]webhook.Settled](tb)(x.Queue.Record(tb.Context(), r))[0]
}

func (x Customer) epoch(tb testing.TB, job webhook.Job) int64 {
	tb.Helper()
	return Must[webhook.Target](tb)(x.Queue.Target(tb.Context(), job.Subscription)).Epoch
}
