package storage_test

import (
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// receiverIDs returns the subscriptions of all pages of that size.
func (x fixture) receiverIDs(t *testing.T, e webhook.EventFacts, limit int) []string {
	t.Helper()
	ids := []string{}
	for f := (webhook.ReceiverFilter{Limit: limit}); ; {
		page := must[access.Page[webhook.ReceiverFacts]](t)(x.History.ReceiverPage(t.Context(), x.Org(), e, f))
		for _, r := range page.Rows {
			ids = append(ids, r.ID)
			f.Before = r.RowID
		}
		if len(page.Rows) < limit && page.Next == 0 {
			return ids
		}
	}
}

func TestReceiverPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newFixture(t)
		second, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/2")
		gone, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/3")
		if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), gone.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		p := storagetest.Publish(t, x.Store, x.Owner, "order.paid")
		time.Sleep(time.Second)
		if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), second.ID); err != nil {
			t.Fatal(err)
		}
		later, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/4")
		stranger, _ := storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
		foreign, _ := storagetest.Subscription(t, x.Store, stranger, "https://example.org/")
		e := must[webhook.EventFacts](t)(x.History.EventFacts(t.Context(), x.Org(), p.ID))

		// It lists the subscriptions that lived when the event was published, or were created later.
		for _, limit := range []int{1, 2, 10} {
			if d := cmp.Diff([]string{later.ID, second.ID, x.Sub.ID}, x.receiverIDs(t, e, limit)); d != "" {
				t.Errorf("in pages of %d (-want +got):\n%s", limit, d)
			}
		}

		// It finds one subscription, even if it was deleted before.
		page := must[access.Page[webhook.ReceiverFacts]](t)(x.History.ReceiverPage(t.Context(), x.Org(), e, webhook.ReceiverFilter{Limit: 10, ID: gone.ID}))
		if len(page.Rows) != 1 || page.Rows[0].DeletedAt == nil || len(page.Rows[0].Deliveries) != 0 {
			t.Errorf("found %+v", page.Rows)
		}

		// It knows nothing about another organization.
		_, err := x.History.ReceiverPage(t.Context(), x.Org(), e, webhook.ReceiverFilter{Limit: 10, ID: foreign.ID})
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
		_, err = x.History.EventFacts(t.Context(), stranger.Organization.RowID, p.ID)
		storagetest.ExpectFault(t, err, fault.NotFound, "not_found")

		// It has the newest twenty deliveries with their last attempts.
		jobs := x.Jobs(t) // also of audit events
		job := jobs[slices.IndexFunc(jobs, func(j webhook.Job) bool { return j.EventID == p.ID })]
		x.End(t, job, x.Begin(t, job), false)
		first := must[[]webhook.Attempt](t)(x.Attempts(t.Context(), x.Org(), x.Sub.ID, webhook.AttemptFilter{Limit: 1}))[0]
		for range 22 {
			if err := x.Queue.Redeliver(t.Context(), x.Actor(), x.Org(), x.Sub.ID, first.ID); err != nil {
				t.Fatal(err)
			}
		}
		r := must[access.Page[webhook.ReceiverFacts]](t)(x.History.ReceiverPage(t.Context(), x.Org(), e, webhook.ReceiverFilter{Limit: 10, ID: x.Sub.ID})).Rows[0]
		if len(r.Deliveries) != 20 || r.Deliveries[0].Cause != webhook.ByHand || r.Deliveries[0].Last != nil {
			t.Errorf("%d deliveries, the newest: %+v", len(r.Deliveries), r.Deliveries[0])
		}

		// It scans no table.
		if n := storagetest.NoneGrows(t, x.Store, map[string]string{"LIMIT 20) own": "TEMP B-TREE FOR ORDER BY", "FROM deliveries own": "TEMP B-TREE", "INDEXED BY deliveries_sending": "TEMP B-TREE FOR LAST TERM"}); n < 10 {
			t.Errorf("only %d statements were run", n)
		}
	})
}

// TestFactsOfWhatCameFurthest delivers an event, and then fails to deliver it again more often than facts list.
func TestFactsOfWhatCameFurthest(t *testing.T) {
	t.Parallel()
	store, _ := storagetest.OpenWith(t, storagetest.FrailOptions(t, filepath.Join(t.TempDir(), "keyhook.db")))
	x := fixtureOf(t, store)
	p := storagetest.Publish(t, x.Store, x.Owner, "order.paid")
	x.EndAll(t, true)
	first := must[[]webhook.Attempt](t)(x.Attempts(t.Context(), x.Org(), x.Sub.ID, webhook.AttemptFilter{Limit: 1, EventID: p.ID}))[0]
	for range 21 {
		if err := x.Queue.Redeliver(t.Context(), x.Actor(), x.Org(), x.Sub.ID, first.ID); err != nil {
			t.Fatal(err)
		}
		x.EndAll(t, false)
	}
	e := must[webhook.EventFacts](t)(x.History.EventFacts(t.Context(), x.Org(), p.ID))
	page := must[access.Page[webhook.ReceiverFacts]](t)(x.History.ReceiverPage(t.Context(), x.Org(), e, webhook.ReceiverFilter{Limit: 10, ID: x.Sub.ID}))
	d := page.Rows[0].Deliveries
	if len(d) != 20 || d[0].State != webhook.Delivered || d[1].State != webhook.Exhausted || d[1].RowID < d[19].RowID {
		t.Errorf("%d deliveries: %+v", len(d), d)
	}
}
