package storage_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestEventsAreListedNewestFirst(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	var want []string
	for i := range 5 {
		want = append(want, storagetest.Publish(t, x.Store, x.Owner, fmt.Sprintf("e%d", i)).ID)
	}
	slices.Reverse(want)
	var got []string
	var before int64
	for range 3 {
		page, err := x.Events(t.Context(), x.Org(), before, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			if strings.HasPrefix(e.Type, "e") {
				got = append(got, e.ID)
			}
			before = e.RowID
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	other, _ := storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
	if _, _, err := x.History.Event(t.Context(), other.Organization.RowID, want[0]); fault.KindOf(err) != fault.NotFound {
		t.Errorf("another organization's event: %v", err)
	}
	for _, id := range []string{"", "evt_", "att_" + want[0][4:], want[0] + "0", withWrongTime(want[0]), "evt_zzzzzzzzzzzzzzzzzzzzzzzzzz", "\x00"} {
		if _, _, err := x.History.Event(t.Context(), x.Org(), id); fault.KindOf(err) != fault.NotFound {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// withWrongTime returns an id with a time that no row has.
func withWrongTime(id string) string {
	const early = "evt_00"
	return early + id[len(early):]
}

func TestAttemptFilters(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	owner, _ := storagetest.Organization(t, store, "acme", "growth", access.RoleOwner)
	other, _ := storagetest.Subscription(t, store, owner, "https://example.com/other", "bad") // its attempts are never listed
	sub, _ := storagetest.Subscription(t, store, owner, "https://example.com/hook")
	x := fixture{storagetest.Customer{Store: store, Owner: owner, Sub: sub}}
	good := storagetest.Publish(t, x.Store, x.Owner, "good")
	bad := storagetest.Publish(t, x.Store, x.Owner, "bad")
	fixture{storagetest.Customer{Store: store, Owner: owner, Sub: other}}.EndAll(t, true)
	for _, job := range x.Jobs(t) {
		x.End(t, job, x.Begin(t, job), job.EventID == good.ID)
	}
	for _, job := range x.Jobs(t) {
		x.End(t, job, x.Begin(t, job), false)
	}
	failed, succeeded := webhook.Failed, webhook.Succeeded
	all, err := x.Attempts(t.Context(), x.Org(), x.Sub.ID, webhook.AttemptFilter{Limit: 10})
	if err != nil || len(all) != 3 {
		t.Fatalf("%d attempts, error %v", len(all), err)
	}
	tests := map[string]struct {
		filter webhook.AttemptFilter
		want   int
	}{
		"by outcome failed":           {webhook.AttemptFilter{Outcome: &failed}, 2},
		"by outcome succeeded":        {webhook.AttemptFilter{Outcome: &succeeded}, 1},
		"by event type":               {webhook.AttemptFilter{EventType: "bad"}, 2},
		"by event id":                 {webhook.AttemptFilter{EventID: bad.ID}, 2},
		"by event id and outcome":     {webhook.AttemptFilter{EventID: bad.ID, Outcome: &succeeded}, 0},
		"by an event id that is none": {webhook.AttemptFilter{EventID: "evt_nonsense"}, 0},
		"since the present":           {webhook.AttemptFilter{Since: all[0].AttemptedAt}, -1},
		"since later":                 {webhook.AttemptFilter{Since: all[0].AttemptedAt + 1}, 0},
		"until the first":             {webhook.AttemptFilter{Until: all[2].AttemptedAt}, 0},
		"until later":                 {webhook.AttemptFilter{Until: all[0].AttemptedAt + 1}, 3},
		"after the first of a page":   {webhook.AttemptFilter{BeforeAt: all[0].AttemptedAt, Before: all[0].RowID}, 2},
		"after the last":              {webhook.AttemptFilter{BeforeAt: all[2].AttemptedAt, Before: all[2].RowID}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.filter.Limit = 10
			got, err := x.Attempts(t.Context(), x.Org(), x.Sub.ID, test.filter)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != test.want && (test.want >= 0 || len(got) == 0) {
				t.Errorf("%d attempts, want %d", len(got), test.want)
			}
		})
	}
}

// TestQueryPlans does the usual work of a day and then reads the query plan of each statement. None may scan or sort a
// table that grows with history.
func TestQueryPlans(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	p := storagetest.Publish(t, x.Store, x.Owner, "user.created")
	storagetest.Publish(t, x.Store, x.Owner, "user.deleted")
	var attempt int64
	for i, job := range x.Jobs(t) {
		attempt = x.Begin(t, job)
		x.End(t, job, attempt, i == 0)
	}
	if err := x.Queue.UndoBegin(t.Context(), []int64{1 << 40}); err != nil {
		t.Fatal(err)
	}
	key, _ := storagetest.Key(t, x.Store, x.Owner, access.EventsRead)
	failed := webhook.Failed
	for _, f := range []webhook.AttemptFilter{{}, {Outcome: &failed}, {EventID: p.ID}} {
		f.Limit = 10
		if _, err := x.Attempts(t.Context(), x.Org(), x.Sub.ID, f); err != nil {
			t.Fatal(err)
		}
	}
	_, err1 := x.Events(t.Context(), x.Org(), 0, 10)
	_, _, err2 := x.History.Event(t.Context(), x.Org(), p.ID)
	_, err3 := x.Directory.KeyPage(t.Context(), x.Org(), access.KeyFilter{Limit: 10})
	_, err4 := x.Directory.Key(t.Context(), x.Org(), key.ID)
	_, err5 := x.AuditEvents(t.Context(), x.Org(), access.AuditFilter{Limit: 10})
	_, err6 := x.SubscriptionList(t.Context(), x.Org(), "", 0, 10)
	_, err7 := x.History.Attempt(t.Context(), attempt)
	_, err8 := x.Survey.Backlog(t.Context())
	_, err9 := x.History.Series(t.Context(), x.Org(), "", 1, 2, 1)
	_, err10 := x.History.Series(t.Context(), x.Org(), x.Sub.ID, 1, 2, 1)
	_, err11 := x.Survey.Lanes(t.Context())
	_, err12 := x.Queue.Target(t.Context(), x.Sub.RowID)
	a, _ := x.History.Attempt(t.Context(), attempt)
	_, err15 := x.History.SentAttempt(t.Context(), x.Org(), x.Sub.ID, a.ID)
	_, err16 := x.History.Schedules(t.Context(), x.Org(), []string{x.Sub.ID})
	err13 := x.Queue.Redeliver(t.Context(), x.Actor(), x.Org(), x.Sub.ID, a.ID)
	_, err14 := x.History.EventPage(t.Context(), x.Org(), webhook.EventFilter{Limit: 10, WithoutAudit: true})
	_, err17 := x.Survey.PendingSummary(t.Context(), x.Org())
	err20 := searchEverything(t, x, p.ID, a.ID, key)
	_, err21 := x.History.EventTypes(t.Context(), x.Org(), "", true)
	_, err18 := x.Survey.PendingSummary(t.Context(), access.AllOrganizations)
	_, err22 := x.Feeds.Feed(t.Context(), x.Org(), x.Sub.ID, webhook.FeedRequest{Limit: 10, Since: 1})
	_, err23 := x.Feeds.Feed(t.Context(), x.Org(), x.Sub.ID, webhook.FeedRequest{Limit: 10, After: webhook.FeedPosition{Row: 1}})
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9, err10, err11, err12, err13, err14, err15, err16, err17, err18, err20, err21, err22, err23, readUsage(t, x, key)); err != nil {
		t.Fatal(err)
	}
	// The attempts of one event to one subscription are few, and no index has them in the order of time. The points of
	// a series are few too.
	if n := storagetest.NoneGrows(t, x.Store, map[string]string{
		"FROM deliveries own": "TEMP B-TREE", "FROM attempt_minutes": "TEMP B-TREE",
		"INDEXED BY deliveries_sending": "TEMP B-TREE FOR LAST TERM", // the attempts in progress of one millisecond
		"GROUP BY newest.type":          "TEMP B-TREE",               // of at most 3,000 events
		"GROUP BY why":                  "TEMP B-TREE FOR GROUP BY",  // at most 500 subscriptions
	}); n < 50 {
		t.Errorf("only %d statements were run", n)
	}
}

// readUsage writes and reads usage in every way.
func readUsage(t *testing.T, x fixture, key access.Key) error {
	x.Directory.Used(access.Principal{Key: &key}, access.KeyUse{Allowed: 1})
	errs := []error{x.Directory.KeepUses(t.Context(), true)}
	for _, organization := range []int64{x.Org(), access.AllOrganizations} {
		for _, f := range []access.UsageFilter{{}, {ByMonth: true, After: access.UsagePosition{Row: key.RowID, Day: 7}}, {Key: key.RowID}} {
			f.Until, f.Limit = math.MaxInt32, 10
			_, ofKeys := x.History.KeyUsage(t.Context(), organization, f)
			_, ofOrganizations := x.History.OrganizationUsage(t.Context(), organization, f)
			errs = append(errs, ofKeys, ofOrganizations)
		}
	}
	return errors.Join(errs...)
}

// searchEverything makes every lookup of a search.
func searchEverything(t *testing.T, x fixture, event, attempt string, key access.Key) error {
	audit := must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), x.Org(), access.AuditFilter{Limit: 1})).Rows[0].ID
	token := must[[]access.AccessToken](t)(x.Directory.Tokens(t.Context(), x.Owner.User.ID, 0, 1))[0].ID
	var errs []error
	for _, by := range []access.Principal{x.Owner, storagetest.Operator(t, x.Store)} {
		for _, text := range []string{"a", event, attempt, key.ID, key.KeyPrefix, audit, token, x.Sub.ID, x.Owner.User.ID, x.Owner.Organization.ID} {
			_, err := x.History.Search(t.Context(), by, text)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// TestEventsWithoutAudit skips a run of audit events that is longer than one read.
func TestEventsWithoutAudit(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	owner, _ := storagetest.Organization(t, store, "acme", "growth", access.RoleOwner)
	first := storagetest.Publish(t, store, owner, "order.paid")
	for range 5 {
		if _, err := store.Queue.PublishEvents(t.Context(), owner.Home.RowID, slices.Repeat([]webhook.NewEvent{{Type: access.KeyCreated, Data: []byte(`{}`)}}, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	last := storagetest.Publish(t, store, owner, "order.paid")
	for limit, want := range map[int][]string{1: {last.ID}, 2: {last.ID, first.ID}, 10: {last.ID, first.ID}} {
		got := []string{}
		for _, e := range must[access.Page[webhook.Event]](t)(store.History.EventPage(t.Context(), owner.Home.RowID, webhook.EventFilter{Limit: limit, WithoutAudit: true})).Rows {
			got = append(got, e.ID)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("at most %d events (-want +got):\n%s", limit, d)
		}
	}
}
