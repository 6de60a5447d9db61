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
	before := x.Read(t)
	if got, err := x.CountRecovery(t.Context(), recovering(since)); err != nil || got != want {
		t.Errorf("counted %+v, want %+v, error %v", got, want, err)
	}
	if d := cmp.Diff(before, x.Read(t)); d != "" {
		t.Errorf("counting has changed the subscription:\n%s", d)
	}
	if got, err := x.Queue.Recover(t.Context(), x.Actor(), x.Org(), x.Sub.ID, recovering(since)); err != nil || got != want {
		t.Errorf("recovered %+v, want %+v, error %v", got, want, err)
	}
	if n := x.Pending(t); n != want.Pending+want.Deliveries {
		t.Errorf("%d are pending, want %d", n, want.Pending+want.Deliveries)
	}
	if got, err := x.Queue.Recover(t.Context(), x.Actor(), x.Org(), x.Sub.ID, recovering(since)); err != nil || got.Deliveries != 0 || got.Pending != want.Pending+want.Deliveries {
		t.Errorf("recovered again: %+v, error %v", got, err)
	}
}

func TestRecover(t *testing.T) {
	t.Parallel()

	t.Run("after an outage, exhausted events are sent again and what waits is sent", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := newOutage(t)
			x.Publish(t, 1, "early")
			x.EndAll(t, false)
			x.EndAll(t, false) // exhausted
			time.Sleep(time.Second)
			x.Publish(t, 1, "well")
			x.EndAll(t, true)
			if since := x.Read(t).FailingSince; since != 0 {
				t.Errorf("failing since %d after a success", since)
			}
			time.Sleep(time.Minute)
			began := time.Now().UnixMilli()
			lost := x.Publish(t, 2, "lost")
			for range 2 {
				for _, job := range x.Jobs(t) {
					if job.EventType == "lost" {
						x.End(t, job, x.Begin(t, job), false)
						time.Sleep(time.Second)
					}
				}
			}
			held := x.Publish(t, 3, "held")
			if sub := x.Read(t); sub.Status != webhook.Disabled || sub.FailingSince != began {
				t.Errorf("%+v, want failing since %d", sub.Health, began)
			}
			waiting := x.Pending(t) // with audit events
			x.recovers(t, 0, webhook.Recovery{Deliveries: 2, Pending: waiting, Since: began})
			if sub := x.Read(t); sub.Status != webhook.Healthy || sub.FailingSince != 0 || sub.LastError != "" {
				t.Errorf("%+v", sub.Health)
			}
			var got []string
			for _, job := range x.Jobs(t) {
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
				x.Publish(t, 1, "a")
				time.Sleep(time.Second)
				x.EndAll(t, false)
				time.Sleep(time.Second)
				ends = append(ends, time.Now().UnixMilli())
				x.EndAll(t, false)
				x.SetActive(t, true)
				x.EndAll(t, true) // the audit events
				time.Sleep(time.Second)
			}
			for i, at := range ends {
				for since, want := range map[int64]int64{at: int64(3 - i), at + 1: int64(2 - i)} {
					if r, err := x.CountRecovery(t.Context(), recovering(since)); err != nil || r.Deliveries != want || r.Since != since {
						t.Errorf("since %d: %+v, want %d deliveries, error %v", since, r, want, err)
					}
				}
			}
		})
	})

	t.Run("tests, events that have arrived, audit events that it may not have, and types that it does not want are left out", func(t *testing.T) {
		t.Parallel()
		x := newOneAttemptFixture(t)
		if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{AuditEvents: new(true)}); err != nil {
			t.Fatal(err)
		}
		x.EndAll(t, true)
		_, job, attempt, err := x.Queue.BeginTest(t.Context(), x.Org(), x.Sub.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		x.End(t, job, attempt, false)
		storagetest.Key(t, x.Store, x.Owner, access.EventsRead) // an audit event
		for _, eventType := range []string{"wanted", "unwanted", "arrived"} {
			x.Publish(t, 1, eventType)
		}
		x.EndAll(t, false)
		x.Replays(t, webhook.Replay{EventTypes: webhook.Types{"arrived"}, Only: webhook.OnlyFailed}, 1)
		x.EndAll(t, true)
		x.Replays(t, webhook.Replay{EventTypes: webhook.Types{"wanted"}, Only: webhook.OnlyFailed}, 1)
		x.EndAll(t, false) // it has ended exhausted twice
		if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{AuditEvents: new(false), EventTypes: &webhook.Types{"wanted", "arrived"}}); err != nil {
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
		x.EndAll(t, true)
		for left := 2*chunk + 1; left > 0; left -= 100 {
			x.Publish(t, min(left, 100), "a")
			x.EndAll(t, false)
		}
		at := x.Read(t).FailingSince
		if at == 0 {
			t.Fatal("it is not failing")
		}
		x.recovers(t, 0, webhook.Recovery{Deliveries: 2*chunk + 1, Since: at})
	})

	t.Run("without an outage, it recovers since the last success, or since the creation", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		x.recovers(t, 0, webhook.Recovery{Since: x.Sub.CreatedAt})
		x.Publish(t, 1, "a")
		x.EndAll(t, true)
		x.recovers(t, 0, webhook.Recovery{Since: *x.Read(t).LastSuccessAt})
	})

	t.Run("audit events can be left out", func(t *testing.T) {
		t.Parallel()
		x := newOneAttemptFixture(t)
		storagetest.Key(t, x.Store, x.Owner, access.EventsRead) // an audit event
		x.Publish(t, 1, "a")
		x.EndAll(t, false)
		for without, want := range map[bool]int64{true: 1, false: 2} {
			r, err := x.CountRecovery(t.Context(), webhook.RecoveryRequest{Since: 1, WithoutAudit: without})
			if err != nil || r.Deliveries != want {
				t.Errorf("without audit events %t: %+v, want %d, error %v", without, r, want, err)
			}
		}
	})

	t.Run("a paused subscription is active again", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		x.SetActive(t, false)
		x.Publish(t, 2, "a")
		x.recovers(t, 0, webhook.Recovery{Pending: 2, Since: x.Sub.CreatedAt})
		if s := x.Read(t).Status; s != webhook.Healthy {
			t.Errorf("it is %s", s)
		}
	})

	t.Run("a pause after failures had disabled it counts as a pause everywhere", func(t *testing.T) {
		t.Parallel()
		o := storagetest.Options(t, t.TempDir()+"/keyhook.db")
		o.Policy = webhook.Policy{MaxAttempts: 2, FailingAfter: 1, DisabledAfter: 2}
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		x.Publish(t, 3, "a")
		for range 2 {
			job := x.Jobs(t)[0]
			x.End(t, job, x.Begin(t, job), false)
		}
		paused := func(want int) {
			t.Helper()
			s := x.Read(t)
			listed := must[access.Page[webhook.Subscription]](t)(x.History.SubscriptionPage(t.Context(), x.Org(), webhook.SubscriptionFilter{Paused: new(true), Limit: 9}))
			waits := must[webhook.PendingSummary](t)(x.Survey.PendingSummary(t.Context(), x.Org()))
			if s.Status != webhook.Disabled || (s.Why() == webhook.BlockedByPause) != (want == 1) || x.Queue.SubscriptionCounts().Paused != int64(want) ||
				len(listed.Rows) != want || waits.Statuses.Paused != int64(want) || waits.Blocked[0].By != s.Why() {
				t.Errorf("want %d paused: %+v, %d listed, counted %+v, %+v", want, s.Health, len(listed.Rows), x.Queue.SubscriptionCounts(), waits)
			}
		}
		paused(0)
		x.SetActive(t, false)
		paused(1)
		for _, recover := range []func() error{
			func() error {
				_, err := x.CountRecovery(t.Context(), webhook.RecoveryRequest{})
				return err
			},
			func() error {
				_, err := x.Queue.Recover(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.RecoveryRequest{})
				return err
			},
		} {
			storagetest.ExpectFault(t, recover(), fault.Conflict, "paused")
		}
		must[webhook.Recovery](t)(x.Queue.Recover(t.Context(), x.Actor(), x.Org(), x.Sub.ID, recovering(0)))
		if h := x.Read(t).Health; h.Status != webhook.Healthy {
			t.Errorf("%+v", h)
		}
	})

	t.Run("it is refused for another organization, without the plan and for a deleted subscription", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		other, _ := storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
		refused := func(why string, organization int64, want fault.Kind) {
			t.Helper()
			_, err1 := x.Queue.Recover(t.Context(), x.Actor(), organization, x.Sub.ID, recovering(0))
			_, err2 := x.Queue.Recover(t.Context(), x.Actor(), organization, x.Sub.ID, webhook.RecoveryRequest{Activate: true, DryRun: true})
			if fault.KindOf(err1) != want || fault.KindOf(err2) != want {
				t.Errorf("%s: %v, %v", why, err1, err2)
			}
		}
		refused("another organization", other.Organization.RowID, fault.NotFound)
		x.SetWebhooks(t, false)
		refused("without the plan", x.Org(), fault.Forbidden)
		x.SetWebhooks(t, true)
		if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID); err != nil {
			t.Fatal(err)
		}
		refused("a deleted subscription", x.Org(), fault.NotFound)
	})
}

// TestNewsOfAnOutage reads the audit events of an outage.
func TestNewsOfAnOutage(t *testing.T) {
	t.Parallel()
	x := newOutage(t)
	x.Fail(t, 4)
	if _, err := x.Queue.Recover(t.Context(), x.Actor(), x.Org(), x.Sub.ID, recovering(0)); err != nil {
		t.Fatal(err)
	}
	x.Fail(t, 2)
	x.EndAll(t, true)
	log, err := x.AuditEvents(t.Context(), x.Org(), access.AuditFilter{Limit: 10})
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
		x.SetActive(t, false)
		var ids []string
		for range 3 {
			ids = append(ids, x.Publish(t, 400, "a")...)
		}
		if n, err := x.Queue.Discard(t.Context(), x.Actor(), x.Org(), x.Sub.ID, 0); err != nil || n != 1200 || x.Pending(t) != 0 {
			t.Errorf("%d dropped, %d pending, error %v", n, x.Pending(t), err)
		}
		if n, err := x.Queue.Discard(t.Context(), x.Actor(), x.Org(), x.Sub.ID, 0); err != nil || n != 0 {
			t.Errorf("%d dropped again, error %v", n, err)
		}
		if got := x.stateOf(t, ids[0]); got != webhook.Dropped {
			t.Errorf("its state is %v", got)
		}
		x.Publish(t, 2, "b")
		x.SetActive(t, true)
		if n := x.Pending(t); n != 2 {
			t.Errorf("%d are pending, want 2", n)
		}
		x.Replays(t, everything, 0)
	})

	t.Run("before selects by the time of the event", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := fixtureOf(t, storagetest.Open(t))
			x.SetActive(t, false)
			x.Publish(t, 600, "old")
			time.Sleep(time.Second)
			at := time.Now().UnixMilli()
			x.Publish(t, 600, "new")
			if n, err := x.Queue.Discard(t.Context(), x.Actor(), x.Org(), x.Sub.ID, at); err != nil || n != 600 || x.Pending(t) != 600 {
				t.Errorf("%d dropped, %d pending, error %v", n, x.Pending(t), err)
			}
			x.SetActive(t, true)
			job := x.Jobs(t)[0]
			if x.End(t, job, x.Begin(t, job), false).DueAt >= at {
				t.Fatal("its next attempt is due later")
			}
			if n, err := x.Queue.Discard(t.Context(), x.Actor(), x.Org(), x.Sub.ID, at); err != nil || n != 0 {
				t.Errorf("%d dropped by the time of their next attempt, error %v", n, err)
			}
		})
	})

	t.Run("an attempt in progress ends, and nothing follows it", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		id := x.Publish(t, 1, "a")[0]
		job := x.Jobs(t)[0]
		attempt := x.Begin(t, job)
		if n, err := x.Queue.Discard(t.Context(), x.Actor(), x.Org(), x.Sub.ID, 0); err != nil || n != 1 || x.Pending(t) != 0 {
			t.Errorf("%d dropped, %d pending, error %v", n, x.Pending(t), err)
		}
		x.End(t, job, attempt, false)
		if got := x.stateOf(t, id); got != webhook.Dropped {
			t.Errorf("its state is %v", got)
		}
	})

	t.Run("before also selects among the attempts in progress", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := fixtureOf(t, storagetest.Open(t))
			ids := x.Publish(t, 1, "old")
			time.Sleep(time.Second)
			at := time.Now().UnixMilli()
			ids = append(ids, x.Publish(t, 1, "new")...)
			jobs := x.Jobs(t)
			attempts := []int64{x.Begin(t, jobs[0]), x.Begin(t, jobs[1])}
			if n, err := x.Queue.Discard(t.Context(), x.Actor(), x.Org(), x.Sub.ID, at); err != nil || n != 1 {
				t.Errorf("%d dropped, error %v", n, err)
			}
			for i, want := range []webhook.DeliveryState{webhook.Dropped, webhook.Pending} {
				x.End(t, jobs[i], attempts[i], false)
				if got := x.stateOf(t, ids[i]); got != want {
					t.Errorf("delivery %d is %v", i+1, got)
				}
			}
		})
	})

	t.Run("a subscription of another organization is not found", func(t *testing.T) {
		t.Parallel()
		x := newFixture(t)
		other, _ := storagetest.Organization(t, x.Store, "other", "growth", access.RoleOwner)
		if _, err := x.Queue.Discard(t.Context(), x.Actor(), other.Organization.RowID, x.Sub.ID, 0); fault.KindOf(err) != fault.NotFound {
			t.Error(err)
		}
	})
}
