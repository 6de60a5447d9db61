package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// everything is a replay without filters.
var everything = webhook.Replay{Only: webhook.OnlyAll}

// only returns everything with this filter.
func only(o webhook.Only) webhook.Replay { return webhook.Replay{Only: o} }

func TestReplayOfWhatFailed(t *testing.T) {
	t.Parallel()

	t.Run("a failed event gets a new delivery that is due at once", func(t *testing.T) {
		t.Parallel()
		x := newOneAttemptFixture(t)
		id := storagetest.Publish(t, x.Store, x.Owner, "user.created").ID
		x.EndAll(t, false)
		x.Replays(t, only(webhook.OnlyMissed), 0)
		began := time.Now().UnixMilli()
		x.Replays(t, only(webhook.OnlyFailed), 1)
		job := x.Jobs(t)[0]
		if job.EventID != id || job.Cause != webhook.ByHand || job.Attempts != 0 || job.DueAt < began || job.DueAt > time.Now().UnixMilli() {
			t.Errorf("%+v", job)
		}
	})

	t.Run("an event that failed twice gets one delivery", func(t *testing.T) {
		t.Parallel()
		x := newOneAttemptFixture(t)
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
		x.EndAll(t, false)
		x.Replays(t, everything, 1)
		x.EndAll(t, false)
		x.Replays(t, everything, 1)
	})

	t.Run("an event that has arrived since is skipped", func(t *testing.T) {
		t.Parallel()
		x := newOneAttemptFixture(t)
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
		x.EndAll(t, false)
		x.Replays(t, everything, 1)
		x.EndAll(t, true)
		x.Replays(t, everything, 0)
	})

	t.Run("events that arrived or are pending are skipped", func(t *testing.T) {
		t.Parallel()
		x := newOneAttemptFixture(t)
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
		x.EndAll(t, true)
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
		x.Replays(t, everything, 0)
	})

	t.Run("each subscription gets what it missed itself", func(t *testing.T) {
		t.Parallel()
		x := newOneAttemptFixture(t)
		y := x
		y.Sub, _ = storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/other", "user.created")
		x.EndAll(t, true) // the events about the other subscription
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
		x.EndAll(t, false)
		y.EndAll(t, true)
		y.Replays(t, everything, 0)
		x.Replays(t, everything, 1)
	})
}

func TestReplayOfWhatWasMissed(t *testing.T) {
	t.Parallel()

	t.Run("events without deliveries are replayed, and those that wait for a disabled subscription are not", func(t *testing.T) {
		t.Parallel()
		o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
		o.Policy = webhook.Policy{MaxAttempts: 5, FailingAfter: 1, DisabledAfter: 2}
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		x.SetActive(t, false)
		held := x.Publish(t, 1, "while.inactive")
		x.SetActive(t, true)
		x.Fail(t, 2)
		if sub, _ := x.History.Subscription(t.Context(), x.Org(), x.Sub.ID); sub.Status != webhook.Disabled {
			t.Fatalf("it is %s after two failures", sub.Status)
		}
		held = append(held, x.Publish(t, 1, "while.disabled")...)
		missed := x.Missed(t, 1, "while.downgraded")
		x.Replays(t, only(webhook.OnlyMissed), 1)
		var got []string
		for _, job := range x.Jobs(t) {
			if strings.HasPrefix(job.EventType, "while.") {
				got = append(got, job.EventID)
			}
		}
		slices.Sort(got)
		if d := cmp.Diff(slices.Sorted(slices.Values(append(held, missed...))), got); d != "" {
			t.Errorf("pending (-want +got):\n%s", d)
		}
	})

	t.Run("the reason why each event was missed is counted", func(t *testing.T) {
		t.Parallel()
		x := newOneAttemptFixture(t)
		if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{EventTypes: &webhook.Types{"a"}, AuditEvents: new(false)}); err != nil {
			t.Fatal(err)
		}
		x.Publish(t, 1, "a")
		x.EndAll(t, false)
		x.Publish(t, 2, "b")
		x.Missed(t, 3, "a")
		x.Missed(t, 4, "b")
		if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{EventTypes: &webhook.Types{}}); err != nil {
			t.Fatal(err)
		}
		want := webhook.Replayed{Exhausted: 1, Plan: 7, TypeAdded: 2}
		for only, want := range map[webhook.Only]webhook.Replayed{
			webhook.OnlyAll: want, webhook.OnlyFailed: {Exhausted: want.Exhausted}, webhook.OnlyMissed: {Plan: want.Plan, TypeAdded: want.TypeAdded},
		} {
			if got, err := x.CountReplay(t.Context(), webhook.Replay{Only: only}); err != nil || got != want {
				t.Errorf("%s: counted %+v, want %+v, error %v", only, got, want, err)
			}
		}
		if got, err := x.Queue.Replay(t.Context(), x.Actor(), x.Org(), x.Sub.ID, everything); err != nil || got != want {
			t.Errorf("made %+v, want %+v, error %v", got, want, err)
		}
	})

	t.Run("an event about the health of another subscription was not missed", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		other, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/same-host", "none") // the same host
		x.EndAll(t, true)
		y := x
		y.Sub = other
		y.SetActive(t, false)
		for _, job := range x.Jobs(t) {
			if job.EventType == access.SubscriptionDisabled {
				t.Error("it was delivered")
			}
		}
		x.Replays(t, everything, 0)
	})

	t.Run("events from before the subscription are skipped", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		synctest.Test(t, func(t *testing.T) {
			store, _ := storagetest.OpenWith(t, storagetest.Options(t, path))
			x := fixtureOf(t, store)
			storagetest.Publish(t, store, x.Owner, "user.created")
			time.Sleep(time.Millisecond)
			x.Sub, _ = storagetest.Subscription(t, store, x.Owner, "https://example.com/late", "user.created")
			x.Replays(t, everything, 0)
			x.Missed(t, 1, "user.created")
			x.Replays(t, everything, 1)
		})
	})
}

func TestReplaySkipsEvents(t *testing.T) {
	t.Parallel()

	t.Run("test events are skipped, but not other events with that type", func(t *testing.T) {
		t.Parallel()
		x := newOneAttemptFixture(t)
		other, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/other", "none")
		x.EndAll(t, true) // the events about the other subscription
		for _, id := range []string{x.Sub.ID, other.ID} {
			_, job, attempt, err := x.Queue.BeginTest(t.Context(), x.Org(), id, "")
			if err != nil {
				t.Fatal(err)
			}
			x.End(t, job, attempt, false)
		}
		x.Replays(t, everything, 0)
		x.Missed(t, 1, webhook.TestType)
		x.Replays(t, everything, 1)
	})

	t.Run("events about the subscription itself are skipped", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		other, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/other", "none")
		x.EndAll(t, true)
		x.SetWebhooks(t, false)
		x.SetActive(t, false)
		x.SetActive(t, true)
		x.SetWebhooks(t, true)
		x.Replays(t, everything, 0)
		x.SetWebhooks(t, false)
		if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), other.ID); err != nil {
			t.Fatal(err)
		}
		x.SetWebhooks(t, true)
		x.Replays(t, everything, 1)
	})

	t.Run("events of other organizations are skipped", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		other, _ := storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
		storagetest.Publish(t, x.Store, other, "user.created")
		x.Replays(t, everything, 0)
	})

	t.Run("events that retention may be deleting are skipped", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		synctest.Test(t, func(t *testing.T) {
			o := storagetest.Options(t, path)
			o.KeepEvents = time.Hour
			store, _ := storagetest.OpenWith(t, o)
			x := fixtureOf(t, store)
			storagetest.Subscription(t, store, x.Owner, "https://example.com/other", "user.created") // its delivery is pending, so the event stays
			x.EndAll(t, true)
			if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{EventTypes: &webhook.Types{"none"}}); err != nil {
				t.Fatal(err)
			}
			id := x.Publish(t, 1, "user.created")[0]
			if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{EventTypes: &webhook.Types{}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour + time.Minute)
			if _, _, err := store.History.Event(t.Context(), x.Org(), id); err != nil {
				t.Fatal(err)
			}
			x.Replays(t, everything, 0)
			x.Missed(t, 1, "user.created")
			x.Replays(t, everything, 1)
			if kept := store.EventRetention(); kept != time.Hour {
				t.Errorf("kept for %s", kept)
			}
		})
	})
}

func TestReplayByType(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		own, asked webhook.Types
		want       int64
	}{
		"all of all":                          {nil, nil, 5},
		"what the subscription wants":         {webhook.Types{"user.created", "order.*"}, nil, 3},
		"what is asked for":                   {nil, webhook.Types{"user.*"}, 3},
		"what is both wanted and asked for":   {webhook.Types{"user.*"}, webhook.Types{"user.created", "order.paid"}, 1},
		"a part of a part":                    {webhook.Types{"user.*"}, webhook.Types{"user.email.*"}, 1},
		"nothing that is not wanted":          {webhook.Types{"order.paid"}, webhook.Types{"user.*"}, 0},
		"a prefix ends at a dot":              {nil, webhook.Types{"use.*", "order.pai"}, 0},
		"what begins with a pattern's letter": {nil, webhook.Types{"u"}, 0},
		"several times what is the same":      {webhook.Types{"user.*", "user.created"}, webhook.Types{"user.created", "user.created", "user.*"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newFixture(t)
			x.SetWebhooks(t, false)
			for _, eventType := range []string{"user.created", "user.deleted", "user.email.changed", "order.paid", "order.refund.made"} {
				storagetest.Publish(t, x.Store, x.Owner, eventType)
			}
			x.SetWebhooks(t, true)
			// The current types of the subscription count, not its types at that time.
			if _, err := x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.SubscriptionChange{EventTypes: &test.own}); err != nil {
				t.Fatal(err)
			}
			x.Replays(t, webhook.Replay{EventTypes: test.asked, Only: webhook.OnlyAll}, test.want)
		})
	}
}

func TestReplayOfPeriod(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, storagetest.Options(t, path))
		x := fixtureOf(t, store)
		other, _ := storagetest.Organization(t, store, "other", "growth", access.RoleOwner)
		x.SetWebhooks(t, false)
		times := make([]int64, 9)
		for i := range times {
			time.Sleep(time.Second)
			times[i] = time.Now().UnixMilli()
			x.Publish(t, 1, "user.created")
			storagetest.Publish(t, store, other, "user.created")
			x.Publish(t, 1, "user.created")
		}
		x.SetWebhooks(t, true)
		count := func(since, until int64) int64 {
			n, err := x.CountReplay(t.Context(), webhook.Replay{Since: since, Until: until, Only: webhook.OnlyAll})
			if err != nil {
				t.Fatal(err)
			}
			return n.Total()
		}
		for i, since := range times {
			for j, until := range times[i:] {
				for name, got := range map[string][2]int64{
					"from one to before another":    {count(since, until), int64(2 * j)},
					"from one to another":           {count(since, until+1), int64(2*j + 2)},
					"from after one to another":     {count(since+1, until+1), int64(2 * j)},
					"from one to the present":       {count(since, 0), int64(2 * (len(times) - i))},
					"from after one to the present": {count(since+1, 0), int64(2 * (len(times) - i - 1))},
				} {
					if got[0] != got[1] {
						t.Errorf("%s (%d, %d): %d events, want %d", name, i, i+j, got[0], got[1])
					}
				}
			}
		}
		x.Replays(t, webhook.Replay{Since: times[3], Until: times[5], Only: webhook.OnlyAll}, 4)
	})
}

func TestLongReplay(t *testing.T) {
	t.Parallel()
	const chunk = 250

	for _, n := range []int{chunk - 1, chunk, chunk + 1, 2 * chunk, 2*chunk + 50} {
		t.Run("each delivery is created once, in order", func(t *testing.T) {
			t.Parallel()
			x := newFixture(t)
			want := x.Missed(t, n, "user.created")
			x.Replays(t, everything, int64(n))
			jobs, err := x.Queue.PendingJobs(t.Context(), x.Sub.RowID, 0, n+1, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, job := range jobs {
				got = append(got, job.EventID)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("of %d (-want +got):\n%s", n, d)
			}
		})
	}

	t.Run("a rare event is found", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		x.SetWebhooks(t, false)
		for range 3 {
			x.Publish(t, chunk, "common")
			x.Publish(t, 1, "rare")
		}
		x.SetWebhooks(t, true)
		x.Replays(t, webhook.Replay{EventTypes: webhook.Types{"rare"}, Only: webhook.OnlyAll}, 3)
	})

	t.Run("events that are published meanwhile are not sent twice", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		x.Missed(t, 5*chunk, "user.created")
		var publishing sync.WaitGroup
		var first sync.Once
		x.Queue.Watch(onChange(func() {
			first.Do(func() { publishing.Go(func() { x.Publish(t, chunk, "later") }) })
		}))
		made, err := x.Queue.Replay(t.Context(), x.Actor(), x.Org(), x.Sub.ID, everything)
		publishing.Wait()
		if err != nil || made.Total() != 5*chunk || x.Pending(t) != 6*chunk {
			t.Errorf("%+v made, %d pending, error %v", made, x.Pending(t), err)
		}
		x.Replays(t, everything, 0)
	})

	t.Run("a replay that fills the disk says how much it has made, and the next one continues", func(t *testing.T) {
		t.Parallel()
		x := newOneAttemptFixture(t)
		x.Missed(t, 4*chunk, "user.created")
		// The audit event of the replay has no room either.
		storagetest.Exec(t, x.Store, `CREATE TRIGGER large AFTER INSERT ON audit_events WHEN NEW.type = '`+access.SubscriptionReplayed+`' BEGIN
			INSERT INTO instance (name, value) VALUES ('large', zeroblob(1000000)); END`)
		var pages int
		storagetest.Query(t, x.Path(), &pages, "PRAGMA page_count")
		refusals{x.Store}.alter(t, "PRAGMA max_page_count = "+strconv.Itoa(pages+12)) // of the connection of the writer
		made, err := x.Queue.Replay(t.Context(), x.Actor(), x.Org(), x.Sub.ID, everything)
		f, ok := fault.As(err)
		if n := made.Total(); n == 0 || n == 4*chunk || !ok || f.Code != "replay_unfinished" || !strings.Contains(f.Message, strconv.FormatInt(n, 10)+" deliveries") {
			t.Errorf("%+v made, error %v", made, err)
		}
		refusals{x.Store}.alter(t, "PRAGMA max_page_count = 1000000")
		storagetest.Exec(t, x.Store, "DROP TRIGGER large")
		x.Replays(t, everything, 4*chunk-made.Total())
	})

	t.Run("a canceled replay ends between two steps, and the next one continues", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		x.Missed(t, 2*chunk+500, "user.created")
		ctx, cancel := context.WithCancel(t.Context())
		x.Queue.Watch(onChange(cancel))
		made, err := x.Queue.Replay(ctx, x.Actor(), x.Org(), x.Sub.ID, everything)
		f, ok := fault.As(err)
		if made.Total() != chunk || !ok || f.Kind != fault.Unavailable || f.Code != "replay_unfinished" || !strings.Contains(f.Message, "250 deliveries") ||
			!errors.Is(err, context.Canceled) {
			t.Errorf("%+v made, error %v", made, err)
		}
		if details := x.audited(t); details["complete"] != false || details["deliveries"] != float64(chunk) {
			t.Errorf("audit details %v", details)
		}
		if made, err := x.Queue.Replay(ctx, x.Actor(), x.Org(), x.Sub.ID, everything); made.Total() != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("%+v made under a context that has ended, error %v", made, err)
		}
		x.Replays(t, everything, chunk+500)
	})

	t.Run("two replays at once create each delivery once", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		x.Missed(t, 2*chunk, "user.created")
		var sum int64
		var mu sync.Mutex
		var replays sync.WaitGroup
		for range 4 {
			replays.Go(func() {
				made, err := x.Queue.Replay(t.Context(), x.Actor(), x.Org(), x.Sub.ID, everything)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				sum += made.Total()
				mu.Unlock()
			})
		}
		replays.Wait()
		if sum != 2*chunk || x.Pending(t) != 2*chunk {
			t.Errorf("%d made, %d pending", sum, x.Pending(t))
		}
	})
}

// TestSlicesOfAFilter ends each way of sending again after its first transaction: a filter parses bodies, so it has read few events.
func TestSlicesOfAFilter(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(context.Context, fixture) error{
		"replay": func(ctx context.Context, x fixture) error {
			_, err := x.Queue.Replay(ctx, x.Actor(), x.Org(), x.Sub.ID, only(webhook.OnlyFailed))
			return err
		},
		"recover": func(ctx context.Context, x fixture) error {
			_, err := x.Queue.Recover(ctx, x.Actor(), x.Org(), x.Sub.ID, recovering(1))
			return err
		},
		"recover a list": func(ctx context.Context, x fixture) error {
			_, err := x.Queue.SendListed(ctx, x.Actor(), x.Org(), listed(webhook.AnyExhausted, true))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newOneAttemptFixture(t)
			x.setFilter(t, atLeast(t, 1))
			for i := range 2 * scan.CostlySlice {
				x.amount(t, 1, strconv.Itoa(i))
			}
			x.EndAll(t, false)
			ctx, cancel := context.WithCancel(t.Context())
			x.Queue.Watch(onChange(cancel))
			storagetest.ExpectFault(t, send(ctx, x), fault.Unavailable, "replay_unfinished")
			if n := x.Pending(t); n == 0 || n > scan.CostlySlice {
				t.Errorf("%d are sent at once", n)
			}
			if err := send(t.Context(), x); err != nil || x.Pending(t) != 2*scan.CostlySlice {
				t.Errorf("%d are sent, error %v", x.Pending(t), err)
			}
		})
	}
}

// onChange is called at each announced change.
type onChange func()

func (onChange) BodiesChanged([]int64)             {}
func (w onChange) SubscriptionsChanged(...int64)   { w() }
func (onChange) TakePlace(int64, int64) bool       { return false }
func (onChange) ReturnPlace(int64, int64)          {}
func (w onChange) DeliveriesCreated([]webhook.Job) {}

// audited returns the details of the newest audit event, which must be a replay.
func (x fixture) audited(t *testing.T) map[string]any {
	t.Helper()
	log, err := x.AuditEvents(t.Context(), x.Org(), access.AuditFilter{Limit: 1})
	if err != nil || len(log) != 1 || log[0].Type != access.SubscriptionReplayed || log[0].TargetID != x.Sub.ID || log[0].Name != x.Owner.User.Name {
		t.Fatalf("audit log %+v, error %v", log, err)
	}
	details := map[string]any{}
	if err := json.Unmarshal([]byte(log[0].Details), &details); err != nil {
		t.Fatal(err)
	}
	return details
}

func TestReplayIsAudited(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.Missed(t, 2, "user.created")
	r := webhook.Replay{Since: 86_400_000, Until: time.Now().Add(time.Hour).UnixMilli(), EventTypes: webhook.Types{"user.*", "user.*"}, Only: webhook.OnlyMissed}
	if _, err := x.Queue.Replay(t.Context(), x.Actor(), x.Org(), x.Sub.ID, r); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"since": "1970-01-02T00:00:00.000Z", "until": string(webhook.AppendTime(nil, r.Until)), "event_types": []any{"user.*"},
		"only": "missed", "deliveries": 2.0, "complete": true,
	}
	if d := cmp.Diff(want, x.audited(t)); d != "" {
		t.Errorf("details (-want +got):\n%s", d)
	}
}

func TestReplayIsRefused(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.Missed(t, 1, "user.created")
	other, _ := storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
	refused := func(why string, organization int64, want fault.Kind) {
		t.Helper()
		_, err1 := x.Queue.Replay(t.Context(), x.Actor(), organization, x.Sub.ID, everything)
		_, err2 := x.Queue.Replay(t.Context(), x.Actor(), organization, x.Sub.ID, webhook.Replay{Only: webhook.OnlyAll, DryRun: true})
		if fault.KindOf(err1) != want || fault.KindOf(err2) != want {
			t.Errorf("%s: %v, %v", why, err1, err2)
		}
	}
	refused("to another organization", other.Organization.RowID, fault.NotFound)
	x.SetWebhooks(t, false)
	refused("without the plan", x.Org(), fault.Forbidden)
	if x.Pending(t) != 0 {
		t.Errorf("%d pending", x.Pending(t))
	}
	x.SetWebhooks(t, true)
	if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID); err != nil {
		t.Fatal(err)
	}
	refused("of a removed subscription", x.Org(), fault.NotFound)
}

// TestReplayPlans checks that a replay reads only events of its organization, and finds their deliveries by an index.
func TestReplayPlans(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.Missed(t, 1, "user.created")
	x.Replays(t, webhook.Replay{Since: 1, Until: time.Now().Add(time.Hour).UnixMilli(), Only: webhook.OnlyAll}, 1)
	plans := storagetest.QueryPlans(t, x.Store)
	const lookup = "SEARCH d USING INDEX deliveries_by_event (event_id=? AND subscription_id=?)"
	for part, want := range map[string][]string{
		"json_group_array(looked.id)":     {"SEARCH e USING INDEX events_by_organization (organization_id=? AND rowid>? AND rowid<?)", lookup},
		"CROSS JOIN events e":             {"SEARCH e USING INTEGER PRIMARY KEY (rowid=?)", lookup},
		"FROM events WHERE id >= ? ORDER": {"SEARCH events USING INTEGER PRIMARY KEY (rowid>?)"},
	} {
		found := false
		for text, plan := range plans {
			if !strings.Contains(text, part) {
				continue
			}
			found = true
			for _, step := range want {
				if !slices.Contains(plan, step) {
					t.Errorf("no %s in\n  %s", step, strings.Join(plan, "\n  "))
				}
			}
			for _, step := range plan {
				if storagetest.Grows.MatchString(step) {
					t.Errorf("%s\n  %s", text, strings.Join(plan, "\n  "))
				}
			}
		}
		if !found {
			t.Errorf("no statement has %q", part)
		}
	}
}
