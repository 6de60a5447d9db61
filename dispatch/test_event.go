package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/keyhook/keyhook/storage/webhook"
)

// testSlot is a test's request for a slot. Tests obey the same limits as deliveries.
type testSlot struct {
	organization int64
	subscription int64
	lane         *lane
	granted      bool
	reply        chan bool // receives one value: whether the slot is granted
}

type (
	slotRequested struct{ *testSlot }
	slotReturned  struct{ *testSlot } // after use, or when it is no longer needed
)

func (m slotRequested) apply(s *scheduler) {
	if s.stopping {
		m.reply <- false
		return
	}
	m.lane = s.laneOf(m.subscription, m.organization)
	m.lane.tests = append(m.lane.tests, m.testSlot)
	s.update(m.lane)
}

// grantTest gives a slot to the first test of the lane.
func (s *scheduler) grantTest(l *lane) {
	test := l.tests[0]
	l.tests[0] = nil
	l.tests = l.tests[1:]
	test.granted = true
	test.reply <- true
}

func (m slotReturned) apply(s *scheduler) {
	l := m.lane
	switch {
	case l == nil: // it was refused at once
		return
	case m.granted:
		s.freeSlot(l)
	default:
		for i, test := range l.tests {
			if test == m.testSlot {
				l.tests = append(l.tests[:i], l.tests[i+1:]...)
				break
			}
		}
	}
	s.update(l)
}

var errStopping = errors.New("dispatch: no test is sent because the server is stopping")

// Test makes a test event and sends it to one subscription at once. It ignores the subscription's health and does not
// change it. It returns the record of the attempt, whether it succeeded or failed. An error means that there is no
// record. It waits for a slot like a delivery, so Run must be running. It does not wait for the rate limit, but takes a
// token if there is one. Faults: those of the store's BeginTest.
func (d *Dispatcher) Test(ctx context.Context, organization int64, subscriptionID string) (webhook.Attempt, error) {
	row, err := d.store.SubscriptionRow(ctx, organization, subscriptionID)
	if err != nil {
		return webhook.Attempt{}, fmt.Errorf("find subscription: %w", err)
	}
	slot := &testSlot{organization: organization, subscription: row, reply: make(chan bool, 1)}
	returnSlot := sync.OnceFunc(func() { d.inbox.post(slotReturned{slot}) })
	defer returnSlot()
	if err := d.waitForSlot(ctx, slot); err != nil {
		return webhook.Attempt{}, err
	}
	// The wait may have been long, so the test event is made only now. The store's work is not cancelled with ctx,
	// because a begun attempt needs its result.
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.options.Timeout+d.options.Grace)
	defer cancel()
	t, job, attempt, err := d.store.BeginTest(finish, organization, subscriptionID)
	if err != nil {
		return webhook.Attempt{}, fmt.Errorf("begin test: %w", err)
	}
	sent := d.sender.send(finish, d.sender.prepare(t), job)
	returnSlot()
	r := sent.record(attempt, &job, t.Epoch)
	var settled webhook.Settled
	if err := retryWrite(finish, func() (err error) { settled, err = d.store.Record(finish, r); return err }); err != nil {
		return webhook.Attempt{}, fmt.Errorf("record test: %w", err)
	}
	d.report(&t, &job, r, settled)
	a, err := d.store.Attempt(finish, attempt)
	if err != nil {
		return webhook.Attempt{}, fmt.Errorf("read test: %w", err)
	}
	return a, nil
}

// waitForSlot asks for a slot and waits until it is granted.
func (d *Dispatcher) waitForSlot(ctx context.Context, slot *testSlot) error {
	d.inbox.post(slotRequested{slot})
	var granted bool
	select {
	case granted = <-slot.reply:
	case <-d.stopped:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !granted {
		return errStopping
	}
	return nil
}
