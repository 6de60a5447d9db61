package storage_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// found is what a search has found, page by page.
type found struct {
	rows  []int64
	pages int
}

// attempts reads all pages of a search for attempts.
func (x fixture) attempts(t *testing.T, f webhook.AttemptFilter) (all found) {
	t.Helper()
	for {
		page, err := x.History.AttemptPage(t.Context(), x.Org(), x.Sub.ID, f)
		if err != nil {
			t.Fatal(err)
		}
		all.pages++
		for _, a := range page.Attempts {
			all.rows = append(all.rows, a.RowID)
		}
		switch {
		case page.Next != 0:
			f.Before, f.BeforeAt = page.Next, page.NextAt
		case len(page.Attempts) == f.Limit:
			last := page.Attempts[len(page.Attempts)-1]
			f.Before, f.BeforeAt = last.RowID, last.AttemptedAt
		default:
			return all
		}
	}
}

// lines reads all pages of a search of the audit log.
func (x fixture) lines(t *testing.T, f access.AuditFilter) (all found) {
	t.Helper()
	for {
		page, err := x.History.AuditPage(t.Context(), x.Org(), f)
		if err != nil {
			t.Fatal(err)
		}
		all.pages++
		for _, e := range page.Rows {
			all.rows = append(all.rows, e.RowID)
		}
		switch {
		case page.Next != 0:
			f.Before = page.Next
		case len(page.Rows) == f.Limit:
			f.Before = page.Rows[len(page.Rows)-1].RowID
		default:
			return all
		}
	}
}

func TestLogSearches(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	rare := storagetest.Publish(t, x.Store, x.Owner, "user.deleted")
	for range 60 {
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
	}
	for i, job := range x.Jobs(t) {
		attempt := x.Begin(t, job)
		if i == 20 { // and never ends
			continue
		}
		x.End(t, job, attempt, i%3 == 0)
	}
	listed := x.attempts(t, webhook.AttemptFilter{Limit: 1})
	if len(listed.rows) != 61 {
		t.Fatalf("%d attempts, want 61", len(listed.rows))
	}
	first := must[webhook.Attempt](t)(x.History.Attempt(t.Context(), listed.rows[60]))
	for range 101 { // more than are looked up one by one
		if err := x.Queue.Redeliver(t.Context(), x.Actor(), x.Org(), x.Sub.ID, first.ID); err != nil {
			t.Fatal(err)
		}
	}
	succeeded, failed, sending := webhook.Succeeded, webhook.Failed, webhook.Sending
	filters := map[string]webhook.AttemptFilter{
		"by a type that is rare":          {EventType: "user.deleted"},
		"by a type that is common":        {EventType: "user.created"},
		"by a type that does not exist":   {EventType: "never.happens"},
		"by success":                      {Outcome: &succeeded},
		"by failure":                      {Outcome: &failed},
		"by what is in progress":          {Outcome: &sending},
		"by an event of many deliveries":  {EventID: rare.ID},
		"by a type and a period":          {EventType: "user.created", Since: first.AttemptedAt, Until: first.AttemptedAt + time.Hour.Milliseconds()},
		"by a type and an empty period":   {EventType: "user.created", Until: first.AttemptedAt},
		"by a type and a period to come":  {EventType: "user.created", Since: first.AttemptedAt + time.Hour.Milliseconds()},
		"by nothing, in a period to come": {Since: first.AttemptedAt + time.Hour.Milliseconds()},
	}
	whole, lines := map[string]found{}, x.lines(t, access.AuditFilter{Limit: 7, Type: access.SubscriptionCreated})
	for name, f := range filters {
		f.Limit = 7
		whole[name] = x.attempts(t, f)
	}
	x.BoundSearches(10, 2)
	early := 0
	for name, f := range filters {
		for _, limit := range []int{1, 7, 200} {
			f.Limit = limit
			got := x.attempts(t, f)
			if d := cmp.Diff(whole[name].rows, got.rows); d != "" {
				t.Errorf("%s, %d a page: (-searched at once +searched in parts):\n%s", name, limit, d)
			}
			if limit == 200 && got.pages > 1 {
				early++
			}
		}
	}
	if early < 5 {
		t.Errorf("%d searches have ended early, want at least 5", early)
	}
	got := x.lines(t, access.AuditFilter{Limit: 7, Type: access.SubscriptionCreated})
	if d := cmp.Diff(lines.rows, got.rows); d != "" || len(got.rows) != 1 || got.pages < 5 {
		t.Errorf("%d lines of the audit log in %d pages (-searched at once +searched in parts):\n%s", len(got.rows), got.pages, d)
	}
	storagetest.NoneGrows(t, x.Store, map[string]string{"FROM deliveries own": "TEMP B-TREE", "INDEXED BY deliveries_sending": "TEMP B-TREE FOR LAST TERM"})
}

// reads makes each kind of read of logs once.
func (x fixture) reads(ctx context.Context) map[string]error {
	_, err1 := x.History.AttemptPage(ctx, x.Org(), x.Sub.ID, webhook.AttemptFilter{Limit: 1})
	_, err2 := x.History.AuditPage(ctx, x.Org(), access.AuditFilter{Limit: 1})
	_, err3 := x.History.Series(ctx, x.Org(), "", 0, 1, 1)
	_, err4 := x.Events(ctx, x.Org(), 0, 1)
	return map[string]error{"attempts": err1, "audit log": err2, "series": err3, "events": err4}
}

func (x fixture) expectReads(t *testing.T, busy bool) {
	t.Helper()
	for name, err := range x.reads(t.Context()) {
		if busy {
			storagetest.ExpectFault(t, err, fault.Unavailable, "too_busy")
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// besides makes two fixtures in one store.
func besides(t *testing.T) (a, b fixture) {
	t.Helper()
	a = newFixture(t)
	b = fixture{storagetest.Customer{Store: a.Store}}
	b.Owner, _ = storagetest.Organization(t, a.Store, "beside", "growth", access.RoleOwner)
	b.Sub, _ = storagetest.Subscription(t, a.Store, b.Owner, "https://example.com/beside", "user.created")
	return a, b
}

func TestTurnsOfLogs(t *testing.T) {
	t.Parallel()

	t.Run("a read of one organization holds up its own reads, and nobody else's", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			a, b := besides(t)
			end, err := a.TakeTurn(t.Context(), a.Org())
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			b.expectReads(t, false)
			if _, err := a.CountReplay(t.Context(), webhook.Replay{Only: webhook.OnlyAll}); err != nil {
				t.Errorf("its replay: %v", err)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("others have waited for %s", took)
			}
			a.expectReads(t, true)
			if took := time.Since(began); took != 4*5*time.Second {
				t.Errorf("four reads have waited for %s, want 5s each", took)
			}
			end()
			a.expectReads(t, false)
		})
	})

	t.Run("a replay of one organization holds up its own replays, and nothing else", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			a, b := besides(t)
			end, err := a.TakeReplayTurn(t.Context(), a.Org())
			if err != nil {
				t.Fatal(err)
			}
			a.expectReads(t, false)
			if _, err := b.CountReplay(t.Context(), webhook.Replay{Only: webhook.OnlyAll}); err != nil {
				t.Errorf("another's replay: %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := a.CountReplay(ctx, webhook.Replay{Only: webhook.OnlyAll}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a second replay: %v", err)
			}
			end()
			if _, err := a.CountReplay(t.Context(), webhook.Replay{Only: webhook.OnlyAll}); err != nil {
				t.Errorf("a replay after the first: %v", err)
			}
		})
	})
}

func TestTurnsOfWaitingReads(t *testing.T) {
	t.Parallel()

	t.Run("a read waits for a connection a while, and takes the next that is free", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			a, b := besides(t)
			var ends []func()
			for range 2 {
				end, err := a.BeginLogRead(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				ends = append(ends, end)
			}
			b.expectReads(t, true)
			if _, err := b.CountReplay(t.Context(), webhook.Replay{Only: webhook.OnlyAll}); err != nil {
				t.Errorf("a replay: %v", err)
			}
			time.AfterFunc(time.Second, ends[0])
			b.expectReads(t, false)
			ends[1]()
		})
	})

	t.Run("who asks first is served first, and a crowd is refused", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := newFixture(t)
			const most = 32
			end, err := x.TakeTurn(t.Context(), x.Org())
			if err != nil {
				t.Fatal(err)
			}
			var served, want []int
			var waiting sync.WaitGroup
			for i := range most - 1 {
				want = append(want, i)
				waiting.Go(func() {
					end, err := x.TakeTurn(t.Context(), x.Org())
					if err != nil {
						t.Error(err)
						return
					}
					served = append(served, i) // one at a time
					end()
				})
				synctest.Wait()
			}
			began := time.Now()
			_, err = x.TakeTurn(t.Context(), x.Org())
			storagetest.ExpectFault(t, err, fault.Unavailable, "too_busy")
			if time.Since(began) != 0 {
				t.Error("who comes last has waited")
			}
			end()
			waiting.Wait()
			if !slices.Equal(served, want) {
				t.Errorf("served %v", served)
			}
		})
	})

	t.Run("a wait ends with its context, and leaves no trace", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		for range 100 {
			end, err := x.TakeTurn(t.Context(), x.Org())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := x.TakeTurn(ctx, x.Org()); !errors.Is(err, context.Canceled) {
				t.Fatalf("the error is %v", err)
			}
			end()
		}
	})
}

// TestFeedsHaveTheirOwnConnections holds the connections of others, as long reads do.
func TestFeedsHaveTheirOwnConnections(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.Sub, _ = storagetest.Subscription(t, x.Store, x.Owner, "")
	x.Publish(t, 1, "a")
	within := func(read func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return read(ctx)
	}
	feed := func(ctx context.Context) error {
		_, err := x.Feeds.Feed(ctx, x.Org(), x.Sub.ID, webhook.FeedRequest{Limit: 1})
		return err
	}
	preview := func(ctx context.Context) error {
		_, err := x.Feeds.PreviewFilter(ctx, x.Org(), nil, nil, true)
		return err
	}
	hold := func(take func(context.Context) (func(), error)) func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return must[func()](t)(take(ctx))
	}
	release := hold(x.HoldReplays)
	if err := errors.Join(within(feed), within(preview)); err != nil {
		t.Errorf("beside a replay: %v", err)
	}
	release()
	defer hold(x.HoldFeeds)()
	if err := errors.Join(within(feed), within(preview)); err != nil {
		t.Errorf("beside another feed: %v", err)
	}
	defer hold(x.HoldFeeds)()
	y := x
	y.Sub, _ = storagetest.Subscription(t, x.Store, x.Owner, "https://example.org/", "a")
	if err := within(func(ctx context.Context) error {
		_, err := y.CountReplay(ctx, webhook.Replay{Only: webhook.OnlyAll})
		return err
	}); err != nil {
		t.Errorf("a replay beside feeds: %v", err)
	}
	if err := within(feed); err == nil {
		t.Error("the feeds are not held")
	}
}

// TestPagesOfAttemptsInProgress reads pages of attempts. Every third attempt is in progress.
func TestPagesOfAttemptsInProgress(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, storagetest.Options(t, path))
		x := fixtureOf(t, store)
		var want, sending []int64
		open := map[int64]webhook.Job{}
		for i := range 60 {
			storagetest.Publish(t, x.Store, x.Owner, []string{"user.created", "user.deleted"}[i%2])
			job := x.Jobs(t)[0]
			attempt := x.Begin(t, job)
			if want = append(want, attempt); i%3 == 0 {
				open[attempt], sending = job, append(sending, attempt)
			} else {
				x.End(t, job, attempt, true)
			}
			time.Sleep(time.Duration(i%2) * time.Millisecond) // some begin at the same time
		}
		slices.Reverse(want)
		slices.Reverse(sending)
		outcome := webhook.Sending
		check := func(when string) {
			t.Helper()
			for _, limit := range []int{1, 2, 7, 50, 200} {
				if got := x.attempts(t, webhook.AttemptFilter{Limit: limit}); !slices.Equal(got.rows, want) {
					t.Errorf("%s, %d a page: %s", when, limit, cmp.Diff(want, got.rows))
				}
				if got := x.attempts(t, webhook.AttemptFilter{Limit: limit, Outcome: &outcome}); !slices.Equal(got.rows, sending) {
					t.Errorf("%s, %d a page, in progress: %s", when, limit, cmp.Diff(sending, got.rows))
				}
				both := len(x.attempts(t, webhook.AttemptFilter{Limit: limit, EventType: "user.created"}).rows) +
					len(x.attempts(t, webhook.AttemptFilter{Limit: limit, EventType: "user.deleted"}).rows)
				if both != len(want) {
					t.Errorf("%s, %d a page: %d of the two types, want %d", when, limit, both, len(want))
				}
			}
			for _, a := range must[[]webhook.Attempt](t)(x.Attempts(t.Context(), x.Org(), x.Sub.ID, webhook.AttemptFilter{Limit: 200})) {
				if got := x.attempts(t, webhook.AttemptFilter{Limit: 7, EventID: a.EventID}); !slices.Equal(got.rows, []int64{a.RowID}) {
					t.Errorf("%s, of one event: %v, want %d", when, got.rows, a.RowID)
				}
			}
		}
		check("while a third is in progress")
		x.BoundSearches(10, 2)
		check("in small slices")
		for _, attempt := range sending[:10] {
			x.End(t, open[attempt], attempt, false)
		}
		sending = sending[10:]
		check("after some have ended")
	})
}
