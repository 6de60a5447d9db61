package storage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// everyPage reads a list page by page and returns its ids. read returns a page with the row ids and public ids of its items.
func everyPage(t *testing.T, limit int, read func(before int64) (rows []int64, ids []string, next int64)) (all []string) {
	t.Helper()
	for before := int64(0); ; {
		rows, ids, next := read(before)
		all = append(all, ids...)
		switch {
		case len(rows) > limit:
			t.Fatalf("a page of %d, want at most %d", len(rows), limit)
		case next != 0:
			before = next
		case len(rows) == limit:
			before = rows[limit-1]
		default:
			return all
		}
	}
}

func (x platform) listedEvents(t *testing.T, organization int64, f webhook.EventFilter) []string {
	return everyPage(t, f.Limit, func(before int64) (rows []int64, ids []string, next int64) {
		f.Before = before
		page := must[access.Page[webhook.Event]](t)(x.History.EventPage(t.Context(), organization, f))
		for _, e := range page.Rows {
			rows, ids = append(rows, e.RowID), append(ids, e.ID)
		}
		return rows, ids, page.Next
	})
}

func (x platform) listedSubscriptions(t *testing.T, organization int64, f webhook.SubscriptionFilter) []string {
	return everyPage(t, f.Limit, func(before int64) (rows []int64, ids []string, next int64) {
		f.Before = before
		page := must[access.Page[webhook.Subscription]](t)(x.History.SubscriptionPage(t.Context(), organization, f))
		for _, s := range page.Rows {
			rows, ids = append(rows, s.RowID), append(ids, s.ID)
		}
		return rows, ids, page.Next
	})
}

func (x platform) listedKeys(t *testing.T, organization int64, f access.KeyFilter) []string {
	return everyPage(t, f.Limit, func(before int64) (rows []int64, ids []string, next int64) {
		f.Before = before
		page := must[access.Page[access.Key]](t)(x.Directory.KeyPage(t.Context(), organization, f))
		for _, k := range page.Rows {
			rows, ids = append(rows, k.RowID), append(ids, k.ID)
		}
		return rows, ids, page.Next
	})
}

func (x platform) listedAudit(t *testing.T, organization int64, f access.AuditFilter) []string {
	return everyPage(t, f.Limit, func(before int64) (rows []int64, ids []string, next int64) {
		f.Before = before
		page := must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), organization, f))
		for _, e := range page.Rows {
			rows, ids = append(rows, e.RowID), append(ids, e.ID)
		}
		return rows, ids, page.Next
	})
}

// customers makes organizations with subscriptions in every status, keys in every status, and events.
func (x platform) customers(t *testing.T, n int) (owners []access.Principal) {
	t.Helper()
	for i := range n {
		owner, _ := storagetest.Organization(t, x.Store, fmt.Sprintf("customer-%d", i), "enterprise", access.RoleOwner)
		owners = append(owners, owner)
		by := owner.Actor("192.0.2.1", "req")
		for j := range 5 {
			sub, _ := storagetest.Subscription(t, x.Store, owner, "https://example.com/", "never.happens")
			switch j {
			case 1:
				setHealth(t, x.Store, sub, webhook.Health{Status: webhook.Failing, ConsecutiveFailures: 5, LastError: "timeout", Epoch: 2})
			case 2:
				must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(t.Context(), by, owner.Home.RowID, sub.ID, webhook.SubscriptionChange{IsActive: new(false)}))
			case 3:
				if err := x.Subscriptions.DeleteSubscription(t.Context(), by, owner.Home.RowID, sub.ID); err != nil {
					t.Fatal(err)
				}
			}
			key, _ := storagetest.Key(t, x.Store, owner, access.EventsRead)
			if j > 2 {
				if err := x.Directory.RevokeKey(t.Context(), by, owner.Home.RowID, key.ID); err != nil {
					t.Fatal(err)
				}
			}
			for _, eventType := range []string{"order.paid", "order.paid.late", "orders", "user.created"} {
				must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), owner.Home.RowID, []webhook.NewEvent{
					{Type: eventType, Data: []byte("{}"), IdempotencyKey: fmt.Sprintf("%s-%d", eventType, j)},
				}))
			}
		}
	}
	return owners
}

func setHealth(t *testing.T, store *storage.Store, sub webhook.Subscription, h webhook.Health) {
	t.Helper()
	if err := store.Write(t.Context(), func(t *storage.Tx) error {
		before := sub.Health
		sub.Health = h
		return store.Queue.SetHealth(t.Tx, &sub, before)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestListsOfAllOrganizations compares each list of all organizations with the lists of each. Searches end early, so that pages
// begin anywhere.
func TestListsOfAllOrganizations(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	owners := append(x.customers(t, 3), x.Operator)
	now := time.Now().UnixMilli()
	key := must[access.Page[access.Key]](t)(x.Directory.KeyPage(t.Context(), owners[1].Home.RowID, access.KeyFilter{Limit: 1})).Rows[0]
	lists := map[string]func(organization int64, limit int) []string{}
	for name, f := range map[string]webhook.EventFilter{
		"events": {}, "events without audit events": {WithoutAudit: true}, "events of a type": {Type: "order.paid"},
		"events of a prefix": {Type: "order.*"}, "events of a prefix that nobody publishes": {Type: "invoice.*"},
		"events since long ago": {Since: 1}, "events until long ago": {Until: 1}, "events until now": {Until: now + 1000, Type: "user.*"},
		"events with an idempotency key": {IdempotencyKey: "orders-3"}, "events with a key and another type": {IdempotencyKey: "orders-3", Type: "order.*"},
	} {
		lists[name] = func(organization int64, limit int) []string {
			f.Limit = limit
			return x.listedEvents(t, organization, f)
		}
	}
	for _, statuses := range [][]webhook.Status{nil, {webhook.Healthy}, {webhook.Failing}, {webhook.Disabled}, {webhook.Failing, webhook.Disabled}} {
		lists[fmt.Sprint("subscriptions ", statuses)] = func(organization int64, limit int) []string {
			return x.listedSubscriptions(t, organization, webhook.SubscriptionFilter{Statuses: statuses, Limit: limit})
		}
	}
	for _, paused := range []bool{true, false} {
		lists[fmt.Sprint("failing and disabled subscriptions, paused ", paused)] = func(organization int64, limit int) []string {
			return x.listedSubscriptions(t, organization, webhook.SubscriptionFilter{Statuses: []webhook.Status{webhook.Failing, webhook.Disabled}, Paused: &paused, Limit: limit})
		}
	}
	for _, pending := range []bool{true, false} {
		lists[fmt.Sprint("subscriptions, pending ", pending)] = func(organization int64, limit int) []string {
			return x.listedSubscriptions(t, organization, webhook.SubscriptionFilter{Pending: &pending, Limit: limit})
		}
	}
	for name, f := range map[string]access.KeyFilter{
		"keys": {}, "active keys": {Status: access.Active}, "revoked keys": {Status: access.Revoked}, "keys with a prefix": {Prefix: key.KeyPrefix},
		"revoked keys with the prefix of an active one": {Prefix: key.KeyPrefix, Status: access.Expired},
	} {
		lists[name] = func(organization int64, limit int) []string {
			f.Limit, f.Now = limit, now
			return x.listedKeys(t, organization, f)
		}
	}
	for name, f := range map[string]access.AuditFilter{
		"audit events": {}, "audit events of a type": {Type: access.KeyRevoked}, "audit events by somebody": {Actors: []string{owners[2].User.ID}},
		"audit events about one of two": {Targets: append(must[[]string](t)(x.History.AuditNames(t.Context(), 1, "unknown", true)), key.ID), Type: access.KeyCreated},
	} {
		lists[name] = func(organization int64, limit int) []string {
			f.Limit = limit
			return x.listedAudit(t, organization, f)
		}
	}
	wholes := map[string][]string{}
	for name, list := range lists {
		wholes[name] = list(access.AllOrganizations, 1000)
	}
	x.BoundSearches(10, 2)
	for name, list := range lists {
		var parts []string
		for _, owner := range owners {
			parts = append(parts, list(owner.Home.RowID, 1000)...)
		}
		slices.Sort(parts)
		if d := cmp.Diff(parts, slices.Sorted(slices.Values(wholes[name]))); d != "" {
			t.Errorf("%s: all organizations together (-one by one +at once):\n%s", name, d)
		}
		for _, limit := range []int{1, 4} {
			if d := cmp.Diff(wholes[name], list(access.AllOrganizations, limit)); d != "" {
				t.Errorf("%s: pages of %d (-at once +page by page):\n%s", name, limit, d)
			}
		}
	}
	for name, want := range map[string]int{
		"events of a type": 15, "events of a prefix": 30, "events with an idempotency key": 3, "events with a key and another type": 0,
		"subscriptions [failing]": 3, "subscriptions [disabled]": 3, "subscriptions [failing disabled]": 6, "subscriptions []": 12, "failing and disabled subscriptions, paused true": 3, "failing and disabled subscriptions, paused false": 3,
		"active keys": 9, "revoked keys": 6, "keys with a prefix": 1, "audit events of a type": 6,
		"audit events about one of two": 1,
	} {
		if got := len(wholes[name]); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	storagetest.NoneGrows(t, x.Store, map[string]string{"events_by_idempotency_key": "TEMP B-TREE"})
}

// TestAPageOfEventsCountsABoundedNumberOfDeliveries lists events of many subscriptions.
func TestAPageOfEventsCountsABoundedNumberOfDeliveries(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	owner, _ := storagetest.Organization(t, x.Store, "acme", "enterprise", access.RoleOwner)
	for range 4 {
		storagetest.Subscription(t, x.Store, owner, "https://example.com/", "order.paid")
	}
	for range 7 {
		must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), owner.Home.RowID, []webhook.NewEvent{{Type: "order.paid", Data: []byte("{}")}}))
	}
	paid := webhook.EventFilter{Type: "order.paid", Limit: 100}
	whole := x.listedEvents(t, owner.Home.RowID, paid)
	x.BoundSearches(10, 2)
	for _, organization := range []int64{owner.Home.RowID, access.AllOrganizations} {
		for _, limit := range []int{1, 2, 100} {
			paid.Limit = limit
			if d := cmp.Diff(whole, x.listedEvents(t, organization, paid)); d != "" {
				t.Errorf("organization %d, pages of %d (-at once +page by page):\n%s", organization, limit, d)
			}
		}
	}
	page := must[access.Page[webhook.Event]](t)(x.History.EventPage(t.Context(), owner.Home.RowID, webhook.EventFilter{Limit: 100}))
	if n := len(page.Rows); n < 2 || n > 5 || page.Next != page.Rows[n-1].RowID {
		t.Errorf("%d events, next %d", n, page.Next)
	}
	for _, e := range page.Rows {
		if e.ID == "" || e.Deliveries != 4 || e.States.Pending != 4 {
			t.Errorf("event %+v", e)
		}
	}
}

// TestEventInTheStateOfItsFurthestDelivery redelivers an exhausted delivery: the event waits again.
func TestEventInTheStateOfItsFurthestDelivery(t *testing.T) {
	t.Parallel()
	x := newOneAttemptFixture(t)
	event := x.Publish(t, 1, "order.paid")[0]
	expect := func(want webhook.DeliveryStates) {
		t.Helper()
		page := must[access.Page[webhook.Event]](t)(x.History.EventPage(t.Context(), x.Org(), webhook.EventFilter{Type: "order.paid", Limit: 1}))
		if got := page.Rows[0]; got.States != want || got.Deliveries != 1 {
			t.Errorf("%d deliveries, states %+v, want one in %+v", got.Deliveries, got.States, want)
		}
	}
	redeliver := func() {
		t.Helper()
		attempt := must[[]webhook.Attempt](t)(x.Attempts(t.Context(), x.Org(), x.Sub.ID, webhook.AttemptFilter{EventID: event, Limit: 1}))[0]
		if err := x.Queue.Redeliver(t.Context(), x.Actor(), x.Org(), x.Sub.ID, attempt.ID); err != nil {
			t.Fatal(err)
		}
	}
	x.EndAll(t, false)
	expect(webhook.DeliveryStates{Exhausted: 1})
	redeliver()
	expect(webhook.DeliveryStates{Pending: 1})
	x.EndAll(t, true)
	expect(webhook.DeliveryStates{Delivered: 1})
	redeliver()
	expect(webhook.DeliveryStates{Delivered: 1})
}

// TestEventsOfPeriod lists the events of a period, also where the clock was wrong for a while.
func TestEventsOfPeriod(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	p := platform{storagetest.Platform{Store: x.Store}}
	var published []webhook.Published
	for range 60 {
		published = append(published, storagetest.Publish(t, x.Store, x.Owner, "user.created"))
	}
	rows := must[[]webhook.Event](t)(x.Events(t.Context(), x.Org(), 0, 60))
	hour := time.Hour.Milliseconds()
	check := func(t *testing.T) {
		t.Helper()
		all := must[[]webhook.Event](t)(x.Events(t.Context(), x.Org(), 0, 1000))
		base := published[0].At
		for _, period := range [][2]int64{{0, base}, {base, 0}, {base - 10*hour, base - hour}, {base + hour, base + 30*hour}, {base + 50*hour, 0}, {1, base + 2*hour}} {
			var want []string
			for _, e := range all {
				if e.At >= period[0] && (period[1] == 0 || e.At < period[1]) {
					want = append(want, e.ID)
				}
			}
			for _, organization := range []int64{x.Org(), access.AllOrganizations} {
				f := webhook.EventFilter{Since: period[0], Until: period[1], Limit: 7}
				got := slices.DeleteFunc(p.listedEvents(t, organization, f), func(id string) bool { // of other organizations
					return !slices.ContainsFunc(all, func(e webhook.Event) bool { return e.ID == id })
				})
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("organization %d, from %d to %d hours (-want +got):\n%s", organization, (period[0]-base)/hour, (period[1]-base)/hour, d)
				}
			}
		}
	}
	check(t)
	// An earlier part moves back, event by event, so that the period has a beginning among them. The order stays.
	for _, e := range rows[20:] {
		if err := x.MoveEvents(t.Context(), 0, e.RowID, -time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	check(t)
	if err := x.MoveEvents(t.Context(), rows[5].RowID, rows[0].RowID, 40*time.Hour); err != nil { // the clock was ahead, and is set back
		t.Fatal(err)
	}
	storagetest.Exec(t, x.Store, "INSERT OR REPLACE INTO instance (name, value) VALUES (?, ?)", scan.DisorderName, scan.EncodeDisorder(rows[0].RowID))
	storagetest.Publish(t, x.Store, x.Owner, "user.created")
	check(t)
}

// TestSubscriptionCounts compares the counts with the table after every kind of change, and after a restart.
func TestSubscriptionCounts(t *testing.T) {
	t.Parallel()
	o := storagetest.Options(t, t.TempDir()+"/keyhook.db")
	o.Policy = webhook.Policy{MaxAttempts: 5, FailingAfter: 5, DisabledAfter: 6}
	store, stop := storagetest.OpenWith(t, o)
	x := fixtureOf(t, store)
	check := func(step string, want webhook.SubscriptionCounts) {
		t.Helper()
		var table webhook.SubscriptionCounts
		for _, s := range must[access.Page[webhook.Subscription]](t)(x.History.SubscriptionPage(t.Context(), access.AllOrganizations, webhook.SubscriptionFilter{Limit: 100})).Rows {
			table.Add(s.Health, 1)
		}
		if got := x.Queue.SubscriptionCounts(); got != want || table != want {
			t.Errorf("%s: counted %+v, the table has %+v, want %+v", step, got, table, want)
		}
	}
	update := func(c webhook.SubscriptionChange) {
		t.Helper()
		must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID, c))
	}
	restart := func() {
		t.Helper()
		stop()
		x.Store, stop = storagetest.OpenWith(t, o)
	}
	check("created", webhook.SubscriptionCounts{Healthy: 1})
	must[webhook.Subscription](t)(createSubscription(t, store, x.Owner, webhook.SubscriptionChange{URL: new("https://example.com/"), IsActive: new(false)}))
	check("another one, paused", webhook.SubscriptionCounts{Healthy: 1, Disabled: 1, Paused: 1})
	for range 6 {
		storagetest.Publish(t, store, x.Owner, "user.created")
	}
	for i, job := range x.Jobs(t) {
		x.End(t, job, x.Begin(t, job), false)
		if i == 4 {
			break
		}
	}
	check("failing", webhook.SubscriptionCounts{Failing: 1, Disabled: 1, Paused: 1})
	job := x.Jobs(t)[0]
	x.End(t, job, x.Begin(t, job), false)
	check("disabled by failures", webhook.SubscriptionCounts{Disabled: 2, Paused: 1})
	update(webhook.SubscriptionChange{IsActive: new(false)})
	restart()
	check("paused after failures, and a restart", webhook.SubscriptionCounts{Disabled: 2, Paused: 2})
	update(webhook.SubscriptionChange{IsActive: new(true)})
	check("active again", webhook.SubscriptionCounts{Healthy: 1, Disabled: 1, Paused: 1})
	update(webhook.SubscriptionChange{IsActive: new(false)})
	check("paused", webhook.SubscriptionCounts{Disabled: 2, Paused: 2})
	restart()
	check("after a restart", webhook.SubscriptionCounts{Disabled: 2, Paused: 2})
	if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID); err != nil {
		t.Fatal(err)
	}
	check("deleted", webhook.SubscriptionCounts{Disabled: 1, Paused: 1})
}

func createSubscription(t *testing.T, store *storage.Store, owner access.Principal, c webhook.SubscriptionChange) (webhook.Subscription, error) {
	t.Helper()
	sub, _, err := store.Subscriptions.CreateSubscription(t.Context(), owner.Actor("", ""), owner.Home.RowID, c)
	return sub, err
}

// TestBlockedBy checks that the record of a subscription says why nothing is sent to it.
func TestBlockedBy(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
	by := owner.Actor("", "")
	sub, _ := storagetest.Subscription(t, x.Store, owner, "https://example.com/")
	expect := func(want webhook.Block) {
		t.Helper()
		read := must[webhook.Subscription](t)(x.History.Subscription(t.Context(), owner.Home.RowID, sub.ID))
		listed := must[[]webhook.Subscription](t)(x.SubscriptionList(t.Context(), owner.Home.RowID, "", 0, 10))[0]
		changed := must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(t.Context(), by, owner.Home.RowID, sub.ID, webhook.SubscriptionChange{Description: new(strings.Repeat("x", 5))}))
		if got := []webhook.Block{read.Why(), listed.Why(), changed.Why()}; !slices.Equal(got, []webhook.Block{want, want, want}) {
			t.Errorf("read, listed and changed it is blocked by %q, want %q", got, want)
		}
	}
	change := func(active bool) {
		t.Helper()
		must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(t.Context(), by, owner.Home.RowID, sub.ID, webhook.SubscriptionChange{IsActive: &active}))
	}
	plan := func(name string) {
		t.Helper()
		must[access.Organization](t)(x.Directory.UpdateOrganization(t.Context(), x.By, owner.Home.ID, access.OrganizationChange{Plan: &name}))
	}
	expect(webhook.NotBlocked)
	if err := x.Queue.HoldQueue(t.Context(), x.By, "test"); err != nil {
		t.Fatal(err)
	}
	expect(webhook.BlockedByHold)
	plan("free")
	expect(webhook.BlockedByPlan)
	setHealth(t, x.Store, sub, webhook.Health{Status: webhook.Disabled, ConsecutiveFailures: 15, LastError: "timeout", Epoch: 3})
	expect(webhook.BlockedByFault)
	change(false) // a person wants that nothing is sent, whatever failures have done
	expect(webhook.BlockedByPause)
	change(true)
	expect(webhook.BlockedByPlan)
	change(false)
	expect(webhook.BlockedByPause)
	change(true)
	plan("growth")
	must[int64](t)(x.Queue.ReleaseQueue(t.Context(), x.By))
	expect(webhook.NotBlocked)
}
