package dispatch_test

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// orderSimulation makes random changes around ordered and other subscriptions. Then it repairs everything, recovers what ended
// exhausted, and checks the order that each receiver saw.
type orderSimulation struct {
	*simulation
	receivers []*orderedReceiver
	published []string
}

// orderedReceiver is a receiver that notes its requests. Half of them belong to ordered subscriptions.
type orderedReceiver struct {
	simulatedReceiver
	ordered     bool
	redelivered map[string]bool // events
	recovered   []int64         // when, in milliseconds

	mu  sync.Mutex
	log []*orderedRequest
}

// orderedRequest is a request as its receiver saw it, and its record.
type orderedRequest struct {
	event     string
	number    int
	at        int64
	succeeded bool
	delivery  int64
	place     int  // of the event in the order of publication
	inOrder   bool // neither a test nor a redelivery
}

// note answers a request and notes it.
func (r *orderedReceiver) note(q *http.Request) (*http.Response, error) {
	number, _ := strconv.Atoi(q.Header.Get("X-Service-Attempt"))
	request := &orderedRequest{event: q.Header.Get("X-Service-Event-Id"), number: number, at: time.Now().UnixMilli()}
	r.mu.Lock()
	r.log = append(r.log, request)
	r.mu.Unlock()
	response, err := r.answer(q)
	r.mu.Lock()
	defer r.mu.Unlock()
	request.succeeded = err == nil && response.StatusCode < 300
	return response, err
}

func (m *orderSimulation) publishSome() {
	var all sync.WaitGroup
	var mu sync.Mutex
	gate := make(chan struct{}) // until all events wait, so that they share a transaction
	all.Go(func() {
		if err := m.File.Write(context.Background(), sqlite.Work{}, func(*sqlite.Tx) error { <-gate; return nil }); err != nil {
			m.t.Error(err)
		}
	})
	synctest.Wait()
	for range 1 + m.random.IntN(4) {
		events := make([]webhook.NewEvent, 1+m.random.IntN(4)*m.random.IntN(4))
		for i := range events {
			events[i] = webhook.NewEvent{Type: "order.paid", Data: []byte(`{}`)}
		}
		all.Go(func() {
			published, err := m.Queue.PublishEvents(context.Background(), m.org(), events)
			if err != nil {
				m.t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, p := range published {
				if p.Deliveries > 0 {
					m.published = append(m.published, p.ID)
				}
			}
		})
		synctest.Wait()
	}
	close(gate)
	all.Wait()
}

// crash stops everything without the results of the attempts in progress.
func (m *orderSimulation) crash() {
	m.faults.fail(true, "Record", "Release")
	time.Sleep(time.Duration(m.random.IntN(2)) * time.Millisecond)
	m.stop()
	m.close()
	m.faults.fail(false, "Record", "Release")
	m.open()
}

func (m *orderSimulation) stepInOrder() {
	ctx := context.Background()
	r := m.receivers[m.random.IntN(len(m.receivers))]
	m.owner = r.owner
	n := m.random.IntN(100)
	m.faults.trace.note("step %d %s", n, r.host)
	m.checkProbe(r.Subscription, r.host)
	switch {
	case n < 45:
		m.publishSome()
	case n < 60:
		r.simulatedReceiver.mu.Lock()
		r.behaviour = []string{"well", "well", "fails", "hangs", "slow", "flaky"}[m.random.IntN(6)]
		r.simulatedReceiver.mu.Unlock()
		m.checkProbe(r.Subscription, r.host)
	case n < 66:
		on := m.random.IntN(2) == 0
		if m.setActive(m.t, r.Subscription, on); !on {
			m.silent("although it is off", time.Duration(m.random.IntN(4000))*time.Millisecond, r.host)
		}
	case n < 69:
		plan := []string{"growth", "free"}[m.random.IntN(2)]
		if m.setPlan(m.t, plan); plan == "free" {
			m.silent("although its plan has no webhooks", time.Minute, r.host)
		}
	case n < 72:
		m.limitRate(r.Subscription, r.host, []int64{0, 1, 10, 100}[m.random.IntN(4)])
	case n < 77:
		r.recovered = append(r.recovered, time.Now().UnixMilli())
		_, _ = m.Queue.Recover(ctx, m.actor(), m.org(), r.ID, webhook.RecoveryRequest{Since: 1, Activate: true}) // refused while the plan has no webhooks
	case n < 80:
		if attempts := m.attempts(m.t, r.Subscription); len(attempts) > 0 {
			again := attempts[m.random.IntN(len(attempts))]
			_ = m.Queue.Redeliver(ctx, m.actor(), m.org(), r.ID, again.ID)
			r.redelivered[again.EventID] = true
		}
	case n < 83:
		limited, cancel := context.WithTimeout(ctx, time.Duration(m.random.IntN(4000))*time.Millisecond)
		defer cancel()
		_, _ = m.Test(limited, m.org(), r.ID, "")
	case n < 88:
		m.crash()
	case n < 91:
		m.hold(m.t)
		var hosts []string
		for _, r := range m.receivers {
			hosts = append(hosts, r.host)
		}
		m.silent("although the queue is held", time.Duration(m.random.IntN(50_000))*time.Millisecond, hosts...)
		m.release(m.t)
	case n < 97:
		method := []string{"Begin", "Record", "Release", "Target", "OrderedJobs", "Lanes"}[m.random.IntN(6)]
		m.faults.fail(true, method)
		time.Sleep(time.Duration(m.random.IntN(20_000)) * time.Millisecond)
		m.faults.fail(false, method)
	default:
		m.stop()
		m.close()
		m.open()
	}
	time.Sleep(time.Duration(m.random.ExpFloat64() * 3 * float64(time.Second)))
}

// repairInOrder makes everything work, and sends again what ended exhausted.
func (m *orderSimulation) repairInOrder() {
	m.owner = m.receivers[0].owner
	m.setPlan(m.t, "growth")
	synctest.Wait()
	for _, r := range m.receivers {
		r.simulatedReceiver.mu.Lock()
		r.behaviour = "well"
		r.simulatedReceiver.mu.Unlock()
		m.setRateLimit(m.t, r.Subscription, 0)
		synctest.Wait()
		m.setActive(m.t, r.Subscription, true)
		synctest.Wait()
	}
	time.Sleep(12 * time.Minute) // no retry is further away
	for _, r := range m.receivers {
		if _, err := m.Queue.Recover(context.Background(), m.actor(), m.org(), r.ID, webhook.RecoveryRequest{Since: 1, Activate: true}); err != nil {
			m.t.Error(err)
		}
		synctest.Wait()
	}
	time.Sleep(12 * time.Minute)
}

// checkOrder checks that every event has arrived, that each request has a record which agrees with its response, and the order of the
// requests to ordered subscriptions.
func (m *orderSimulation) checkOrder() {
	order, places := m.inOrderOfPublication()
	for _, r := range m.receivers {
		if waiting := m.health(m.t, r.Subscription).PendingDeliveries; waiting != 0 {
			m.t.Errorf("%d deliveries to %s are pending", waiting, r.host)
		}
		if n, _ := m.peak(r.host); r.ordered && n > 1 || n > 4 {
			m.t.Errorf("%d requests to %s at once, ordered: %v", n, r.host, r.ordered)
		}
		m.faults.trace.records(m.t, m.fixture, r.host, r.Subscription)
		m.findRecords(r, places)
		checkRetries(m.t, m.attempts(m.t, r.Subscription), r.recovered...)
		if r.ordered {
			r.checkOrder(m.t)
		}
		if m.file.Policy.MaxAttempts == modelAttempts {
			once := slices.DeleteFunc(slices.Clone(order), func(event string) bool { return r.redelivered[event] }) // the model has no redeliveries
			m.faults.trace.checkModel(m.t, r.host, map[bool]int{true: 0, false: 1}[r.ordered], once)
		}
		arrived := map[string]bool{}
		for _, q := range r.log {
			arrived[q.event] = arrived[q.event] || q.succeeded
		}
		for place, event := range order {
			if !arrived[event] {
				m.t.Fatalf("event %d of %d never arrived at %s", place, len(order), r.host)
			}
		}
	}
}

// findRecords finds the record of each request: the latest one that began before it and has no other. The record says which delivery
// was sent. After a success on record, only a redelivery sends an event again.
func (m *orderSimulation) findRecords(r *orderedReceiver, places map[string]int) {
	records, first, used, arrived := map[string][]webhook.Attempt{}, map[string]int64{}, map[int64]bool{}, map[string]bool{}
	for _, a := range m.attempts(m.t, r.Subscription) {
		what := a.EventID + " " + strconv.Itoa(a.Number)
		records[what] = append(records[what], a)
		if row, ok := first[a.EventID]; !ok || a.RowID>>8 < row {
			first[a.EventID] = a.RowID >> 8
		}
	}
	for _, q := range r.log {
		var record webhook.Attempt
		for _, a := range records[q.event+" "+strconv.Itoa(q.number)] {
			if a.AttemptedAt <= q.at && !used[a.RowID] {
				record = a
			}
		}
		agrees := record.Outcome == webhook.Interrupted || (record.Outcome == webhook.Succeeded) == q.succeeded
		if record.RowID == 0 || !agrees {
			m.t.Errorf("attempt %d of %s to %s succeeded: %v, but its record is %+v", q.number, q.event, r.host, q.succeeded, record)
		}
		if arrived[q.event] && !r.redelivered[q.event] {
			m.t.Errorf("attempt %d of %s to %s comes after a success", q.number, q.event, r.host)
		}
		used[record.RowID], arrived[q.event] = true, arrived[q.event] || record.Outcome == webhook.Succeeded
		place, isEvent := places[q.event]
		q.delivery, q.place = record.RowID>>8, place
		q.inOrder = isEvent && (q.delivery == first[q.event] || !r.redelivered[q.event])
	}
}

// checkOrder checks that no event was sent before an earlier one had ended: after that, nothing more is sent of the earlier one. Only
// a recovery may send an earlier event later, by a delivery that is newer. Once that has begun, the order holds for it too.
func (r *orderedReceiver) checkOrder(t *testing.T) {
	begun := map[int64]bool{}
	for i, q := range r.log {
		for _, later := range r.log[i+1:] {
			if q.inOrder && later.inOrder && later.place < q.place && (later.delivery < q.delivery || begun[later.delivery]) {
				t.Fatalf("%s got attempt %d of event %d before attempt %d of event %d", r.host, q.number, q.place, later.number, later.place)
			}
		}
		begun[q.delivery] = true
	}
}

// inOrderOfPublication returns the events in the order of publication, and the place of each.
func (m *orderSimulation) inOrderOfPublication() (order []string, places map[string]int) {
	rows := map[string]int64{}
	for _, event := range m.published {
		facts, err := m.History.EventFacts(context.Background(), m.org(), event)
		if err != nil {
			m.t.Fatal(err)
		}
		rows[event] = facts.RowID
	}
	order = slices.SortedFunc(maps.Keys(rows), func(a, b string) int { return cmp.Compare(rows[a], rows[b]) })
	places = map[string]int{}
	for i, event := range order {
		places[event] = i
	}
	return order, places
}

func TestOrderSimulation(t *testing.T) {
	simulate(t, func(t *testing.T, seed int, r *trace) {
		m := &orderSimulation{simulation: newSimulation(t, seed, 2, r)}
		if seed%2 == 1 {
			m.file.Policy.ProbeDisabled = 30 * time.Second
		}
		if seed%4 >= 2 {
			m.file.Policy.MaxAttempts = modelAttempts
		}
		m.open()
		for i := range 6 {
			r := &orderedReceiver{ordered: m.random.IntN(2) == 0, redelivered: map[string]bool{}}
			r.owner, r.host, r.behaviour = m.owner, "r"+strconv.Itoa(i)+".example", "well"
			r.Subscription = m.subscribe(t, r.host, r.note)
			m.setOrdered(t, r.Subscription, r.ordered)
			m.receivers = append(m.receivers, r)
		}
		for range 80 {
			m.stepInOrder()
		}
		for _, r := range m.receivers {
			m.checkHealth(r.Subscription)
		}
		m.repairInOrder()
		m.checkOrder()
	})
}

// setOrdered sets whether a subscription is ordered.
func (x *fixture) setOrdered(tb testing.TB, sub webhook.Subscription, ordered bool) {
	tb.Helper()
	if _, err := x.Subscriptions.UpdateSubscription(context.Background(), x.actor(), x.org(), sub.ID, webhook.SubscriptionChange{Ordered: &ordered}); err != nil {
		tb.Fatal(err)
	}
}
