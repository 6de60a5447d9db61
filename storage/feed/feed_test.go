package feed_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

type fixture struct{ storagetest.Customer }

func newFixture(t *testing.T) fixture {
	t.Helper()
	return fixture{storagetest.CustomerOf(t, storagetest.Open(t))}
}

// newOneAttemptFixture is newFixture with the policy of storagetest.FrailOptions.
func newOneAttemptFixture(t *testing.T) fixture {
	t.Helper()
	store, _ := storagetest.OpenWith(t, storagetest.FrailOptions(t, filepath.Join(t.TempDir(), "keyhook.db")))
	return fixture{storagetest.CustomerOf(t, store)}
}

// atLeast is passed by events whose amount is at least n.
func atLeast(t *testing.T, n int) filter.Filter {
	t.Helper()
	c, problem := filter.New("amount", filter.GreaterOrEqual, fmt.Append(nil, n))
	if problem != nil {
		t.Fatal(problem)
	}
	return filter.Filter{c}
}

// setFilter changes the filter of the subscription.
func (x fixture) setFilter(t *testing.T, f filter.Filter) {
	t.Helper()
	if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{Filter: &f}); err != nil {
		t.Fatal(err)
	}
}

// amount publishes an event with that amount.
func (x fixture) amount(t *testing.T, n int, key string) webhook.Published {
	t.Helper()
	event := webhook.NewEvent{Type: "order.paid", Data: fmt.Appendf(nil, `{"amount":%d}`, n), IdempotencyKey: key}
	return storagetest.Must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{event}))[0]
}

// feedOf returns the fixture with another subscription, which has no URL.
func (x fixture) feedOf(t *testing.T, types ...string) fixture {
	t.Helper()
	x.Sub, _ = storagetest.Subscription(t, x.Store, x.Owner, "", types...)
	return x
}

func (x fixture) read1(t *testing.T, r webhook.FeedRequest) (webhook.FeedPage, []string) {
	t.Helper()
	if r.Limit == 0 {
		r.Limit = 100
	}
	page := storagetest.Must[webhook.FeedPage](t)(x.Feeds.Feed(t.Context(), x.Org(), x.Sub.ID, r))
	ids := []string{}
	for _, e := range page.Events {
		ids = append(ids, e.EventID)
	}
	return page, ids
}

func (x fixture) reads1(t *testing.T, r webhook.FeedRequest, want []string) webhook.FeedPage {
	t.Helper()
	page, ids := x.read1(t, r)
	if d := cmp.Diff(want, ids); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	return page
}

func (x fixture) readFails(t *testing.T, r webhook.FeedRequest, kind fault.Kind, code string) {
	t.Helper()
	_, err := x.Feeds.Feed(t.Context(), x.Org(), x.Sub.ID, r)
	storagetest.ExpectFault(t, err, kind, code)
}

func TestAFeedHasNoDeliveries(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID); err != nil {
		t.Fatal(err)
	}
	x = x.feedOf(t, "order.*")
	x.setFilter(t, atLeast(t, 100))
	first := x.amount(t, 100, "a")
	if first.Deliveries != 0 || first.Notice != webhook.InFeed {
		t.Errorf("%+v", first)
	}
	again := x.amount(t, 100, "a")
	if first.Repeated = true; again != first {
		t.Errorf("repeated: %+v, first %+v", again, first)
	}
	if p := x.amount(t, 99, ""); p.Notice != webhook.AllFiltered {
		t.Errorf("%+v", p)
	}
	if p := storagetest.Publish(t, x.Store, x.Owner, "other"); p.Notice != webhook.NoSubscription {
		t.Errorf("%+v", p)
	}
	x.reads1(t, webhook.FeedRequest{}, []string{first.ID})
	if sub := x.Read(t); sub.PendingDeliveries != 0 || sub.Status != webhook.Healthy {
		t.Errorf("%+v", sub)
	}
	ctx, by := t.Context(), x.Actor()
	_, _, _, err1 := x.Queue.BeginTest(ctx, x.Org(), x.Sub.ID, "")
	_, err2 := x.Queue.Replay(ctx, by, x.Org(), x.Sub.ID, webhook.Replay{})
	_, err3 := x.CountReplay(ctx, webhook.Replay{})
	_, err4 := x.Queue.Recover(ctx, by, x.Org(), x.Sub.ID, webhook.RecoveryRequest{})
	_, err5 := x.CountRecovery(ctx, webhook.RecoveryRequest{})
	_, err6 := x.Queue.Discard(ctx, by, x.Org(), x.Sub.ID, 0)
	for _, err := range []error{err1, err2, err3, err4, err5, err6} {
		storagetest.ExpectFault(t, err, fault.Conflict, "no_url")
	}
}

// TestAFeedOfAClosedOrganization reads it at once, when the subscription is not removed yet.
func TestAFeedOfAClosedOrganization(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, storagetest.Options(t, path))
		x := fixture{storagetest.CustomerOf(t, store)}.feedOf(t)
		storagetest.Must[access.Closure](t)(store.CloseOrganization(t.Context(), storagetest.Operator(t, store).Actor("", ""), x.Owner.Organization.ID))
		x.readFails(t, webhook.FeedRequest{Limit: 1}, fault.NotFound, "not_found")
	})
}

// TestUrlsOfFeeds changes the URL from and to none, with an attempt behind and with one pending.
func TestUrlsOfFeeds(t *testing.T) {
	t.Parallel()
	x := newOneAttemptFixture(t)
	x.Publish(t, 1, "a")
	setURL := func(url string) error { return x.Change(t, x.Actor(), webhook.SubscriptionChange{URL: &url}) }
	storagetest.ExpectFault(t, setURL(""), fault.Conflict, "deliveries_pending")
	job := x.Jobs(t)[0]
	attempt := x.Begin(t, job)
	storagetest.ExpectFault(t, setURL(""), fault.Conflict, "deliveries_pending")
	x.End(t, job, attempt, false)
	if err := setURL(""); err != nil {
		t.Fatal(err)
	}
	err := x.Queue.Redeliver(t.Context(), x.Actor(), x.Org(), x.Sub.ID, storagetest.Must[webhook.AttemptPage](t)(x.History.AttemptPage(t.Context(), x.Org(), x.Sub.ID, webhook.AttemptFilter{Limit: 1})).Attempts[0].ID)
	storagetest.ExpectFault(t, err, fault.Conflict, "no_url")
	ids := x.Publish(t, 2, "a")
	if n := x.Pending(t); n != 0 {
		t.Errorf("%d are pending", n)
	}
	if err := setURL("https://example.com/"); err != nil {
		t.Fatal(err)
	}
	x.Replays(t, webhook.Replay{Only: webhook.OnlyMissed}, int64(len(ids)))
}

// TestAFeedThatWasSwitchedOff loses its URL after failures had disabled it, and a person had switched it off then.
func TestAFeedThatWasSwitchedOff(t *testing.T) {
	t.Parallel()
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	o.Policy = webhook.Policy{MaxAttempts: 2, FailingAfter: 2, DisabledAfter: 4}
	store, _ := storagetest.OpenWith(t, o)
	x := fixture{storagetest.CustomerOf(t, store)}
	x.Fail(t, 4)
	if s := x.Read(t).Status; s != webhook.Disabled {
		t.Fatal(s)
	}
	x.read1(t, webhook.FeedRequest{}) // that its receiver fails does not concern who reads
	x.SetActive(t, false)
	storagetest.Must[int64](t)(x.Queue.Discard(t.Context(), x.Actor(), x.Org(), x.Sub.ID, 0))
	if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{URL: new("")}); err != nil {
		t.Fatal(err)
	}
	x.readFails(t, webhook.FeedRequest{Limit: 1}, fault.Conflict, "paused")
	x.SetActive(t, true)
	x.read1(t, webhook.FeedRequest{})
}

// TestPagesOfAFeed is in virtual time, because a read fills its page only for a short time.
func TestPagesOfAFeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newFixture(t).feedOf(t, "a")
		earlier := x.Publish(t, 3, "a")
		x.Publish(t, 40, "b")
		x.SetWebhooks(t, false)
		x.readFails(t, webhook.FeedRequest{Limit: 1}, fault.Forbidden, "plan_capability_required")
		x.Publish(t, 1, "a") // of that time
		x.SetWebhooks(t, true)
		later := x.Publish(t, 2, "a")

		page := x.reads1(t, webhook.FeedRequest{Limit: 2}, earlier[:2])
		if !page.More {
			t.Error("nothing more")
		}
		for range 2 { // two readers, or one that has lost the answer
			x.reads1(t, webhook.FeedRequest{After: page.Next, Limit: 1}, earlier[2:])
		}
		page = x.reads1(t, webhook.FeedRequest{After: page.Next, Limit: 1}, earlier[2:])
		page = x.reads1(t, webhook.FeedRequest{After: page.Next}, later)
		end, _ := x.read1(t, webhook.FeedRequest{After: page.Next})
		if end.More || len(end.Events) != 0 {
			t.Errorf("%+v", end)
		}
		x.Publish(t, 1, "b")
		if next, _ := x.read1(t, webhook.FeedRequest{After: end.Next}); next.Next.Row <= end.Next.Row {
			t.Error("the position does not pass what is not wanted")
		}
		x.reads1(t, webhook.FeedRequest{Since: time.Now().Add(time.Hour).UnixMilli()}, []string{})
		x.reads1(t, webhook.FeedRequest{Since: time.Now().Add(-time.Hour).UnixMilli()}, append(earlier, later...))
		oldest, _ := x.read1(t, webhook.FeedRequest{Limit: 1})
		x.reads1(t, webhook.FeedRequest{Since: oldest.Events[0].EventAt}, append(earlier, later...)) // from that millisecond on

		x.SetActive(t, false)
		x.readFails(t, webhook.FeedRequest{After: end.Next, Limit: 1}, fault.Conflict, "paused")
	})
}

// TestAFullPageOfAFeed has more events behind a page than fit on it.
func TestAFullPageOfAFeed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ limit, size int }{
		"of events": {2, 10}, // the first slice of rows has an event less than the limit, and the next slice has more than fit
		"of bytes":  {100, 250_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := newFixture(t).feedOf(t, "a")
				x.Publish(t, 1, "b")
				var want, got []string
				for range 11 {
					event := webhook.NewEvent{Type: "a", Data: fmt.Appendf(nil, `{"text":%q}`, strings.Repeat("x", tt.size))}
					want = append(want, storagetest.Must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{event}))[0].ID)
				}
				page := webhook.FeedPage{More: true}
				for page.More {
					var ids []string
					page, ids = x.read1(t, webhook.FeedRequest{After: page.Next, Limit: tt.limit})
					if bytes := len(ids) * tt.size; len(ids) > tt.limit || bytes > 2<<20 {
						t.Errorf("a page has %d events and %d bytes", len(ids), bytes)
					}
					got = append(got, ids...)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
			})
		})
	}
}

func TestAuditEventsInAFeed(t *testing.T) {
	t.Parallel()
	x := newFixture(t).feedOf(t)
	storagetest.Key(t, x.Store, x.Owner, access.EventsRead)
	ids := x.Publish(t, 1, "a")
	page, all := x.read1(t, webhook.FeedRequest{})
	if len(all) != 2 || page.Events[0].EventType != access.KeyCreated { // nothing about its own creation
		t.Errorf("%+v", page.Events)
	}
	x.reads1(t, webhook.FeedRequest{WithoutAudit: true}, ids)
	if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{AuditEvents: new(false)}); err != nil {
		t.Fatal(err)
	}
	x.reads1(t, webhook.FeedRequest{}, ids)
}

// TestAFeedAfterRetention has a reader that was away, one that was away with nothing unread, and a reader without a position.
func TestAFeedAfterRetention(t *testing.T) {
	t.Parallel()
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	o.KeepEvents, o.KeepAudit = time.Hour, time.Hour
	synctest.Test(t, func(t *testing.T) {
		store, stop := storagetest.OpenWith(t, o)
		x := fixture{storagetest.CustomerOf(t, store)}
		x.SetActive(t, false)
		slow, _ := storagetest.Subscription(t, store, x.Owner, "https://slow.example/", "slow")
		storagetest.Publish(t, store, x.Owner, "slow") // it waits, so it is deleted after younger ones
		x = x.feedOf(t, "a")
		other, _ := storagetest.Organization(t, store, "other", "growth", access.RoleOwner)
		start, _ := x.read1(t, webhook.FeedRequest{})
		x.Publish(t, 3, "a")
		first, _ := x.read1(t, webhook.FeedRequest{Limit: 1})
		last, _ := x.read1(t, webhook.FeedRequest{})
		storagetest.Publish(t, store, other, "a")
		time.Sleep(time.Hour + 5*time.Minute)
		for _, after := range []webhook.FeedPosition{start.Next, first.Next} {
			x.readFails(t, webhook.FeedRequest{After: after, Limit: 1}, fault.Gone, "cursor_expired")
		}
		if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), slow.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		x.readFails(t, webhook.FeedRequest{After: first.Next, Limit: 1}, fault.Gone, "cursor_expired")
		x.reads1(t, webhook.FeedRequest{After: last.Next}, []string{})
		stop()

		again, _ := storagetest.OpenWith(t, o) // the newest events are deleted, and their numbers must not come back
		x.Store = again
		ids := x.Publish(t, 2, "a")
		x.reads1(t, webhook.FeedRequest{After: last.Next}, ids)
		x.reads1(t, webhook.FeedRequest{}, ids)
		x.readFails(t, webhook.FeedRequest{After: first.Next, Limit: 1}, fault.Gone, "cursor_expired")
	})
}

// TestAFeedWithAGap has events that retention deletes between younger ones, because the clock was wrong.
func TestAFeedWithAGap(t *testing.T) {
	t.Parallel()
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	o.KeepEvents, o.KeepAudit = time.Hour, time.Hour
	synctest.Test(t, func(t *testing.T) {
		store, stop := storagetest.OpenWith(t, o)
		defer stop()
		x := fixture{storagetest.CustomerOf(t, store)}
		x.SetActive(t, false)
		x = x.feedOf(t, "a")
		ids := x.Publish(t, 5, "a")
		all, _ := x.read1(t, webhook.FeedRequest{})
		position := func(i int) webhook.FeedPosition {
			return webhook.FeedPosition{Row: all.Events[i].Event, At: all.Events[i].EventAt}
		}
		expire := func(i int) { // as retention does, also while older events still wait
			for _, table := range []string{"deliveries WHERE event_id", "events WHERE id"} {
				storagetest.Exec(t, store, "DELETE FROM "+table+" = ?", position(i).Row)
			}
			storagetest.Exec(t, store, "UPDATE organizations SET expired_event = max(coalesce(expired_event, 0), ?) WHERE id = ?", position(i).Row, x.Org())
		}
		expire(2)
		expire(3)
		x.readFails(t, webhook.FeedRequest{After: position(0), Limit: 1}, fault.Gone, "cursor_expired") // it has not read the gap
		x.reads1(t, webhook.FeedRequest{After: position(3)}, ids[4:])
		x.reads1(t, webhook.FeedRequest{}, []string{ids[0], ids[1], ids[4]})
		x.reads1(t, webhook.FeedRequest{Since: time.Now().Add(-time.Hour).UnixMilli()}, []string{ids[0], ids[1], ids[4]})
		first := x.reads1(t, webhook.FeedRequest{Limit: 1}, ids[:1])
		x.reads1(t, webhook.FeedRequest{After: first.Next}, []string{ids[1], ids[4]})
		expire(0)
		x.reads1(t, webhook.FeedRequest{}, []string{ids[1], ids[4]}) // it begins behind a deleted event, in front of the gap
		time.Sleep(time.Hour)
		x.readFails(t, webhook.FeedRequest{After: first.Next, Limit: 1}, fault.Gone, "cursor_expired") // now the rest is deleted too
	})
}

// TestATimeAtWhichAFeedBegins reads from a time on, page by page, while the clock goes back and forth. Earlier events between later ones are
// left out up to the end of the feed. Behind its end, the reader gets all that come.
func TestATimeAtWhichAFeedBegins(t *testing.T) {
	t.Parallel()
	x := newFixture(t).feedOf(t, "a")
	since := time.Now().UnixMilli()
	publish := func(minutes ...int64) {
		x.Publish(t, len(minutes), "a")
		for i, m := range minutes {
			storagetest.Exec(t, x.Store, "UPDATE events SET created_at = ? WHERE id = (SELECT max(id) FROM events) - ?", since+m*60_000, len(minutes)-1-i)
		}
	}
	publish(1, -30, 2, -20, 3, -10)
	times := func(r webhook.FeedRequest, want ...int64) webhook.FeedPosition {
		t.Helper()
		r.Limit = 2
		page, _ := x.read1(t, r)
		got := []int64{}
		for _, e := range page.Events {
			got = append(got, (e.EventAt-since)/60_000)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("minutes (-want +got):\n%s", d)
		}
		return page.Next
	}
	if page, _ := x.read1(t, webhook.FeedRequest{Since: since}); page.Since != since || page.Next.Since != 0 {
		t.Errorf("the whole feed since %d: its events since %d, and the next ones since %d", since, page.Since, page.Next.Since)
	}
	at := times(webhook.FeedRequest{Since: since}, 1, 2)
	at = times(webhook.FeedRequest{After: at}, 3)
	publish(-5, 4)
	times(webhook.FeedRequest{After: at}, -5, 4)
}

// TestAPositionBeforeTheSubscription has a reader that computes one.
func TestAPositionBeforeTheSubscription(t *testing.T) {
	t.Parallel()
	x := newFixture(t).feedOf(t, "a")
	x.Publish(t, 1, "a")
	before, _ := x.read1(t, webhook.FeedRequest{})
	x.Publish(t, 1, "a")
	x = x.feedOf(t, "a")
	ids := x.Publish(t, 1, "a")
	x.reads1(t, webhook.FeedRequest{After: before.Next}, ids)
}

// TestAFeedAfterARestore reads on in a copy that lacks the last events.
func TestAFeedAfterARestore(t *testing.T) {
	t.Parallel()
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	store, stop := storagetest.OpenWith(t, o)
	x := fixture{storagetest.CustomerOf(t, store)}.feedOf(t, "a")
	x.Publish(t, 2, "a")
	early, _ := x.read1(t, webhook.FeedRequest{})
	copied := storagetest.Must[backup.Report](t)(store.CreateBackup(t.Context(), x.Actor(), "", 0)).File
	x.Publish(t, 1, "a")
	late, _ := x.read1(t, webhook.FeedRequest{})
	stop()
	if _, err := storage.Restore(t.Context(), o, copied); err != nil {
		t.Fatal(err)
	}
	again, _ := storagetest.OpenWith(t, o)
	x.Store = again
	x.readFails(t, webhook.FeedRequest{After: late.Next, Limit: 1}, fault.Gone, "cursor_expired")
	time.Sleep(2 * time.Millisecond)
	ids := x.Publish(t, 2, "a")
	x.readFails(t, webhook.FeedRequest{After: late.Next, Limit: 1}, fault.Gone, "cursor_expired")
	x.reads1(t, webhook.FeedRequest{After: early.Next}, ids)
}

// TestAFeedThatFailsOnTheWay gives a read more and more time. The first one that ends without an error has not looked at everything: what
// it has looked at is not lost with the rest, so the reader gets a position, and does not begin again.
func TestAFeedThatFailsOnTheWay(t *testing.T) {
	t.Parallel()
	x := newFixture(t).feedOf(t, "a")
	large := []byte(`{"lines":[` + strings.Repeat("1,", 8<<10) + `1]}`)
	storagetest.Must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), x.Org(), slices.Repeat([]webhook.NewEvent{{Type: "a", Data: large}}, 60)))
	x.setFilter(t, atLeast(t, 1)) // none passes
	for most := time.Millisecond; ; most *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), most)
		page, err := x.Feeds.Feed(ctx, x.Org(), x.Sub.ID, webhook.FeedRequest{Limit: 100})
		cancel()
		if err != nil {
			continue
		}
		if !page.More {
			t.Errorf("it needs %s for everything, and returns nothing before that", most)
		}
		break
	}
}
