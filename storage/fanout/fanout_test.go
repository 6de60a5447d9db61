package fanout_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fanout"
	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// in runs fn in a transaction of the store.
func in(t testing.TB, store *storage.Store, fn func(*sqlite.Tx) error) {
	t.Helper()
	if err := store.Write(t.Context(), sqlite.Work{}, fn); err != nil {
		t.Fatal(err)
	}
}

func rowsOf(subscriptions []*fanout.Subscription) (rows []int64) {
	for _, sub := range subscriptions {
		rows = append(rows, sub.RowID)
	}
	return rows
}

// TestTheCacheIsExact changes the types of subscriptions, tells a cache, and compares it with one that has just read the file.
func TestTheCacheIsExact(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	owner, _ := storagetest.Organization(t, store, "acme", "enterprise", access.RoleOwner)
	org, by := owner.Organization.RowID, owner.Actor("", "")
	var subs []webhook.Subscription
	for i := range 4 {
		sub, _ := storagetest.Subscription(t, store, owner, fmt.Sprintf("https://r%d.example/", i), "a.*")
		subs = append(subs, sub)
	}
	known := fanout.New(0, slog.Default())
	choices := []webhook.Types{{}, {"a.*"}, {"a.x"}, {"a.x", "b.*"}, {"b.y"}, {access.KeyCreated}}
	types := []string{"a.x", "a.z", "b.y", access.KeyCreated, "other"}
	large, problem := filter.New("n", filter.Greater, []byte("5"))
	if problem != nil {
		t.Fatal(problem)
	}
	filters := []filter.Filter{nil, {large}}
	rapid.Check(t, func(r *rapid.T) {
		sub := rapid.SampledFrom(subs).Draw(r, "subscription")
		chosen := rapid.SampledFrom(choices).Draw(r, "types")
		changed, err := store.Subscriptions.UpdateSubscription(t.Context(), by, org, sub.ID, webhook.SubscriptionChange{
			EventTypes: &chosen, IsActive: new(rapid.Bool().Draw(r, "active")), Filter: new(rapid.SampledFrom(filters).Draw(r, "filter")),
		})
		if err != nil {
			r.Fatal(err)
		}
		known.SetTypes(org, sub.RowID, &changed.EventTypes)
		known.Invalidate(sub.RowID)
		about := rapid.SampledFrom([]int64{0, subs[0].RowID}).Draw(r, "about")
		for _, eventType := range rapid.Permutation(types).Draw(r, "order")[:3] {
			var got, want []int64
			in(t, store, func(x *sqlite.Tx) (err error) {
				data := []byte(rapid.SampledFrom([]string{`{"n":5}`, `{"n":6}`}).Draw(r, "data"))
				passing := func(c *fanout.Cache) ([]int64, error) {
					to, err := c.Receivers(x, org, about, eventType)
					if err == nil {
						to, _, err = c.Passing(x, to, data)
					}
					return rowsOf(to), err
				}
				if got, err = passing(known); err == nil {
					want, err = passing(fanout.New(0, slog.Default()))
				}
				return err
			})
			slices.Sort(got)
			slices.Sort(want)
			if d := cmp.Diff(want, got); d != "" || about != 0 && slices.Contains(got, about) {
				r.Fatalf("%s about %d (-want +got):\n%s", eventType, about, d)
			}
		}
	})
}

// TestAnInvalidCacheReadsAgain has a cache that has read everything, and then is not told what changes.
func TestAnInvalidCacheReadsAgain(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	owner, _ := storagetest.Organization(t, store, "acme", "enterprise", access.RoleOwner)
	org := owner.Organization.RowID
	first, _ := storagetest.Subscription(t, store, owner, "https://a.example/", "a")
	known := fanout.New(0, slog.Default())
	expect := func(when, host string, want ...int64) {
		t.Helper()
		in(t, store, func(x *sqlite.Tx) error {
			to, err := known.Matching(x, org, "a")
			if d := cmp.Diff(want, to); d != "" {
				t.Errorf("%s (-want +got):\n%s", when, d)
			}
			if err != nil {
				return err
			}
			s, err := known.Subscription(x, first.RowID)
			if err == nil && s.Host != host {
				t.Errorf("%s: %s, want %s", when, s.Host, host)
			}
			return err
		})
	}
	expect("at first", "a.example", first.RowID)
	if _, err := store.Subscriptions.UpdateSubscription(t.Context(), owner.Actor("", ""), org, first.ID, webhook.SubscriptionChange{URL: new("https://b.example/")}); err != nil {
		t.Fatal(err)
	}
	second, _ := storagetest.Subscription(t, store, owner, "https://c.example/", "a")
	expect("not told", "a.example", first.RowID)
	known.Invalidate()
	if n := known.Size(); n != 0 {
		t.Errorf("%d rows in an empty cache", n)
	}
	expect("invalid", "b.example", first.RowID, second.RowID)
	known.SetTypes(org, first.RowID, nil)
	expect("told that it was deleted", "b.example", second.RowID)
}

// TestWhoWantsWhatIsRememberedWithinBounds has many subscriptions to everything, and ever new event types.
func TestWhoWantsWhatIsRememberedWithinBounds(t *testing.T) {
	t.Parallel()
	const subscriptions, types, bound = 500, 450, 200_000
	store := storagetest.Open(t)
	owner, _ := storagetest.Organization(t, store, "acme", "enterprise", access.RoleOwner)
	for range subscriptions {
		storagetest.Subscription(t, store, owner, "https://example.com/", "wide.*")
	}
	known, most := fanout.New(0, slog.Default()), 0
	in(t, store, func(x *sqlite.Tx) error {
		for i := range types {
			if _, err := known.Matching(x, owner.Organization.RowID, fmt.Sprintf("wide.t%d", i)); err != nil {
				return err
			}
			most = max(most, known.Size())
		}
		return nil
	})
	if most < bound/2 || most > bound {
		t.Errorf("%d rows are remembered, and there may be %d", most, bound)
	}
}

// TestAChangeForgetsNoListsOfOthers has more lists than a change of a subscription updates. It forgets these, and no others.
func TestAChangeForgetsNoListsOfOthers(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	known := fanout.New(0, slog.Default())
	var owners []access.Principal
	read := func() (matching []int) {
		in(t, store, func(x *sqlite.Tx) error {
			for _, owner := range owners {
				n := 0
				for i := range 200 {
					rows, err := known.Matching(x, owner.Organization.RowID, fmt.Sprintf("a.t%d", i))
					if err != nil {
						return err
					}
					n += len(rows)
				}
				matching = append(matching, n)
			}
			return nil
		})
		return matching
	}
	subscribe := func(owner access.Principal) webhook.Subscription {
		sub, _ := storagetest.Subscription(t, store, owner, "https://example.com/", "a.*")
		return sub
	}
	var changed webhook.Subscription
	for _, name := range []string{"beside", "acme"} {
		owner, _ := storagetest.Organization(t, store, name, "enterprise", access.RoleOwner)
		owners, changed = append(owners, owner), subscribe(owner)
	}
	first, size := read(), known.Size()
	for _, owner := range owners {
		subscribe(owner) // the cache is not told
	}
	known.SetTypes(owners[1].Organization.RowID, changed.RowID, &changed.EventTypes)
	if d := cmp.Diff([][]int{{200, 200}, {200, 400}}, [][]int{first, read()}); d != "" {
		t.Errorf("subscriptions that are found (-want +got):\n%s", d)
	}
	if n := known.Size(); n != size+200 {
		t.Errorf("%d rows are counted, want %d", n, size+200)
	}
}

// TestFiltersAreRememberedWithinBounds reads more large filters than the cache keeps, also for one event that all of them see.
func TestFiltersAreRememberedWithinBounds(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	owner, _ := storagetest.Organization(t, store, "acme", "enterprise", access.RoleOwner)
	large, problem := filter.New("text", filter.Equal, []byte(`"`+strings.Repeat("x", 3900)+`"`))
	if problem != nil {
		t.Fatal(problem)
	}
	known, most := fanout.New(0, slog.Default()), 0
	for range 900 {
		sub, _, err := store.Subscriptions.CreateSubscription(t.Context(), owner.Actor("", ""), owner.Organization.RowID,
			webhook.SubscriptionChange{URL: new("https://a.example/"), EventTypes: &webhook.Types{"a"}, Filter: &filter.Filter{large}})
		if err != nil {
			t.Fatal(err)
		}
		in(t, store, func(x *sqlite.Tx) error {
			_, err := known.Subscription(x, sub.RowID)
			return err
		})
		most = max(most, known.FilterBytes())
		if len(sub.Filter) == 1 && sub.RowID%7 == 0 {
			known.Invalidate(sub.RowID)
		}
	}
	if bound := 8 << 20; most < bound*9/10 || most > bound {
		t.Errorf("filters of %d bytes are remembered, and there may be %d", most, bound)
	}
	for _, tt := range []struct {
		text string
		want int
	}{{strings.Repeat("x", 3900), 900}, {"other", 0}} {
		in(t, store, func(x *sqlite.Tx) error {
			to, err := known.Receivers(x, owner.Organization.RowID, 0, "a")
			if err != nil || len(to) != 900 {
				t.Fatalf("%d receivers, error %v", len(to), err)
			}
			_, unread := known.Filters(to)
			to, _, err = known.Passing(x, to, []byte(`{"text":"`+tt.text+`"}`))
			if len(to) != tt.want || known.FilterBytes() > 8<<20 {
				t.Errorf("%d receivers of %d, and %d bytes of filters", len(to), tt.want, known.FilterBytes())
			}
			if n := known.Subscriptions(); n != 900 || unread < 100 { // only filters are read again
				t.Errorf("%d subscriptions are remembered, and %d filters are not", n, unread)
			}
			return err
		})
	}
	known.Invalidate()
	if n := known.FilterBytes(); n != 0 {
		t.Errorf("%d bytes in an empty cache", n)
	}
}

// TestNewsAboutHealth goes to healthy subscriptions of other hosts, and only to so many in a minute.
func TestNewsAboutHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testNewsAboutHealth) // a minute does not end meanwhile
}

func testNewsAboutHealth(t *testing.T) {
	store := storagetest.Open(t)
	owner, _ := storagetest.Organization(t, store, "acme", "enterprise", access.RoleOwner)
	var rows []int64
	for _, url := range []string{"https://a.example/1", "https://A.example/2", "https://b.example/"} {
		sub, _ := storagetest.Subscription(t, store, owner, url)
		rows = append(rows, sub.RowID)
	}
	var log bytes.Buffer
	known := fanout.New(0, slog.New(slog.NewTextHandler(&log, nil)))
	news := func(receivers []int64) (to []int64) {
		in(t, store, func(x *sqlite.Tx) error {
			var subs []*fanout.Subscription
			for _, row := range receivers {
				sub, err := known.Subscription(x, row)
				if err != nil {
					return err
				}
				subs = append(subs, sub)
			}
			subs, err := known.HealthNewsReceivers(x, owner.Organization.RowID, rows[0], subs)
			to = rowsOf(subs)
			return err
		})
		return to
	}
	if d := cmp.Diff([]int64{rows[2]}, news(rows)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	many := slices.Repeat([]int64{rows[2]}, 6000)
	if n := len(news(many)); n != 6000 {
		t.Errorf("%d of the first 6,000", n)
	}
	if n := len(news(many[:3999])); n != 3999 { // one has gone out before
		t.Errorf("%d up to 10,000", n)
	}
	for range 3 {
		if n := len(news(many)); n != 0 {
			t.Errorf("%d more, and 10,000 may go out in a minute", n)
		}
	}
	if n := strings.Count(log.String(), "too many events about the health"); n != 1 {
		t.Errorf("%d lines in the log, want one", n)
	}
}
