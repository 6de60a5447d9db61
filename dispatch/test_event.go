package dispatch

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/keyhook/keyhook/dispatch/sender"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// testSlot is a test's request for a slot. Tests obey the same limits as deliveries.
type testSlot struct {
	organization int64
	subscription int64
	reply        chan bool // receives one value: whether the slot is granted
	granted      bool      // the scheduler's goroutine owns it
}

func (s *scheduler) queueTest(test *testSlot) {
	if s.stopping {
		test.reply <- false
		return
	}
	l := s.lanes.laneOf(test.subscription, test.organization)
	l.tests.waiting = append(l.tests.waiting, test)
	s.update(l)
}

// takeSlotBack forgets a test and frees its slot. The lane of a test stays in memory at least as long.
func (s *scheduler) takeSlotBack(test *testSlot) {
	l := s.lanes.of[test.subscription]
	if l == nil { // the test was refused at once
		return
	}
	if test.granted {
		s.lanes.countTest(l, -1)
	} else {
		l.tests.waiting = slices.DeleteFunc(l.tests.waiting, func(other *testSlot) bool { return other == test })
	}
	s.update(l)
}

// errStopping refuses a test, because deliveries stop when the server does.
var errStopping = fault.New(fault.Unavailable, "shutting_down", "The server is shutting down; try again later.")

// Test makes a test event and sends it to one subscription at once. The event is the example of eventType in the catalogue; if that is
// empty, it is a webhook_test. It ignores the subscription's health and does not change it. It returns the record of the attempt, whether
// it succeeded or failed. An error means that there is no record. It waits for a slot like a delivery, so Run must be running. It does not
// wait for the rate limit, but takes a token if there is one. Faults: those of the store's BeginTest; Unavailable while the server stops.
func (d *Dispatcher) Test(ctx context.Context, organization int64, subscriptionID, eventType string) (webhook.Attempt, error) {
	row, err := d.store.SubscriptionRow(ctx, organization, subscriptionID)
	if err != nil {
		return webhook.Attempt{}, fmt.Errorf("find subscription: %w", err)
	}
	slot := &testSlot{organization: organization, subscription: row, reply: make(chan bool, 1)}
	returnSlot := sync.OnceFunc(func() { d.post(func(s *scheduler) { s.takeSlotBack(slot) }) })
	defer returnSlot()
	if err := d.waitForSlot(ctx, slot); err != nil {
		return webhook.Attempt{}, err
	}
	// The wait may have been long, so the test event is made only now. The store's work is not cancelled with ctx,
	// because a begun attempt needs its result.
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.options.Timeout+d.options.Grace)
	defer cancel()
	t, job, attempt, err := d.store.BeginTest(finish, organization, subscriptionID, eventType)
	if err != nil {
		return webhook.Attempt{}, fmt.Errorf("begin test: %w", err)
	}
	sent := &sender.Attempt{Target: d.sender.Prepare(t), Job: job, Row: attempt, Epoch: t.Epoch}
	d.sender.Send(finish, sent)
	returnSlot()
	record := func(ctx context.Context) error {
		var settled []webhook.Settled
		err := retryWrite(ctx, func() (err error) { settled, err = d.store.Record(ctx, sent.Result); return err })
		if err == nil {
			d.report(sent, settled[0])
		}
		return err
	}
	if err := record(finish); err != nil {
		d.post(func(s *scheduler) { s.worker.running.Go(func() { _ = record(s.worker.readCtx) }) }) // or it ends at the next start
		return webhook.Attempt{}, fmt.Errorf("record test: %w", err)
	}
	a, err := d.store.Attempt(finish, attempt)
	if err != nil {
		return webhook.Attempt{}, fmt.Errorf("read test: %w", err)
	}
	return a, nil
}

func (d *Dispatcher) waitForSlot(ctx context.Context, slot *testSlot) error {
	d.post(func(s *scheduler) { s.queueTest(slot) })
	select {
	case granted := <-slot.reply:
		if granted {
			return nil
		}
	case <-d.stopped:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return errStopping
}
