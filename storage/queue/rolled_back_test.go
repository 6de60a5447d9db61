package queue_test

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// undo runs a write that fails at its end: first in a transaction that is rolled back, then in one where it alone is undone.
func (x fixture) undo(t *testing.T, run func(*queue.Tx) error) {
	t.Helper()
	fails := func(t *queue.Tx) error { return errors.Join(run(t), errRefused) }
	if err := x.WriteWhole(t.Context(), 0, fails); !errors.Is(err, errRefused) {
		t.Fatalf("the write that is rolled back: %v", err)
	}
	if err := x.Queue.Write(t.Context(), fails); !errors.Is(err, errRefused) {
		t.Fatalf("the write that is undone alone: %v", err)
	}
}

func TestTypesOfARolledBackTransactionAreForgotten(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.undo(t, func(t *queue.Tx) error {
		return errors.Join(t.Run("DELETE FROM subscription_patterns"), x.PublishIn(t, x.Org(), "user.created"))
	})
	if p := storagetest.Publish(t, x.Store, x.Owner, "user.created"); p.Deliveries != 1 {
		t.Errorf("%d deliveries, want 1", p.Deliveries)
	}
}

// TestIDOfARolledBackOrganizationIsForgotten undoes a new public id. SQLite uses the row id of an organization that was not created again,
// and the next one must not send the id of another one.
func TestIDOfARolledBackOrganizationIsForgotten(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.undo(t, func(tx *queue.Tx) error {
		err := tx.Run("UPDATE organizations SET public_id = 'org_undone' WHERE id = ?", x.Org())
		if id, read := tx.ReadOrganizationID(x.Org()); id != "org_undone" {
			t.Errorf("the test is wrong: the transaction reads %s, errors %v, %v", id, err, read)
		}
		return err
	})
	if id, err := x.OrganizationID(t.Context(), x.Org()); err != nil || id != x.Owner.Organization.ID {
		t.Errorf("id %s, error %v", id, err)
	}
}

// TestHoldOfARolledBackTransactionIsForgotten undoes a hold after the same transaction has read it.
func TestHoldOfARolledBackTransactionIsForgotten(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	p := &places{free: 9}
	x.Queue.Watch(p)
	x.undo(t, func(t *queue.Tx) error {
		return errors.Join(x.HoldIn(t, "an incident"), x.PublishIn(t, x.Org(), "user.created"))
	})
	if p.taken != 0 {
		t.Fatal("an event took a place while the queue was held")
	}
	storagetest.Publish(t, x.Store, x.Owner, "user.created")
	if p.begun() != 1 {
		t.Errorf("%d attempts have begun, want 1: the queue is not held", p.begun())
	}
}

// TestDisorderOfARolledBackTransactionIsNotedAgain sets the clock back. The first transaction after that is rolled back, so
// the second one has to note that the events are out of order.
func TestDisorderOfARolledBackTransactionIsNotedAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, storagetest.Options(t, path))
		x := fixtureOf(t, store)
		storagetest.Publish(t, store, x.Owner, "user.created")
		if err := x.MoveEvents(t.Context(), 1, 1000, 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		x.undo(t, func(t *queue.Tx) error { return t.Run("DELETE FROM deliveries") })
		var noted int
		if err := x.Queue.Write(t.Context(), func(t *queue.Tx) error {
			return t.Get(&noted, "SELECT count(*) FROM instance WHERE name = 'disorder'")
		}); err != nil || noted != 1 {
			t.Errorf("noted %d times that the events are out of order, error %v", noted, err)
		}
	})
}

// TestHealthOfARolledBackTransactionIsForgotten has the fifth failure of a subscription undone.
func TestHealthOfARolledBackTransactionIsForgotten(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	storagetest.Publish(t, x.Store, x.Owner, "user.created")
	for range 3 {
		job := x.Jobs(t)[0]
		x.End(t, job, x.Begin(t, job), false)
	}
	job := x.Jobs(t)[0]
	r := webhook.Result{
		Attempt: x.Begin(t, job), Delivery: job.Delivery, Subscription: job.Subscription, Epoch: x.Sub.Epoch, Number: job.Number(),
		Trigger: job.Trigger(), RetryAt: 1000, Failure: webhook.Failure{Class: webhook.TimeoutError, Text: "none"},
	}
	for range 3 {
		x.undo(t, func(t *queue.Tx) error { return x.RecordIn(t, r) })
	}
	settled, err := x.Queue.Record(t.Context(), r)
	if err != nil || settled[0].Health.ConsecutiveFailures != 4 || settled[0].Health.Status != webhook.Healthy {
		t.Errorf("settled %+v, error %v", settled, err)
	}
}
