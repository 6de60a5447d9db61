package queue_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// gateHealths are all states of a subscription that can close its gate. Each has a last_error, which only a healthy one may lack.
func gateHealths(now int64) []webhook.Health {
	const hour = int64(3_600_000)
	return []webhook.Health{
		{Status: webhook.Healthy},
		{Status: webhook.Failing, ProbeAt: now + hour/2},
		{Status: webhook.Disabled},
		{Status: webhook.Disabled, ProbeAt: now - 1},
		{Status: webhook.Disabled, ProbeAt: now + hour/2},
		{Status: webhook.Disabled, ProbeAt: now + 2*hour},
		{Status: webhook.Disabled, ProbeAt: -1},
		{Status: webhook.Disabled, Paused: true},
	}
}

// gateFixture is a store with one subscription and one pending delivery, whose gate the test sets in the tables.
type gateFixture struct {
	fixture
	job webhook.Job
}

// TestTheGate writes every gate into the tables, and compares the gate in Go with the gate in SQL, and with every place that sends,
// counts or explains.
func TestTheGate(t *testing.T) {
	t.Parallel()
	for _, probedEvery := range []time.Duration{0, time.Hour} {
		t.Run(fmt.Sprint("with probes each ", probedEvery), func(t *testing.T) {
			t.Parallel()
			o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
			o.Policy = webhook.DefaultPolicy()
			o.Policy.ProbeDisabled = probedEvery
			store, _ := storagetest.OpenWith(t, o)
			x := gateFixture{fixture: fixtureOf(t, store)}
			storagetest.Publish(t, store, x.Owner, "user.created")
			x.job = x.Jobs(t)[0]
			for _, held := range []bool{false, true} {
				if held {
					if err := store.Queue.HoldQueue(t.Context(), x.Actor(), "test"); err != nil {
						t.Fatal(err)
					}
				}
				for _, health := range gateHealths(time.Now().UnixMilli()) {
					for bits := range 8 {
						gate := webhook.Gate{Health: health, Webhooks: bits&1 != 0, Deleted: bits&6 != 0, QueueHeld: held, ProbedEvery: probedEvery}
						x.set(t, gate, bits&2 != 0, bits&4 != 0)
						x.compare(t, gate, bits&2 != 0, bits&4 != 0)
					}
				}
			}
		})
	}
}

// set writes a gate, except the hold. Then it lets the writer forget what it remembers of the subscription.
func (x *gateFixture) set(t *testing.T, gate webhook.Gate, deleted, closed bool) {
	t.Helper()
	at := func(yes bool) any {
		if yes {
			return 1
		}
		return nil
	}
	if err := x.Queue.Write(t.Context(), func(t *queue.Tx) error {
		return errors.Join(
			t.Run("UPDATE subscriptions SET status = ?, probe_at = ?, paused = ?, last_error = 'test', deleted_at = ? WHERE id = ?",
				gate.Status, gate.ProbeAt, gate.Paused, at(deleted), x.Sub.RowID),
			t.Run("UPDATE organizations SET closed_at = ?, cleaned_at = ? WHERE id = ?", at(closed), at(closed), x.Org()),
			t.Run("UPDATE plans SET webhooks = ? WHERE name = 'growth'", gate.Webhooks))
	}); err != nil {
		t.Fatal(err)
	}
	undo := errors.New("undo")
	if err := x.Queue.Write(t.Context(), func(t *queue.Tx) error {
		return errors.Join(t.Run("UPDATE plans SET webhooks = webhooks"), undo)
	}); !errors.Is(err, undo) {
		t.Fatal(err)
	}
}

// gateView is what the places say about a gate.
type gateView struct {
	Why, Record, Summary webhook.Block
	Receives             int  // deliveries of a new event
	Shut, Sends, Begins  bool // the target, and Begin
	EventWaits           bool // in the tables
	Backlog              string
}

// compare asks every place.
func (x *gateFixture) compare(t *testing.T, gate webhook.Gate, deleted, closed bool) {
	t.Helper()
	ctx, now := t.Context(), time.Now().UnixMilli()
	want := gateView{Why: gate.Why(), Shut: gate.Shut(), Sends: gate.Sends(now), Begins: gate.Sends(now), Backlog: "closed"}
	unheld := gate
	unheld.QueueHeld = false
	want.EventWaits = unheld.Why() == webhook.NotBlocked
	if want.EventWaits {
		want.Backlog = string(gate.Status)
	}
	if !gate.Deleted {
		want.Record, want.Summary = gate.Why(), gate.Why()
	}
	if gate.Receives() {
		want.Receives = 1
	}

	var got gateView
	if err := x.Queue.Write(ctx, func(t *queue.Tx) error {
		const from = " FROM subscriptions s JOIN organizations o ON o.id = s.organization_id JOIN plans p ON p.id = o.plan_id WHERE s.id = ?"
		return errors.Join(t.Get(&got.Why, "SELECT "+delivery.Why+from, x.Sub.RowID),
			t.Get(&got.EventWaits, "SELECT "+delivery.EventWaits+" FROM events e WHERE e.id = ?", x.job.Event))
	}); err != nil {
		t.Fatal(err)
	}
	if got.Why == webhook.NotBlocked && gate.QueueHeld {
		got.Why = webhook.BlockedByHold
	}
	target := must[webhook.Target](t)(x.Queue.Target(ctx, x.Sub.RowID))
	got.Shut, got.Sends = target.Shut(), target.Sends(now)
	first := must[[]webhook.Job](t)(x.Queue.PendingJobs(ctx, x.Sub.RowID, 0, 1, nil))[0]
	rows := must[[]int64](t)(x.Queue.Begin(ctx, []webhook.Start{{
		Delivery: first.Delivery, Subscription: x.Sub.RowID, Epoch: target.Epoch, Number: 1, Trigger: webhook.ByEvent,
	}}))
	if got.Begins = rows[0] != 0; got.Begins {
		if err := x.Queue.UndoBegin(ctx, rows); err != nil {
			t.Fatal(err)
		}
	}
	backlog := must[webhook.Backlog](t)(x.Survey.Backlog(ctx))
	for name, n := range map[string]webhook.Waiting{"healthy": backlog.Healthy, "failing": backlog.Failing, "closed": backlog.Closed} {
		if n.Deliveries > 0 {
			got.Backlog += name
		}
	}
	if !gate.Deleted {
		got.Record = must[webhook.Subscription](t)(x.History.Subscription(ctx, x.Org(), x.Sub.ID)).Why()
		sum := must[webhook.PendingSummary](t)(x.Survey.PendingSummary(ctx, x.Org()))
		got.Summary = sum.Blocked[0].By
	}
	if !closed { // nobody publishes there
		published, err := x.Queue.PublishEvents(ctx, x.Org(), []webhook.NewEvent{{Type: "user.created", Data: []byte("{}")}})
		if err != nil {
			t.Fatal(err)
		}
		got.Receives = published[0].Deliveries
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%+v, deleted %v, closed %v (-want +got):\n%s", gate, deleted, closed, diff)
	}
}
