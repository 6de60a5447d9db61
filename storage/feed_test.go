package storage_test

import (
	"context"
	"errors"
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
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// feedOf returns the fixture with another subscription, which has no URL.
func (x fixture) feedOf(t *testing.T, types ...string) fixture {
	t.Helper()
	x.sub, _ = storagetest.Subscription(t, x.Store, x.owner, "", types...)
	return x
}

func (x fixture) read1(t *testing.T, r webhook.FeedRequest) (webhook.FeedPage, []string) {
	t.Helper()
	if r.Limit == 0 {
		r.Limit = 100
	}
	page := must[webhook.FeedPage](t)(x.Queue.Feed(t.Context(), x.org(), x.sub.ID, r))
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
	_, err := x.Queue.Feed(t.Context(), x.org(), x.sub.ID, r)
	storagetest.ExpectFault(t, err, kind, code)
}

func TestAFeedHasNoDeliveries(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	if err := x.Subscriptions.DeleteSubscription(t.Context(), x.actor(), x.org(), x.sub.ID); err != nil {
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
	if p := storagetest.Publish(t, x.Store, x.owner, "other"); p.Notice != webhook.NoSubscription {
		t.Errorf("%+v", p)
	}
	x.reads1(t, webhook.FeedRequest{}, []string{first.ID})
	if sub := x.read(t); sub.PendingDeliveries != 0 || sub.Status != webhook.Healthy {
		t.Errorf("%+v", sub)
	}
	ctx, by := t.Context(), x.actor()
	_, _, _, err1 := x.Queue.BeginTest(ctx, x.org(), x.sub.ID, "")
	_, err2 := x.Queue.Replay(ctx, by, x.org(), x.sub.ID, webhook.Replay{})
	_, err3 := x.Queue.CountReplay(ctx, x.org(), x.sub.ID, webhook.Replay{})
	_, err4 := x.Queue.Recover(ctx, by, x.org(), x.sub.ID, webhook.RecoveryRequest{})
	_, err5 := x.Queue.CountRecovery(ctx, x.org(), x.sub.ID, webhook.RecoveryRequest{})
	_, err6 := x.Queue.Discard(ctx, by, x.org(), x.sub.ID, 0)
	for _, err := range []error{err1, err2, err3, err4, err5, err6} {
		storagetest.ExpectFault(t, err, fault.Conflict, "no_url")
	}
}

// TestUrlsOfFeeds changes the URL from and to none, with an attempt behind and with one pending.
func TestUrlsOfFeeds(t *testing.T) {
	t.Parallel()
	x := newOneAttemptFixture(t)
	x.publish(t, 1, "a")
	setURL := func(url string) error { return x.change(t, x.actor(), webhook.SubscriptionChange{URL: &url}) }
	storagetest.ExpectFault(t, setURL(""), fault.Conflict, "deliveries_pending")
	job := x.jobs(t)[0]
	attempt := x.begin(t, job)
	storagetest.ExpectFault(t, setURL(""), fault.Conflict, "deliveries_pending")
	x.end(t, job, attempt, false)
	if err := setURL(""); err != nil {
		t.Fatal(err)
	}
	err := x.Queue.Redeliver(t.Context(), x.actor(), x.org(), x.sub.ID, x.all(t)[0].ID)
	storagetest.ExpectFault(t, err, fault.Conflict, "no_url")
	ids := x.publish(t, 2, "a")
	if n := x.pending(t); n != 0 {
		t.Errorf("%d are pending", n)
	}
	if err := setURL("https://example.com/"); err != nil {
		t.Fatal(err)
	}
	x.replays(t, only(webhook.OnlyMissed), int64(len(ids)))
}

// TestAFeedThatWasSwitchedOff loses its URL after failures had disabled it, and a person had switched it off then.
func TestAFeedThatWasSwitchedOff(t *testing.T) {
	t.Parallel()
	x := newOutage(t)
	x.fail(t, 4)
	if s := x.read(t).Status; s != webhook.Disabled {
		t.Fatal(s)
	}
	x.setActive(t, false)
	must[int64](t)(x.Queue.Discard(t.Context(), x.actor(), x.org(), x.sub.ID, 0))
	if err := x.change(t, x.actor(), webhook.SubscriptionChange{URL: new("")}); err != nil {
		t.Fatal(err)
	}
	x.readFails(t, webhook.FeedRequest{Limit: 1}, fault.Conflict, "paused")
	x.setActive(t, true)
	x.read1(t, webhook.FeedRequest{})
}

func TestPagesOfAFeed(t *testing.T) {
	t.Parallel()
	x := newFixture(t).feedOf(t, "a")
	earlier := x.publish(t, 3, "a")
	x.publish(t, 40, "b")
	x.setWebhooks(t, false)
	x.readFails(t, webhook.FeedRequest{Limit: 1}, fault.Forbidden, "plan_capability_required")
	x.publish(t, 1, "a") // of that time
	x.setWebhooks(t, true)
	later := x.publish(t, 2, "a")

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
	x.publish(t, 1, "b")
	if next, _ := x.read1(t, webhook.FeedRequest{After: end.Next}); next.Next.Row <= end.Next.Row {
		t.Error("the position does not pass what is not wanted")
	}
	x.reads1(t, webhook.FeedRequest{Since: time.Now().Add(time.Hour).UnixMilli()}, []string{})
	x.reads1(t, webhook.FeedRequest{Since: time.Now().Add(-time.Hour).UnixMilli()}, append(earlier, later...))
	oldest, _ := x.read1(t, webhook.FeedRequest{Limit: 1})
	x.reads1(t, webhook.FeedRequest{Since: oldest.Events[0].EventAt}, append(earlier, later...)) // from that millisecond on

	x.setActive(t, false)
	x.readFails(t, webhook.FeedRequest{After: end.Next, Limit: 1}, fault.Conflict, "paused")
}

func TestAuditEventsInAFeed(t *testing.T) {
	t.Parallel()
	x := newFixture(t).feedOf(t)
	storagetest.Key(t, x.Store, x.owner, access.EventsRead)
	ids := x.publish(t, 1, "a")
	page, all := x.read1(t, webhook.FeedRequest{})
	if len(all) != 2 || page.Events[0].EventType != access.KeyCreated { // nothing about its own creation
		t.Errorf("%+v", page.Events)
	}
	x.reads1(t, webhook.FeedRequest{WithoutAudit: true}, ids)
	if err := x.change(t, x.actor(), webhook.SubscriptionChange{AuditEvents: new(false)}); err != nil {
		t.Fatal(err)
	}
	x.reads1(t, webhook.FeedRequest{}, ids)
}

// TestAFeedAfterRetention has a reader that was away, one that was away with nothing unread, and a reader without a position.
func TestAFeedAfterRetention(t *testing.T) {
	t.Parallel()
	o := hourlyRetention(t)
	synctest.Test(t, func(t *testing.T) {
		store, stop := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		x.disable(t)
		x = x.feedOf(t, "a")
		other, _ := storagetest.Organization(t, store, "other", "growth", access.RoleOwner)
		start, _ := x.read1(t, webhook.FeedRequest{})
		x.publish(t, 3, "a")
		first, _ := x.read1(t, webhook.FeedRequest{Limit: 1})
		last, _ := x.read1(t, webhook.FeedRequest{})
		storagetest.Publish(t, store, other, "a")
		time.Sleep(time.Hour + 5*time.Minute)
		for _, after := range []webhook.FeedPosition{start.Next, first.Next} {
			x.readFails(t, webhook.FeedRequest{After: after, Limit: 1}, fault.Gone, "cursor_expired")
		}
		x.reads1(t, webhook.FeedRequest{After: last.Next}, []string{})
		stop()

		again, _ := storagetest.OpenWith(t, o) // the newest events are deleted, and their numbers must not come back
		x.Store = again
		ids := x.publish(t, 2, "a")
		x.reads1(t, webhook.FeedRequest{After: last.Next}, ids)
		x.reads1(t, webhook.FeedRequest{}, ids)
		x.readFails(t, webhook.FeedRequest{After: first.Next, Limit: 1}, fault.Gone, "cursor_expired")
	})
}

// TestAFeedWithAGap has events that retention deletes between younger ones, because the clock was wrong.
func TestAFeedWithAGap(t *testing.T) {
	t.Parallel()
	o := hourlyRetention(t)
	synctest.Test(t, func(t *testing.T) {
		store, stop := storagetest.OpenWith(t, o)
		defer stop()
		x := fixtureOf(t, store)
		x.disable(t)
		x = x.feedOf(t, "a")
		ids := x.publish(t, 5, "a")
		all, _ := x.read1(t, webhook.FeedRequest{})
		position := func(i int) webhook.FeedPosition {
			return webhook.FeedPosition{Row: all.Events[i].Event, At: all.Events[i].EventAt}
		}
		if err := store.MoveEvents(t.Context(), position(2).Row, position(3).Row, -2*time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		x.readFails(t, webhook.FeedRequest{After: position(0), Limit: 1}, fault.Gone, "cursor_expired") // it has not read the gap
		x.reads1(t, webhook.FeedRequest{After: position(3)}, ids[4:])
		x.reads1(t, webhook.FeedRequest{}, []string{ids[0], ids[1], ids[4]})
		x.reads1(t, webhook.FeedRequest{Since: time.Now().Add(-time.Hour).UnixMilli()}, []string{ids[0], ids[1], ids[4]})
		first := x.reads1(t, webhook.FeedRequest{Limit: 1}, ids[:1])
		x.reads1(t, webhook.FeedRequest{After: first.Next}, []string{ids[1], ids[4]})
		time.Sleep(time.Hour)
		x.readFails(t, webhook.FeedRequest{After: first.Next, Limit: 1}, fault.Gone, "cursor_expired") // now the rest is deleted too
	})
}

// TestAPositionBeforeTheSubscription has a reader that computes one.
func TestAPositionBeforeTheSubscription(t *testing.T) {
	t.Parallel()
	x := newFixture(t).feedOf(t, "a")
	x.publish(t, 1, "a")
	before, _ := x.read1(t, webhook.FeedRequest{})
	x.publish(t, 1, "a")
	x = x.feedOf(t, "a")
	ids := x.publish(t, 1, "a")
	x.reads1(t, webhook.FeedRequest{After: before.Next}, ids)
}

// TestAFeedAfterARestore reads on in a copy that lacks the last events.
func TestAFeedAfterARestore(t *testing.T) {
	t.Parallel()
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	store, stop := storagetest.OpenWith(t, o)
	x := fixtureOf(t, store).feedOf(t, "a")
	x.publish(t, 2, "a")
	early, _ := x.read1(t, webhook.FeedRequest{})
	copied := must[backup.Report](t)(store.CreateBackup(t.Context(), x.actor(), "", 0)).File
	x.publish(t, 1, "a")
	late, _ := x.read1(t, webhook.FeedRequest{})
	stop()
	if _, err := storage.Restore(t.Context(), o, copied); err != nil {
		t.Fatal(err)
	}
	again, _ := storagetest.OpenWith(t, o)
	x.Store = again
	x.readFails(t, webhook.FeedRequest{After: late.Next, Limit: 1}, fault.Gone, "cursor_expired")
	time.Sleep(2 * time.Millisecond)
	ids := x.publish(t, 2, "a")
	x.readFails(t, webhook.FeedRequest{After: late.Next, Limit: 1}, fault.Gone, "cursor_expired")
	x.reads1(t, webhook.FeedRequest{After: early.Next}, ids)
}

// TestFeedsHaveTheirOwnConnections holds the connections of others, as long reads do.
func TestFeedsHaveTheirOwnConnections(t *testing.T) {
	t.Parallel()
	x := newFixture(t).feedOf(t)
	x.publish(t, 1, "a")
	within := func(read func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return read(ctx)
	}
	feed := func(ctx context.Context) error {
		_, err := x.Queue.Feed(ctx, x.org(), x.sub.ID, webhook.FeedRequest{Limit: 1})
		return err
	}
	preview := func(ctx context.Context) error {
		_, err := x.Queue.PreviewFilter(ctx, x.org(), nil, nil, true)
		return err
	}
	hold := func(take func(context.Context) (func(), error)) func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return must[func()](t)(take(ctx))
	}
	release := hold(x.Queue.HoldReplays)
	if err := errors.Join(within(feed), within(preview)); err != nil {
		t.Errorf("beside a replay: %v", err)
	}
	release()
	defer hold(x.Queue.HoldFeeds)()
	if err := errors.Join(within(feed), within(preview)); err != nil {
		t.Errorf("beside another feed: %v", err)
	}
	defer hold(x.Queue.HoldFeeds)()
	y := x
	y.sub, _ = storagetest.Subscription(t, x.Store, x.owner, "https://example.org/", "a")
	if err := within(func(ctx context.Context) error {
		_, err := y.Queue.CountReplay(ctx, y.org(), y.sub.ID, everything)
		return err
	}); err != nil {
		t.Errorf("a replay beside feeds: %v", err)
	}
	if err := within(feed); err == nil {
		t.Error("the feeds are not held")
	}
}

// TestAFeedThatFailsOnTheWay gives a read more and more time. The first one that ends without an error has not looked at everything: what
// it has looked at is not lost with the rest, so the reader gets a position, and does not begin again.
func TestAFeedThatFailsOnTheWay(t *testing.T) {
	t.Parallel()
	x := newFixture(t).feedOf(t, "a")
	large := []byte(`{"lines":[` + strings.Repeat("1,", 8<<10) + `1]}`)
	must[[]webhook.Published](t)(x.Queue.PublishEvents(t.Context(), x.org(), slices.Repeat([]webhook.NewEvent{{Type: "a", Data: large}}, 60)))
	x.setFilter(t, atLeast(t, 1)) // none passes
	for most := time.Millisecond; ; most *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), most)
		page, err := x.Queue.Feed(ctx, x.org(), x.sub.ID, webhook.FeedRequest{Limit: 100})
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

func TestWaitingReaders(t *testing.T) {
	t.Parallel()
	q := newFixture(t).Queue
	join := func(organization int64, n int) (chans []<-chan struct{}, leaves []func()) {
		for range n {
			c, leave, err := q.AwaitEvents(organization)
			if err != nil {
				storagetest.ExpectFault(t, err, fault.Limited, "too_many_readers")
				break
			}
			chans, leaves = append(chans, c), append(leaves, leave)
		}
		return chans, leaves
	}
	first, leaves := join(1, 17)
	if len(first) != 16 {
		t.Fatalf("%d readers of one organization wait", len(first))
	}
	for i := range int64(15) {
		join(2+i, 16)
	}
	if more, _ := join(99, 16); len(more) != 15 { // all 17 have 15 now, and one has 16
		t.Errorf("a further organization got %d places", len(more))
	}
	if more, _ := join(1, 1); len(more) != 0 {
		t.Error("a place was taken from an organization with as many readers")
	}
	if _, stays := <-first[0]; stays {
		t.Error("the longest wait of the largest organization goes on")
	}
	for _, leave := range leaves {
		leave()
	}
	if more, _ := join(1, 16); len(more) != 15 { // the places that were free again
		t.Errorf("%d wait after all have left", len(more))
	}
}
