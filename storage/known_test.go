package storage_test

import (
	"context"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestFanOutFollowsEveryChange compares who gets an event with what the subscriptions and the plan say at that moment. The
// writer remembers both from one transaction to the next, so whatever it fails to forget shows here.
func TestFanOutFollowsEveryChange(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	owner, _ := storagetest.Tenant(t, store, "acme", "growth", access.RoleOwner)
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
		subs, err := store.Subscriptions(ctx, org, "", 0, 1000)
		must(err)
		wanted := func() *webhook.Types {
			some := webhook.Types(rapid.SliceOfNDistinct(rapid.SampledFrom(patterns), 0, 3, rapid.ID[string]).Draw(r, "types"))
			return &some
		}
		yes := rapid.Bool().Draw(r, "yes")
		if len(subs) == 0 || len(subs) < 4 && yes {
			url := "https://example.com/"
			_, _, err := store.CreateSubscription(ctx, by, org, webhook.SubscriptionChange{URL: &url, EventTypes: wanted()})
			if webhooks[plan] {
				must(err)
			}
		} else {
			sub := rapid.SampledFrom(subs).Draw(r, "subscription")
			switch rapid.SampledFrom([]string{"types", "active", "fail", "remove", "plan", "move", "nothing"}).Draw(r, "act") {
			case "types":
				_, err = store.UpdateSubscription(ctx, by, org, sub.ID, webhook.SubscriptionChange{EventTypes: wanted()})
			case "active":
				_, err = store.UpdateSubscription(ctx, by, org, sub.ID, webhook.SubscriptionChange{IsActive: &yes})
			case "fail":
				failAll(ctx, r, store, sub)
			case "remove":
				err = store.DeleteSubscription(ctx, by, org, sub.ID)
			case "plan":
				webhooks[plan] = yes
				_, err = store.UpdatePlan(ctx, operator, plan, access.PlanChange{Webhooks: &yes})
			case "move":
				plan = rapid.SampledFrom([]string{"growth", "business"}).Draw(r, "plan")
				_, err = store.UpdateOrganization(ctx, operator, owner.Organization.ID, access.OrganizationChange{Plan: &plan})
			}
			must(err)
		}
		for _, eventType := range types {
			subs, err := store.Subscriptions(ctx, org, "", 0, 1000)
			must(err)
			want := len(slices.DeleteFunc(subs, func(s webhook.Subscription) bool {
				return !webhooks[plan] || !s.Active() || !s.EventTypes.Want(eventType)
			}))
			got, err := store.PublishEvents(ctx, org, []webhook.NewEvent{{Type: eventType, Data: []byte("{}")}})
			must(err)
			if got[0].Deliveries != want {
				r.Errorf("%s went to %d subscriptions, and %d want it", eventType, got[0].Deliveries, want)
			}
		}
	})
}

// TestWhoWantsWhatIsRememberedWithinBounds has many subscriptions to everything, and an organization that makes event types
// up as it goes. The subscriptions are off, so nothing is fanned out.
func TestWhoWantsWhatIsRememberedWithinBounds(t *testing.T) {
	t.Parallel()
	const subscriptions, types, bound = 500, 450, 200_000
	store := storagetest.Open(t)
	owner, _ := storagetest.Tenant(t, store, "acme", "growth", access.RoleOwner)
	url, no := "https://example.com/", false
	for range subscriptions {
		if _, _, err := store.CreateSubscription(t.Context(), owner.Actor("", ""), owner.Organization.RowID,
			webhook.SubscriptionChange{URL: &url, IsActive: &no}); err != nil {
			t.Fatal(err)
		}
	}
	most := 0
	for i := range types {
		storagetest.Publish(t, store, owner, "type_"+strconv.Itoa(i))
		rows, err := store.Wants(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, rows)
	}
	if most < bound/2 || most > bound {
		t.Errorf("%d rows are remembered, and there may be %d", most, bound)
	}
}

// failAll fails what is pending for a subscription until it is disabled, or nothing is left.
func failAll(ctx context.Context, r *rapid.T, store *storage.Store, sub webhook.Subscription) {
	jobs, err := store.PendingJobs(ctx, sub.RowID, 20, nil)
	if err != nil {
		r.Fatal(err)
	}
	for _, job := range jobs {
		at, err := store.Target(ctx, sub.RowID)
		if err != nil {
			r.Fatal(err)
		}
		rows, err := store.Begin(ctx, []webhook.Start{{
			Delivery: job.Delivery, Subscription: sub.RowID, Epoch: at.Epoch, Number: job.Number(), Trigger: job.Trigger(),
		}})
		if err != nil {
			r.Fatal(err)
		}
		if began := rows[0] != 0; began != at.Open {
			r.Errorf("begun: %t, open: %t", began, at.Open)
		}
		if rows[0] == 0 {
			return
		}
		if _, err := store.Record(ctx, webhook.Result{
			Attempt: rows[0], Delivery: job.Delivery, Subscription: sub.RowID, Epoch: at.Epoch, Number: job.Number(),
			Trigger: job.Trigger(), Error: "timeout: none",
		}); err != nil {
			r.Fatal(err)
		}
	}
}
