package storage_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// recordingObserver is an Observer that records its calls.
type recordingObserver struct {
	mu          sync.Mutex
	commits     int
	writes      int
	took        time.Duration // the shortest
	events      int
	turns       []webhook.Status
	interrupted int
	expired     int
}

func (s *recordingObserver) Committed(writes int, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.commits == 0 || took < s.took {
		s.took = took
	}
	s.commits++
	s.writes += writes
}

func (s *recordingObserver) Published(events int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events += events
}

func (s *recordingObserver) HealthChanged(to webhook.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns = append(s.turns, to)
}

func (s *recordingObserver) Expired(deliveries int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired += deliveries
}

func (s *recordingObserver) Interrupted(attempts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupted += attempts
}

// openObserved creates a fixture in a store with that observer.
func openObserved(t *testing.T, o *recordingObserver) fixture {
	t.Helper()
	options := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	options.Observer = o
	store, _ := storagetest.OpenWith(t, options)
	return fixtureOf(t, store)
}

func TestObserver(t *testing.T) {
	t.Parallel()

	t.Run("each commit is reported with its number of writes", func(t *testing.T) {
		t.Parallel()
		var o recordingObserver
		x := openObserved(t, &o)
		o.mu.Lock()
		commits, writes := o.commits, o.writes
		o.mu.Unlock()
		const publishers = 64
		var wg sync.WaitGroup
		for range publishers {
			wg.Go(func() { storagetest.Publish(t, x.Store, x.Owner, "user.created") })
		}
		wg.Wait()
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.writes-writes != publishers || o.commits-commits < 1 || o.commits-commits > publishers {
			t.Errorf("%d commits of %d writes, for %d publishers", o.commits-commits, o.writes-writes, publishers)
		}
		if o.took <= 0 || o.took > time.Minute {
			t.Errorf("a commit took %s", o.took)
		}
	})

	t.Run("accepted events are counted, repeated ones are not", func(t *testing.T) {
		t.Parallel()
		var o recordingObserver
		x := openObserved(t, &o)
		keyed := func(key string, n int) webhook.NewEvent {
			data := fmt.Appendf(nil, `{"n":%d}`, n)
			return webhook.NewEvent{Type: "user.created", Data: data, IdempotencyKey: key, Digest: sha256.Sum256(data)}
		}
		for range 3 {
			if _, err := x.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{keyed("k", 1), keyed("l", 2)}); err != nil {
				t.Fatal(err)
			}
		}
		storagetest.Publish(t, x.Store, x.Owner, "user.created")
		if _, err := x.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{keyed("k", 2)}); err == nil {
			t.Error("a key that belongs to another event was accepted")
		}
		if o.events != 3 {
			t.Errorf("%d events, want 3", o.events)
		}
	})

	t.Run("each change of a status is reported, whoever made it", func(t *testing.T) {
		t.Parallel()
		var o recordingObserver
		x := openObserved(t, &o)
		yes, no := true, false
		x.Fail(t, 7) // the fifth makes it failing
		job := x.Jobs(t)[0]
		x.End(t, job, x.Begin(t, job), true)
		for _, active := range []*bool{&no, &no, &yes, &yes} {
			if _, err := x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.SubscriptionChange{IsActive: active}); err != nil {
				t.Fatal(err)
			}
		}
		x.Fail(t, 15)
		want := []webhook.Status{webhook.Failing, webhook.Healthy, webhook.Disabled, webhook.Healthy, webhook.Failing, webhook.Disabled}
		if d := cmp.Diff(want, o.turns); d != "" {
			t.Errorf("changes (-want +got):\n%s", d)
		}
	})

	t.Run("the next start reports the interrupted attempts", func(t *testing.T) {
		t.Parallel()
		var o recordingObserver
		options := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
		options.Observer = &o
		store, stop := storagetest.OpenWith(t, options)
		x := fixtureOf(t, store)
		for range 3 {
			storagetest.Publish(t, x.Store, x.Owner, "user.created")
		}
		for _, job := range x.Jobs(t)[:2] {
			x.Begin(t, job)
		}
		stop()
		_, stop = storagetest.OpenWith(t, options)
		stop()
		storagetest.OpenWith(t, options)
		if o.interrupted != 2 {
			t.Errorf("%d attempts, want 2", o.interrupted)
		}
	})
}

func TestBacklog(t *testing.T) {
	t.Parallel()

	t.Run("the backlog is empty if nothing is pending", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		if got, err := x.Survey.Backlog(t.Context()); err != nil || got != (webhook.Backlog{}) {
			t.Errorf("%+v, error %v", got, err)
		}
	})

	t.Run("the backlog counts deliveries and lanes by state, with the oldest due time", func(t *testing.T) {
		t.Parallel()
		ctx, no := t.Context(), false
		x := fixture{storagetest.Customer{Store: storagetest.Open(t)}}
		x.Owner, _ = storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		types := []string{"user.created", "order.paid"} // without audit events
		operator := storagetest.Operator(t, x.Store).Actor("", "")
		waiting := func(want webhook.Backlog) {
			t.Helper()
			got, err := x.Survey.Backlog(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("backlog (-want +got):\n%s", d)
			}
		}
		x.Sub, _ = storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/on", types...)
		off, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/off", types...)
		gone, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/gone", types...)
		storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/user", "user.created")
		first := storagetest.Publish(t, x.Store, x.Owner, "user.created").At
		storagetest.Publish(t, x.Store, x.Owner, "order.paid")
		waiting(webhook.Backlog{Healthy: webhook.Waiting{Lanes: 4, Deliveries: 7}, OldestDue: first})

		if _, err := x.Subscriptions.UpdateSubscription(ctx, x.Actor(), x.Org(), off.ID, webhook.SubscriptionChange{IsActive: &no}); err != nil {
			t.Fatal(err)
		}
		waiting(webhook.Backlog{Healthy: webhook.Waiting{Lanes: 3, Deliveries: 5}, Closed: webhook.Waiting{Lanes: 1, Deliveries: 2}, OldestDue: first})
		if err := x.Subscriptions.DeleteSubscription(ctx, x.Actor(), x.Org(), gone.ID); err != nil {
			t.Fatal(err)
		}
		got, err := x.Survey.Backlog(ctx) // upkeep may have dropped its pending deliveries
		if err != nil || got.Healthy != (webhook.Waiting{Lanes: 2, Deliveries: 3}) || got.Closed.Lanes < 1 || got.Closed.Lanes > 2 {
			t.Errorf("%+v, error %v", got, err)
		}

		other, _ := storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
		y := fixture{storagetest.Customer{Store: x.Store, Owner: other}}
		y.Sub, _ = storagetest.Subscription(t, x.Store, other, "https://example.com/down", types...)
		y.Fail(t, 4)
		job := y.Jobs(t)[1]
		y.End(t, job, y.Begin(t, job), false) // due again at 1000 as the first one is, but the next probe is at 2000
		got, err = x.Survey.Backlog(ctx)
		if err != nil || got.Failing != (webhook.Waiting{Lanes: 1, Deliveries: 4}) || got.OldestDue != 2000 {
			t.Errorf("%+v, error %v", got, err)
		}
		if _, err := x.Directory.UpdateOrganization(ctx, operator, other.Organization.ID, access.OrganizationChange{Plan: new("free")}); err != nil {
			t.Fatal(err)
		}
		got, err = x.Survey.Backlog(ctx)
		if err != nil || got.Failing != (webhook.Waiting{}) || got.Closed.Deliveries < 6 || got.OldestDue != first {
			t.Errorf("%+v, error %v", got, err)
		}
	})

	t.Run("the backlog of a subscription with a pace, or in order, is not late", func(t *testing.T) {
		t.Parallel()
		x := fixture{storagetest.Customer{Store: storagetest.Open(t)}}
		x.Owner, _ = storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
		for _, c := range []webhook.SubscriptionChange{{Ordered: new(true)}, {RateLimitPerSecond: new(new(int64(1)))}} {
			sub, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/", "order.paid")
			must[webhook.Subscription](t)(x.Subscriptions.UpdateSubscription(t.Context(), x.Actor(), x.Org(), sub.ID, c))
		}
		storagetest.Publish(t, x.Store, x.Owner, "order.paid")
		if got := must[webhook.Backlog](t)(x.Survey.Backlog(t.Context())); got != (webhook.Backlog{Healthy: webhook.Waiting{Lanes: 2, Deliveries: 2}}) {
			t.Errorf("%+v", got)
		}
	})

	t.Run("the backlog ends with its context", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := x.Survey.Backlog(ctx); err == nil {
			t.Error("it was read all the same")
		}
	})
}

func TestSizes(t *testing.T) {
	t.Parallel()
	options := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	store, err := storage.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	database, log, err := store.Sizes()
	if err != nil {
		t.Fatal(err)
	}
	for path, size := range map[string]int64{options.Path: database, options.Path + "-wal": log} {
		if info, err := os.Stat(path); err != nil || info.Size() != size || size == 0 {
			t.Errorf("%s: %d bytes, error %v", path, size, err)
		}
	}
}
