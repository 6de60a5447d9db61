package queue_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestFanOutFollowsEveryChange compares the receivers of an event with the current subscriptions and plan. The writer
// caches both, so a missing invalidation shows here.
func TestFanOutFollowsEveryChange(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	owner, _ := storagetest.Organization(t, store, "acme", "growth", access.RoleOwner)
	by, org := owner.Actor("", ""), owner.Organization.RowID
	operator := storagetest.Operator(t, store).Actor("", "")
	types := []string{"a", "a.b", "a.b.c", "d"}
	patterns := append([]string{"a.*", "a.b.*"}, types...)
	plan, webhooks := "growth", map[string]bool{"growth": true, "business": true}
	rapid.Check(t, func(r *rapid.T) {
		ctx := context.Background()
		must := func(err error) {
			if err != nil {
				r.Fatal(err)
			}
		}
		subs, err := store.SubscriptionList(ctx, org, "", 0, 1000)
		must(err)
		wanted := func() *webhook.Types {
			some := webhook.Types(rapid.SliceOfNDistinct(rapid.SampledFrom(patterns), 0, 3, rapid.ID[string]).Draw(r, "types"))
			return &some
		}
		yes := rapid.Bool().Draw(r, "yes")
		if len(subs) == 0 || len(subs) < 4 && yes {
			url := "https://example.com/"
			_, _, err := store.Subscriptions.CreateSubscription(ctx, by, org, webhook.SubscriptionChange{URL: &url, EventTypes: wanted()})
			if webhooks[plan] {
				must(err)
			}
		} else {
			sub := rapid.SampledFrom(subs).Draw(r, "subscription")
			switch rapid.SampledFrom([]string{"types", "active", "fail", "remove", "plan", "move", "nothing"}).Draw(r, "act") {
			case "types":
				_, err = store.Subscriptions.UpdateSubscription(ctx, by, org, sub.ID, webhook.SubscriptionChange{EventTypes: wanted()})
			case "active":
				_, err = store.Subscriptions.UpdateSubscription(ctx, by, org, sub.ID, webhook.SubscriptionChange{IsActive: &yes})
			case "fail":
				failAll(ctx, r, store, sub)
			case "remove":
				err = store.Subscriptions.DeleteSubscription(ctx, by, org, sub.ID)
			case "plan":
				webhooks[plan] = yes
				_, err = store.Directory.UpdatePlan(ctx, operator, plan, access.PlanChange{Webhooks: &yes})
			case "move":
				plan = rapid.SampledFrom([]string{"growth", "business"}).Draw(r, "plan")
				_, err = store.Directory.UpdateOrganization(ctx, operator, owner.Organization.ID, access.OrganizationChange{Plan: &plan})
			}
			must(err)
		}
		for _, eventType := range types {
			subs, err := store.SubscriptionList(ctx, org, "", 0, 1000)
			must(err)
			subs = slices.DeleteFunc(subs, func(s webhook.Subscription) bool { return !webhooks[plan] || !s.EventTypes.Want(eventType) })
			want := len(subs)
			held := len(slices.DeleteFunc(subs, webhook.Subscription.Active))
			got, err := store.Queue.PublishEvents(ctx, org, []webhook.NewEvent{{Type: eventType, Data: []byte("{}")}})
			must(err)
			if got[0].Deliveries != want || got[0].Held != held {
				r.Errorf("%s: %+v, want %d deliveries with %d held", eventType, got[0], want, held)
			}
		}
	})
}

// TestNothingIsRememberedOfARollback rolls back what the writer caches and counts. The time stands still, because the
// writer skips a write of the same time.
func TestNothingIsRememberedOfARollback(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, storagetest.Options(t, path))
		x := fixtureOf(t, store)
		no := errors.New("no")
		undone := func(run func(*queue.Tx) error) {
			t.Helper()
			if err := store.Queue.Write(t.Context(), func(t *queue.Tx) error { return errors.Join(run(t), no) }); err == nil || err.Error() != no.Error() {
				t.Fatalf("not only told to fail: %v", err)
			}
		}
		undone(func(t *queue.Tx) error {
			if err := t.WriteHealth(x.Sub.RowID, x.Sub.Deactivate("nobody")); err != nil {
				return err
			}
			return store.PublishIn(t, x.Org(), "user.created")
		})
		if p := storagetest.Publish(t, store, x.Owner, "user.created"); p.Deliveries != 1 {
			t.Fatalf("%d deliveries", p.Deliveries)
		}
		job := x.Jobs(t)[0]
		r := webhook.Result{
			Attempt: x.Begin(t, job), Delivery: job.Delivery, Subscription: x.Sub.RowID, Epoch: 1, Number: 1, Succeeded: true,
		}
		undone(func(t *queue.Tx) error { return store.RecordIn(t, r) })
		stored := must[int64](t)(store.StoredToday(t.Context(), x.Org()))
		undone(func(t *queue.Tx) error { t.CountBytesIn(x.Org(), 100); return nil })
		if now := must[int64](t)(store.StoredToday(t.Context(), x.Org())); now != stored {
			t.Errorf("%d bytes are counted after a rollback, want %d", now, stored)
		}
		if _, err := store.Queue.Record(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if sub, err := store.History.Subscription(t.Context(), x.Org(), x.Sub.ID); err != nil || sub.LastSuccessAt == nil {
			t.Errorf("last success %v, error %v", sub.LastSuccessAt, err)
		}
		minute := time.Now().Unix() / 60
		points, err := store.History.Series(t.Context(), x.Org(), "", minute, minute+1, 1)
		if err != nil || len(points) != 1 || points[0].Succeeded != 1 {
			t.Errorf("counted %+v, error %v", points, err)
		}
	})
}

// failAll fails pending deliveries of a subscription until it is disabled or none is left.
func failAll(ctx context.Context, r *rapid.T, store *storage.Store, sub webhook.Subscription) {
	jobs, err := store.Queue.PendingJobs(ctx, sub.RowID, 0, 20, nil)
	if err != nil {
		r.Fatal(err)
	}
	for _, job := range jobs {
		at, err := store.Queue.Target(ctx, sub.RowID)
		if err != nil {
			r.Fatal(err)
		}
		rows, err := store.Queue.Begin(ctx, []webhook.Start{{
			Delivery: job.Delivery, Subscription: sub.RowID, Epoch: at.Epoch, Number: job.Number(), Trigger: job.Trigger(),
		}})
		if err != nil {
			r.Fatal(err)
		}
		if began := rows[0] != 0; began == at.Shut() {
			r.Errorf("begun: %t, shut: %t", began, at.Shut())
		}
		if rows[0] == 0 {
			return
		}
		if _, err := store.Queue.Record(ctx, webhook.Result{
			Attempt: rows[0], Delivery: job.Delivery, Subscription: sub.RowID, Epoch: at.Epoch, Number: job.Number(),
			Trigger: job.Trigger(), Failure: webhook.Failure{Class: webhook.TimeoutError, Text: "none"},
		}); err != nil {
			r.Fatal(err)
		}
	}
}

// TestEventsAboutASubscription changes two subscriptions in turn. Each gets the audit events about the other, and none about itself.
func TestEventsAboutASubscription(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	url, yes, types := "https://example.com/", true, webhook.Types{access.SubscriptionUpdated}
	var both [2]webhook.Subscription
	for i := range both {
		var err error
		if both[i], _, err = x.Subscriptions.CreateSubscription(t.Context(), x.Actor(), x.Org(), webhook.SubscriptionChange{URL: &url, EventTypes: &types, AuditEvents: &yes}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 6 {
		description := strconv.Itoa(n)
		if _, err := x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), both[n%2].ID, webhook.SubscriptionChange{Description: &description}); err != nil {
			t.Fatal(err)
		}
	}
	for i, sub := range both {
		jobs, err := x.Queue.PendingJobs(t.Context(), sub.RowID, 0, 10, nil)
		if err != nil || len(jobs) != 3 {
			t.Errorf("subscription %d gets %d events, want 3, error %v", i, len(jobs), err)
		}
	}
}
