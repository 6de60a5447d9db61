package queue_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// probed returns options with one attempt for each delivery. Two failures in a row disable a subscription, which gets a probe each
// minute then.
func probed(t *testing.T, path string) storage.Options {
	t.Helper()
	o := storagetest.Options(t, path)
	o.Policy = webhook.Policy{MaxAttempts: 1, FailingAfter: 1, DisabledAfter: 2, ProbeDisabled: time.Minute}
	return o
}

// newProbed returns a fixture with these options. Upkeep begins its work at the next second.
func newProbed(t *testing.T, path string) (x fixture, stop func()) {
	t.Helper()
	store, stop := storagetest.OpenWith(t, probed(t, path))
	x = fixtureOf(t, store)
	if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{AuditEvents: new(false)}); err != nil {
		t.Fatal(err)
	}
	return x, stop
}

func TestOnlyOneProbeAtATime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		x, _ := newProbed(t, path)
		x.Fail(t, 2)
		since := x.Read(t).DisabledAt
		x.Publish(t, 2, "waits")
		time.Sleep(time.Minute)
		jobs := x.Jobs(t)
		if x.Begin(t, jobs[1]) != 0 {
			t.Error("the second delivery is the probe")
		}
		probe := x.Begin(t, jobs[0])
		if probe == 0 || x.Begin(t, jobs[1]) != 0 {
			t.Errorf("the probe is %d, or a second one began beside it", probe)
		}
		x.End(t, jobs[0], probe, false)
		time.Sleep(time.Minute)
		_, _, test, err := x.Queue.BeginTest(t.Context(), x.Org(), x.Sub.ID, "")
		if err != nil || test == 0 || x.Begin(t, jobs[1]) != 0 {
			t.Errorf("a probe began beside the test %d, error %v", test, err)
		}
		failed := x.Read(t).DisabledAt
		x.SetActive(t, false)
		if d := cmp.Diff([]*int64{since, since}, []*int64{failed, x.Read(t).DisabledAt}); d != "" || since == nil {
			t.Errorf("disabled since, after the failed probe and after a pause (-want +got):\n%s", d)
		}
	})
}

// refuse makes every write fail that matches, such as "INSERT ON deliveries", until allow is called.
func (s refusals) refuse(t *testing.T, statement, when string) {
	t.Helper()
	s.alter(t, "CREATE TRIGGER refusal BEFORE "+statement+" WHEN "+when+" BEGIN SELECT RAISE(ABORT, 'refused by the test'); END")
}

func (s refusals) allow(t *testing.T) {
	t.Helper()
	s.alter(t, "DROP TRIGGER refusal")
}

func (s refusals) alter(t *testing.T, statement string) {
	t.Helper()
	if err := s.Queue.Write(t.Context(), func(tx *queue.Tx) error { return tx.Run(statement) }); err != nil {
		t.Fatal(err)
	}
}

// refusals makes writes of a store fail.
type refusals struct{ *storage.Store }

const sentAgain = "INSERT ON deliveries"

func TestRecoveryAfterAProbe(t *testing.T) {
	t.Parallel()

	t.Run("after an error, it is tried again", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		synctest.Test(t, func(t *testing.T) {
			x, _ := newProbed(t, path)
			refusals{x.Store}.refuse(t, sentAgain, "NEW.cause = 2")
			lost := x.Outage(t)
			time.Sleep(5 * time.Second)
			if n := x.Pending(t); n != 0 {
				t.Fatalf("%d are pending, although no delivery could be created", n)
			}
			refusals{x.Store}.allow(t)
			time.Sleep(2 * time.Second)
			x.WaitAgain(t, lost)
		})
	})

	t.Run("a second outage does not end the wait of the first one", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		synctest.Test(t, func(t *testing.T) {
			x, _ := newProbed(t, path)
			refusals{x.Store}.refuse(t, sentAgain, "NEW.cause = 2")
			lost := x.Outage(t)
			time.Sleep(5 * time.Second)
			lost = append(lost, x.Outage(t)...)
			time.Sleep(5 * time.Second)
			refusals{x.Store}.allow(t)
			time.Sleep(3 * time.Second)
			x.WaitAgain(t, lost)
		})
	})

	t.Run("a second outage that ends during the recovery is recovered, too", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		synctest.Test(t, func(t *testing.T) {
			x, stop := newProbed(t, path)
			// The first recovery has just been written when the probe of the next outage succeeds.
			refusals{x.Store}.alter(t, `CREATE TRIGGER outage AFTER INSERT ON audit_events
				WHEN NEW.type = 'webhook_subscription_recovered' AND instr(NEW.details, '"deliveries":2')
				BEGIN UPDATE subscriptions SET recover_since = recover_since + 1, epoch = epoch + 3; END`)
			x.Outage(t)
			time.Sleep(5 * time.Second)
			refusals{x.Store}.alter(t, "DROP TRIGGER outage")
			stop()
			x.Store, _ = storagetest.OpenWith(t, probed(t, path)) // which looks for marks
			time.Sleep(5 * time.Second)
			var recoveries int
			for _, e := range must[[]access.AuditEvent](t)(x.AuditEvents(t.Context(), x.Org(), access.AuditFilter{Limit: 50, Type: access.SubscriptionRecovered})) {
				if strings.Contains(e.Details, `"deliveries":`) {
					recoveries++
				}
			}
			if recoveries != 2 {
				t.Errorf("%d recoveries, want 2", recoveries)
			}
		})
	})

	t.Run("what a person has paused meanwhile stays paused, and gets its deliveries", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		synctest.Test(t, func(t *testing.T) {
			x, _ := newProbed(t, path)
			lost := x.Outage(t)
			x.SetActive(t, false)
			time.Sleep(3 * time.Second)
			if sub := x.Read(t); !sub.Paused {
				t.Errorf("it is %s", sub.Status)
			}
			x.WaitAgain(t, lost)
		})
	})

	t.Run("many that fail do not stop the others", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		synctest.Test(t, func(t *testing.T) {
			x, _ := newProbed(t, path)
			for range 25 {
				storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/", "a")
			}
			last, _ := storagetest.Subscription(t, x.Store, x.Owner, "https://example.com/", "lost", "probe")
			first := x.Sub
			x.Sub = last
			refusals{x.Store}.refuse(t, "INSERT ON audit_events", fmt.Sprintf(
				"NEW.type = 'webhook_subscription_recovered' AND instr(NEW.details, 'deliveries') AND NEW.target_id <> '%s'", last.ID))
			refusals{x.Store}.alter(t, fmt.Sprintf("UPDATE subscriptions SET recover_since = 1 WHERE id < %d", last.RowID))
			lost := x.Outage(t)
			time.Sleep(10 * time.Second)
			x.WaitAgain(t, lost)
			refusals{x.Store}.allow(t)
			time.Sleep(10 * time.Second)
			x.Sub = first
			if sub := x.Read(t); sub.Status == webhook.Disabled {
				t.Error("the recovery of the last one has changed the first one")
			}
		})
	})
}

// TestRecoveryAfterAProbeKeepsRetryTimes has a delivery wait for a retry at a later time. Its receiver may have asked for that.
func TestRecoveryAfterAProbeKeepsRetryTimes(t *testing.T) {
	t.Parallel()
	o := probed(t, filepath.Join(t.TempDir(), "keyhook.db"))
	o.Policy.MaxAttempts = 2
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		lost := x.Publish(t, 1, "lost")
		x.EndAll(t, false)
		x.EndAll(t, false)
		x.Publish(t, 2, "later")
		time.Sleep(time.Minute)
		later := x.Jobs(t)
		asked := x.Result(t, later[0], x.Begin(t, later[0]), false)
		asked.RetryAt = time.Now().Add(time.Hour).UnixMilli()
		must[[]webhook.Settled](t)(x.Queue.Record(t.Context(), asked))
		time.Sleep(time.Minute)
		x.End(t, later[1], x.Begin(t, later[1]), true)
		time.Sleep(3 * time.Second)
		x.WaitAgain(t, lost)
		for _, job := range x.Jobs(t) {
			if job.EventID == later[0].EventID && job.DueAt != asked.RetryAt {
				t.Errorf("it is due at %d, and not at %d", job.DueAt, asked.RetryAt)
			}
		}
	})
}

// TestALongRecoveryDelaysNothingElse has a recovery wait for a replay of the same organization.
func TestALongRecoveryDelaysNothingElse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		o := probed(t, path)
		o.KeepEvents = time.Hour
		store, _ := storagetest.OpenWith(t, o)
		x := fixtureOf(t, store)
		beside := fixture{storagetest.Customer{Store: store}}
		beside.Owner, _ = storagetest.Organization(t, store, "beside", "growth", access.RoleOwner)
		beside.Sub, _ = storagetest.Subscription(t, store, beside.Owner, "https://example.com/", "lost", "probe")
		old := storagetest.Publish(t, store, x.Owner, "old").ID
		for _, job := range x.Jobs(t) {
			x.End(t, job, x.Begin(t, job), true)
		}
		time.Sleep(59 * time.Minute)
		end, err := x.TakeReplayTurn(t.Context(), x.Org())
		if err != nil {
			t.Fatal(err)
		}
		lost := x.Outage(t)
		lostBeside := beside.Outage(t)
		time.Sleep(3 * time.Second)
		beside.WaitAgain(t, lostBeside)
		time.Sleep(20 * time.Second)
		if _, _, err := x.History.Event(t.Context(), x.Org(), old); fault.KindOf(err) != fault.NotFound {
			t.Errorf("an old event is not deleted: %v", err)
		}
		end()
		time.Sleep(3 * time.Second)
		x.WaitAgain(t, lost)
	})
}
