package dispatch_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage/storagetest/seeds"
)

// This file has a model of the queue: a state machine that is small enough to visit all of its states. It runs no code of Keyhook. It
// says what the transactions of the store and the steps of the dispatcher may do. The test visits every interleaving of two events, two
// subscriptions and two crashes, with hold, discard, expiry and recovery at any time, and checks in each that
//
//   - nothing is lost: for each subscription, an acknowledged event is delivered, pending, exhausted, dropped or expired, and nothing
//     else. An attempt in progress counts as pending, and somebody is there to end it;
//   - no request without a record: a request is sent only after the record of its attempt has been committed;
//   - order: a request of an ordered subscription is sent only after all earlier events have ended, and one at a time. What a
//     recovery sends again is outside the order;
//   - no repetition: nothing is sent for which a success is on record, also not after a recovery;
//   - hold: no request is sent while the queue is held;
//   - no standstill: whatever is pending can be sent, once the queue is released.
//
// The first subscription is ordered, the other one is not. The model has no health of subscriptions, no plans, no rate limits, no
// redelivery of single events, and no failing disk. The simulations have these.

const (
	modelEvents        = 2
	modelSubscriptions = 2
	modelAttempts      = 2 // failures that exhaust a delivery
)

// deliveryOnDisk is the committed state of a delivery. A crash does not change it.
type deliveryOnDisk uint8

const (
	absent deliveryOnDisk = iota
	waiting
	inProgress     // the record of an attempt is committed
	inProgressLast // the same, but a discard has come: no attempt follows
	delivered
	exhausted
	dropped
	expired
)

func (d deliveryOnDisk) hasRecord() bool { return d == inProgress || d == inProgressLast }
func (d deliveryOnDisk) hasEnded() bool  { return d >= delivered }

// attemptInMemory is what the process knows about the attempt in progress. A crash erases it.
type attemptInMemory uint8

const (
	nothing attemptInMemory = iota
	recorded
	sent      // the receiver has the request
	succeeded // the response is here, but not on record
	failed
)

// modelDelivery is the delivery of an event to a subscription. A recovery makes a new delivery, which replaces an exhausted one here.
type modelDelivery struct {
	disk     deliveryOnDisk
	memory   attemptInMemory
	attempts uint8 // ended ones, up to the last that the next failure exhausts
	again    bool  // a recovery made it, so it is outside the order of an ordered subscription
	success  bool  // a success was ever on record
}

// queueState is a state of the whole model.
type queueState struct {
	deliveries   [modelSubscriptions][modelEvents]modelDelivery
	committed    uint8 // events, in their order
	acknowledged uint8 // at the worst, an event is acknowledged as soon as it is committed
	held         bool
	crashes      uint8
}

// mistakes are bugs that the model must find.
type mistakes struct {
	acknowledgesFirst, fansOutLater, sendsFirst, forgetsInterrupted, ordersPendingOnly, ignoresRetries, recoversAll, sendsHeld, waitsForExhausted bool
}

// model explores the states.
type model struct {
	mistakes
	crashes uint8                     // at most
	from    map[queueState]queueState // each state that was seen, and the one before it
	queue   []queueState
	now     queueState // the state whose next ones are found
	wrong   string     // what is violated in the state after now
	after   queueState
	known   map[fork][]queueState // for traces: what follows
}

// next notes a possible next state.
func (m *model) next(s queueState) {
	if _, seen := m.from[s]; !seen {
		m.from[s] = m.now
		m.queue = append(m.queue, s)
	}
	if m.wrong == "" {
		if m.wrong = s.violation(); m.wrong != "" {
			m.after = s
		}
	}
}

// violation returns the property of a single state that does not hold.
func (s *queueState) violation() string {
	for i := range s.deliveries {
		onTheWire := 0
		for event, d := range s.deliveries[i] {
			switch {
			case event < int(s.acknowledged) && d.disk == absent:
				return "an acknowledged event is lost"
			case d.disk.hasRecord() && d.memory == nothing:
				return "nobody ends an attempt in progress"
			case d.memory >= sent && !d.disk.hasRecord():
				return "a request has no record"
			}
			if d.memory == sent {
				onTheWire++
			}
		}
		if i == 0 && onTheWire > 1 {
			return "an ordered subscription has two requests at once"
		}
	}
	return ""
}

// explore visits all states, and returns the first property that is violated with the states that lead there.
func (m *model) explore() (wrong string, states int) {
	first := queueState{}
	m.from, m.queue = map[queueState]queueState{first: first}, []queueState{first}
	for len(m.queue) > 0 && m.wrong == "" {
		m.now, m.queue = m.queue[0], m.queue[1:]
		m.publish()
		m.operate()
		m.crash()
		moves := false
		for i := range m.now.deliveries {
			for event := range m.now.deliveries[i] {
				moves = m.attempt(i, event) || moves
			}
		}
		if m.wrong == "" && !moves && !m.now.held && m.now.hasPending() {
			m.wrong, m.after = "a pending delivery is never sent", m.now
		}
	}
	return m.wrong, len(m.from)
}

func (s *queueState) hasPending() bool {
	for i := range s.deliveries {
		for _, d := range s.deliveries[i] {
			if d.disk != absent && !d.disk.hasEnded() {
				return true
			}
		}
	}
	return false
}

// path describes the states that lead to the violation.
func (m *model) path() string {
	states := []string{fmt.Sprintf("%+v", m.after)}
	for s := m.now; ; s = m.from[s] {
		states = append([]string{fmt.Sprintf("%+v", s)}, states...)
		if s == (queueState{}) {
			return strings.Join(states, "\n")
		}
	}
}

// publish commits an event with its deliveries, and acknowledges it.
func (m *model) publish() {
	s := m.now
	if m.acknowledgesFirst && s.acknowledged == s.committed && s.acknowledged < modelEvents {
		s.acknowledged++
		m.next(s)
	}
	if s = m.now; s.committed < modelEvents {
		for i := range s.deliveries {
			if !m.fansOutLater {
				s.deliveries[i][s.committed].disk = waiting
			}
		}
		s.committed++
		s.acknowledged = s.committed
		m.next(s)
	}
}

// attempt takes the next step of a delivery, and reports whether there is one.
func (m *model) attempt(i, event int) bool {
	s := m.now
	d := &s.deliveries[i][event]
	switch {
	case d.disk == waiting && d.memory == nothing:
		if s.held && !m.sendsHeld || !m.mayBegin(i, event) {
			return false
		}
		d.disk, d.memory = inProgress, recorded
		m.next(s)
		if m.sendsFirst {
			s = m.now
			d.memory = sent
			m.next(s)
		}
	case d.memory == recorded && s.held && !m.sendsHeld: // the record is undone
		d.undo()
		m.next(s)
	case d.memory == recorded:
		m.checkRequest(i, event)
		d.memory = sent
		m.next(s)
	case d.memory == sent:
		d.memory = succeeded
		m.next(s)
		d.memory = failed
		m.next(s)
	case d.memory == succeeded || d.memory == failed:
		s.record(i, event)
		m.next(s)
	default:
		return false
	}
	return true
}

// mayBegin is the check of the transaction that records an attempt: in an ordered subscription, nothing before it may be open.
func (m *model) mayBegin(i, event int) bool {
	if i != 0 {
		return true
	}
	for other, d := range m.now.deliveries[i] {
		switch {
		case other == event || d.disk == absent:
		case d.disk.hasRecord() && !m.ordersPendingOnly:
			return false
		case d.disk == waiting && other < event && !d.again && !m.now.deliveries[i][event].again && (d.attempts == 0 || !m.ignoresRetries):
			return false
		case d.disk == exhausted && other < event && m.waitsForExhausted:
			return false
		}
	}
	return true
}

// checkRequest checks what must be true when a request is sent. m.now is the state before.
func (m *model) checkRequest(i, event int) {
	d := m.now.deliveries[i][event]
	switch {
	case m.now.held:
		m.wrong = "a request is sent while the queue is held"
	case d.success:
		m.wrong = "something is sent again although its success is on record"
	}
	for _, earlier := range m.now.deliveries[i][:event] {
		if i == 0 && !d.again && !earlier.again && !earlier.disk.hasEnded() {
			m.wrong = "an event is sent before an earlier one has ended"
		}
	}
	m.after = m.now
}

// record commits the result of an attempt.
func (s *queueState) record(i, event int) {
	d := &s.deliveries[i][event]
	switch {
	case d.memory == succeeded:
		d.disk, d.success = delivered, true
	case d.disk == inProgressLast:
		d.disk = dropped
	case d.attempts == modelAttempts-1:
		d.disk = exhausted
	default:
		d.disk = waiting
		d.attempts++
	}
	d.forget()
}

// forget empties the memory of an attempt, and what no longer matters of a delivery that has ended.
func (d *modelDelivery) forget() {
	if d.memory = nothing; d.disk.hasEnded() {
		*d = modelDelivery{disk: d.disk, success: d.success}
	}
}

// undo ends an attempt without a result.
func (d *modelDelivery) undo() {
	if d.disk == inProgress {
		d.disk = waiting
	} else {
		d.disk = dropped
	}
	d.forget()
}

// operate does what operators and retention do: hold, release, discard, recover, expire.
func (m *model) operate() {
	s := m.now
	s.held = !s.held
	m.next(s)
	for i := range s.deliveries {
		s = m.now
		for event := range s.deliveries[i] {
			s.deliveries[i][event].discard()
		}
		m.next(s)
		s = m.now
		for event := range s.deliveries[i] {
			if d := &s.deliveries[i][event]; d.disk == exhausted || m.recoversAll && d.success {
				*d = modelDelivery{disk: waiting, again: i == 0, success: d.success}
			}
		}
		m.next(s)
	}
	for event := range s.committed {
		s = m.now
		for i := range s.deliveries {
			if d := &s.deliveries[i][event]; d.disk == waiting {
				d.disk = expired
				d.forget()
			}
		}
		m.next(s)
	}
}

// discard drops a delivery now, or after the attempt in progress.
func (d *modelDelivery) discard() {
	switch d.disk {
	case waiting:
		d.disk = dropped
		d.forget()
	case inProgress:
		d.disk, d.attempts = inProgressLast, 0
	}
}

// crash erases the memory. The next start ends the attempts that were in progress.
func (m *model) crash() {
	s := m.now
	if s.crashes == m.crashes {
		return
	}
	s.crashes++
	for i := range s.deliveries {
		for event := range s.deliveries[i] {
			d := &s.deliveries[i][event]
			if d.memory = nothing; d.disk.hasRecord() && !m.forgetsInterrupted {
				d.attempts = min(d.attempts+1, modelAttempts-1) // an interruption does not exhaust a delivery
				d.undo()
			}
		}
	}
	m.next(s)
}

func TestModel(t *testing.T) {
	t.Parallel()

	t.Run("every state has the promised properties", func(t *testing.T) {
		t.Parallel()
		m := model{crashes: 2}
		if seeds.HasRaceDetector() { // it is slow, and here is nothing to detect
			m.crashes = 1
		}
		wrong, states := m.explore()
		t.Logf("%d states", states)
		if wrong != "" {
			t.Errorf("%s:\n%s", wrong, m.path())
		}
	})

	for name, c := range map[string]struct {
		mistakes
		want string
	}{
		"the acknowledgement comes before the commit":      {mistakes{acknowledgesFirst: true}, "an acknowledged event is lost"},
		"the fan-out has a transaction of its own":         {mistakes{fansOutLater: true}, "an acknowledged event is lost"},
		"a request is sent before its attempt is recorded": {mistakes{sendsFirst: true}, "a request has no record"},
		"a restart forgets interrupted attempts":           {mistakes{forgetsInterrupted: true}, "nobody ends an attempt in progress"},
		"the order looks at waiting deliveries only":       {mistakes{ordersPendingOnly: true}, "an event is sent before an earlier one has ended"},
		"the order overlooks deliveries that are retried":  {mistakes{ignoresRetries: true}, "an event is sent before an earlier one has ended"},
		"the order waits for exhausted deliveries":         {mistakes{waitsForExhausted: true}, "a pending delivery is never sent"},
		"a recovery takes events that have arrived since":  {mistakes{recoversAll: true}, "something is sent again although its success is on record"},
		"a hold does not stop attempts":                    {mistakes{sendsHeld: true}, "a request is sent while the queue is held"},
	} {
		t.Run("the model finds that "+name, func(t *testing.T) {
			t.Parallel()
			m := model{mistakes: c.mistakes, crashes: 2}
			if wrong, states := m.explore(); wrong != c.want {
				t.Errorf("%q after %d states, want %q", wrong, states, c.want)
			}
		})
	}
}
