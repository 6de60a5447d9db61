package queue_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// newOutage returns a fixture with two attempts for each delivery, which four failures in a row disable.
func newOutage(t *testing.T) fixture {
	t.Helper()
	o := storagetest.Options(t, t.TempDir()+"/keyhook.db")
	o.Policy = webhook.Policy{MaxAttempts: 2, FailingAfter: 2, DisabledAfter: 4}
	store, _ := storagetest.OpenWith(t, o)
	return fixtureOf(t, store)
}

// recovering is a recovery since a time that also activates what a person has paused.
func recovering(since int64) webhook.RecoveryRequest {
	return webhook.RecoveryRequest{Since: since, Activate: true}
}

// recovers counts a recovery and runs it twice. It expects this recovery, and nothing more the second time.
func (x fixture) recovers(t *testing.T, since int64, want webhook.Recovery) {
	t.Helper()
	before := x.read(t)
	if got, err := x.Queue.CountRecovery(t.Context(), x.org(), x.sub.ID, recovering(since)); err != nil || got != want {
		t.Errorf("counted %+v, want %+v, error %v", got, want, err)
	}
	if d := cmp.Diff(before, x.read(t)); d != "" {
		t.Errorf("counting has changed the subscription:\n%s", d)
	}
	if got, err := x.Queue.Recover(t.Context(), x.actor(), x.org(), x.sub.ID, recovering(since)); err != nil || got != want {
		t.Errorf("recovered %+v, want %+v, error %v", got, want, err)
	}
	if n := x.pending(t); n != want.Pending+want.Deliveries {
		t.Errorf("%d are pending, want %d", n, want.Pending+want.Deliveries)
	}
	if got, err := x.Queue.Recover(t.Context(), x.actor(), x.org(), x.sub.ID, recovering(since)); err != nil || got.Deliveries != 0 || got.Pending != want.Pending+want.Deliveries {
		t.Errorf("recovered again: %+v, error %v", got, err)
	}
}

func TestRecover(t *testing.T) {
	t.Parallel()

	t.Run("after an outage, exhausted events are sent again and what waits is sent", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := newOutage(t)
			x.publish(t, 1, "early")
			x.endAll(t, false)
			x.endAll(t, false) // exhausted
			time.Sleep(time.Second)
			x.publish(t, 1, "well")
			x.endAll(t, true)
			if since := x.read(t).FailingSince; since != 0 {
				t.Errorf("failing since %d after a success", since)
			}
			time.Sleep(time.Minute)
			began := time.Now().UnixMilli()
			lost := x.publish(t, 2, "lost")
			for range 2 {
				for _, job := range x.jobs(t) {
					if job.EventType == "lost" {
						x.end(t, job, x.begin(t, job), false)
						time.Sleep(time.Second)
					}
				}
			}
			held := x.publish(t, 3, "held")
			if sub := x.read(t); sub.Status != webhook.Disabled || sub.FailingSince != began {
				t.Errorf("%+v, want failing since %d", sub.Health, began)
			}
			waiting := x.pending(t) // with audit events
			x.recovers(t, 0, webhook.Recovery{Deliveries: 2, Pending: waiting, Since: began})
			if sub := x.read(t); sub.Status != webhook.Healthy || sub.FailingSince != 0 || sub.LastError != "" {
				t.Errorf("%+v", sub.Health)
			}
			var got []string
			for _, job := range x.jobs(t) {
				if job.EventType == "lost" || job.EventType == "held" {
					got = append(got, job.EventID)
				}
			}
			if d := cmp.Diff(append(held, lost...), got); d != "" {
				t.Errorf("order of sending (-want +got):\n%s", d)
			}
		})
	})

	t.Run("since selects by the end of the delivery", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := newOutage(t)
			var ends []int64
			for range 3 {
				x.publish(t, 1, "a")
				time.Sleep(time.Second)
				x.endAll(t, false)
				time.Sleep(time.Second)
				ends = append(ends, time.Now().UnixMilli())
				x.endAll(t, false)
				x.setActive(t, true)
				x.endAll(t, true) // the audit events
				time.Sleep(time.Second)
			}
			for i, at := range ends {
				for since, want := range map[int64]int64{at: int64(3 - i), at + 1: int64(2 - i)} {
					if r, err := x.Queue.CountRecovery(t.Context(), x.org(), x.sub.ID, recovering(since)); err != nil || r.Deliveries != want || r.Since != since {
						t.Errorf("since %d: %+v, want %d deliveries, error %v", since, r, want, err)
					}
				}
			}
		})
	})

	t.Run("tests, events that have arrived, audit events that it may not have, and types that it does not want are left out", func(t *testing.T) {
		t.Parallel()
		x := newOneAttemptFixture(t)
		if err := x.change(t, x.actor(), webhook.SubscriptionChange{AuditEvents: new(true)}); err != nil {
			t.Fatal(err)
		}
		x.endAll(t, true)
		_, job, attempt, err := x.Queue.BeginTest(t.Context(), x.org(), x.sub.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		x.end(t, job, attempt, false)
		storagetest.Key(t, x.Store, x.owner, access.EventsRead) // an audit event
		for _, eventType := range []string{"wanted", "unwanted", "arrived"} {
			x.publish(t, 1, eventType)
		}
		x.endAll(t, false)
		x.replays(t, webhook.Replay{EventTypes: webhook.Types{"arrived"}, Only: webhook.OnlyFailed}, 1)
		x.endAll(t, true)
		x.replays(t, webhook.Replay{EventTypes: webhook.Types{"wanted"}, Only: webhook.OnlyFailed}, 1)
		x.endAll(t, false) // it has ended exhausted twice
		if err := x.change(t, x.actor(), webhook.SubscriptionChange{AuditEvents: new(false), EventTypes: &webhook.Types{"wanted", "arrived"}}); err != nil {
			t.Fatal(err)
		}
		x.recovers(t, 1, webhook.Recovery{Deliveries: 1, Since: 1})
	})
}

func TestRecoverWithoutAnOutage(t *testing.T) {
	t.Parallel()

	t.Run("many are recovered in chunks", func(t *testing.T) {
		t.Parallel()
		const chunk = 250
		x := newOneAttemptFixture(t)
		x.endAll(t, true)
		for left := 2*chunk + 1; left > 0; left -= 100 {
			x.publish(t, min(left, 100), "a")
			x.endAll(t, false)
		}
		at := x.read(t).FailingSince
		if at == 0 {
			t.Fatal("it is not failing")
		}
		x.recovers(t, 0, webhook.Recovery{Deliveries: 2*chunk + 1, Since: at})
	})

	t.Run("without an outage, it recovers since the last success, or since the creation", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		x.recovers(t, 0, webhook.Recovery{Since: x.sub.CreatedAt})
		x.publish(t, 1, "a")
		x.endAll(t, true)
		x.recovers(t, 0, webhook.Recovery{Since: *x.read(t).LastSuccessAt})
	})

	t.Run("a paused subscription is active again", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		x.setActive(t, false)
		x.publish(t, 2, "a")
		x.recovers(t, 0, webhook.Recovery{Pending: 2, Since: x.sub.CreatedAt})
		if s := x.read(t).Status; s != webhook.Healthy {
			t.Errorf("it is %s", s)
		}
	})

	t.Run("a pause after failures had disabled it counts as a pause everywhere", func(t *testing.T) {
		t.Parallel()
		o := storagetest.Options(t, t.TempDir()+"/keyhook.db")
		o.Policy = webhook.Policy{MaxAttempts: 2, FailingAfter: 1, DisabledAfter: 2}
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		x.publish(t, 3, "a")
		for range 2 {
			job := x.jobs(t)[0]
			x.end(t, job, x.begin(t, job), false)
		}
		paused := func(want int) {
			t.Helper()
			s := x.read(t)
			listed := must[webhook.SubscriptionPage](t)(x.History.SubscriptionPage(t.Context(), x.org(), webhook.SubscriptionFilter{Paused: new(true), Limit: 9}))
			waits := must[webhook.PendingSummary](t)(x.Survey.PendingSummary(t.Context(), x.org()))
			if s.Status != webhook.Disabled || (s.Why() == webhook.BlockedByPause) != (want == 1) || x.Queue.SubscriptionCounts().Paused != int64(want) ||
				len(listed.Subscriptions) != want || waits.Statuses.Paused != int64(want) || waits.Blocked[0].By != s.Why() {
				t.Errorf("want %d paused: %+v, %d listed, counted %+v, %+v", want, s.Health, len(listed.Subscriptions), x.Queue.SubscriptionCounts(), waits)
			}
		}
		paused(0)
		x.setActive(t, false)
		paused(1)
		for _, recover := range []func() error{
			func() error {
				_, err := x.Queue.CountRecovery(t.Context(), x.org(), x.sub.ID, webhook.RecoveryRequest{})
				return err
			},
			func() error {
				_, err := x.Queue.Recover(t.Context(), x.actor(), x.org(), x.sub.ID, webhook.RecoveryRequest{})
				return err
			},
		} {
			storagetest.ExpectFault(t, recover(), fault.Conflict, "paused")
		}
		must[webhook.Recovery](t)(x.Queue.Recover(t.Context(), x.actor(), x.org(), x.sub.ID, recovering(0)))
		if h := x.read(t).Health; h.Status != webhook.Healthy {
			t.Errorf("%+v", h)
		}
	})

	t.Run("it is refused for another organization, without the plan and for a deleted subscription", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		other, _ := storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
		refused := func(why string, organization int64, want fault.Kind) {
			t.Helper()
			_, err1 := x.Queue.Recover(t.Context(), x.actor(), organization, x.sub.ID, recovering(0))
			_, err2 := x.Queue.CountRecovery(t.Context(), organization, x.sub.ID, recovering(0))
			if fault.KindOf(err1) != want || fault.KindOf(err2) != want {
				t.Errorf("%s: %v, %v", why, err1, err2)
			}
		}
		refused("another organization", other.Organization.RowID, fault.NotFound)
		x.setWebhooks(t, false)
		refused("without the plan", x.org(), fault.Forbidden)
		x.setWebhooks(t, true)
		if err := x.Subscriptions.DeleteSubscription(t.Context(), x.actor(), x.org(), x.sub.ID); err != nil {
			t.Fatal(err)
		}
		refused("a deleted subscription", x.org(), fault.NotFound)
	})
}

// TestNewsOfAnOutage reads the audit events of an outage.
func TestNewsOfAnOutage(t *testing.T) {
	t.Parallel()
	x := newOutage(t)
	x.fail(t, 4)
	if _, err := x.Queue.Recover(t.Context(), x.actor(), x.org(), x.sub.ID, recovering(0)); err != nil {
		t.Fatal(err)
	}
	x.fail(t, 2)
	x.endAll(t, true)
	log, err := x.AuditEvents(t.Context(), x.org(), access.AuditFilter{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, line := range slices.Backward(log) {
		if !access.HealthNews(line.Type) {
			continue
		}
		got = append(got, line.Type)
		if !strings.Contains(line.Details, `"url_host":"`) {
			t.Errorf("%s does not say the host: %s", line.Type, line.Details)
		}
		bad := line.Type != access.SubscriptionRecovered
		if bad != strings.Contains(line.Details, `"mend":"recover"`) || bad != strings.Contains(line.Details, "failing_since") {
			t.Errorf("%s says %s", line.Type, line.Details)
		}
	}
	want := []string{access.SubscriptionFailing, access.SubscriptionDisabled, access.SubscriptionRecovered, access.SubscriptionFailing, access.SubscriptionRecovered}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("audit events (-want +got):\n%s", d)
	}
}

func TestDiscard(t *testing.T) {
	t.Parallel()

	t.Run("pending deliveries are dropped, and later ones are not", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		x.setActive(t, false)
		var ids []string
		for range 3 {
			ids = append(ids, x.publish(t, 400, "a")...)
		}
		if n, err := x.Queue.Discard(t.Context(), x.actor(), x.org(), x.sub.ID, 0); err != nil || n != 1200 || x.pending(t) != 0 {
			t.Errorf("%d dropped, %d pending, error %v", n, x.pending(t), err)
		}
		if n, err := x.Queue.Discard(t.Context(), x.actor(), x.org(), x.sub.ID, 0); err != nil || n != 0 {
			t.Errorf("%d dropped again, error %v", n, err)
		}
		if got := x.stateOf(t, ids[0]); got != webhook.Dropped {
			t.Errorf("its state is %v", got)
		}
		x.publish(t, 2, "b")
		x.setActive(t, true)
		if n := x.pending(t); n != 2 {
			t.Errorf("%d are pending, want 2", n)
		}
		x.replays(t, everything, 0)
	})

	t.Run("before selects by the time of the event", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := fixtureOf(t, storagetest.Open(t))
			x.setActive(t, false)
			x.publish(t, 600, "old")
			time.Sleep(time.Second)
			at := time.Now().UnixMilli()
			x.publish(t, 600, "new")
			if n, err := x.Queue.Discard(t.Context(), x.actor(), x.org(), x.sub.ID, at); err != nil || n != 600 || x.pending(t) != 600 {
				t.Errorf("%d dropped, %d pending, error %v", n, x.pending(t), err)
			}
		})
	})

	t.Run("an attempt in progress ends, and nothing follows it", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		id := x.publish(t, 1, "a")[0]
		job := x.jobs(t)[0]
		attempt := x.begin(t, job)
		if n, err := x.Queue.Discard(t.Context(), x.actor(), x.org(), x.sub.ID, 0); err != nil || n != 1 || x.pending(t) != 0 {
			t.Errorf("%d dropped, %d pending, error %v", n, x.pending(t), err)
		}
		x.end(t, job, attempt, false)
		if got := x.stateOf(t, id); got != webhook.Dropped {
			t.Errorf("its state is %v", got)
		}
	})

	t.Run("a subscription of another organization is not found", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		other, _ := storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
		if _, err := x.Queue.Discard(t.Context(), x.actor(), other.Organization.RowID, x.sub.ID, 0); fault.KindOf(err) != fault.NotFound {
			t.Error(err)
		}
	})
}
