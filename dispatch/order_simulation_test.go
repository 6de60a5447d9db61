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
	ordered bool

	mu  sync.Mutex
	log []*orderedRequest
}

// orderedRequest is a request as its receiver saw it.
type orderedRequest struct {
	event     string
	number    int
	succeeded bool
	failed    bool // with another response, or after the timeout; otherwise it was interrupted
}

// note answers a request and notes it.
func (r *orderedReceiver) note(q *http.Request) (*http.Response, error) {
	number, _ := strconv.Atoi(q.Header.Get("X-Service-Attempt"))
	request := &orderedRequest{event: q.Header.Get("X-Service-Event-Id"), number: number}
	r.mu.Lock()
	r.log = append(r.log, request)
	r.mu.Unlock()
	began := time.Now()
	response, err := r.answer(q)
	r.mu.Lock()
	defer r.mu.Unlock()
	request.succeeded = err == nil && response.StatusCode < 300
	request.failed = !request.succeeded && (err == nil || time.Since(began) >= 15*time.Second)
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
	switch {
	case n < 45:
		m.publishSome()
	case n < 60:
		r.simulatedReceiver.mu.Lock()
		r.behaviour = []string{"well", "well", "fails", "hangs", "slow", "flaky"}[m.random.IntN(6)]
		r.simulatedReceiver.mu.Unlock()
	case n < 66:
		m.setActive(m.t, r.Subscription, m.random.IntN(2) == 0)
	case n < 69:
		m.setPlan(m.t, []string{"growth", "free"}[m.random.IntN(2)])
	case n < 72:
		m.setRateLimit(m.t, r.Subscription, []int64{0, 1, 10, 100}[m.random.IntN(4)])
	case n < 77:
		_, _ = m.Queue.Recover(ctx, m.actor(), m.org(), r.ID, webhook.RecoveryRequest{Since: 1, Activate: true}) // refused while the plan has no webhooks
	case n < 80:
		if attempts := m.attempts(m.t, r.Subscription); len(attempts) > 0 {
			_ = m.Queue.Redeliver(ctx, m.actor(), m.org(), r.ID, attempts[m.random.IntN(len(attempts))].ID)
		}
	case n < 83:
		limited, cancel := context.WithTimeout(ctx, time.Duration(m.random.IntN(4000))*time.Millisecond)
		defer cancel()
		_, _ = m.Test(limited, m.org(), r.ID, "")
	case n < 88:
		m.crash()
	case n < 91:
		m.hold(m.t)
		time.Sleep(time.Duration(m.random.IntN(50_000)) * time.Millisecond)
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

// checkOrder checks that every event has arrived, and that no receiver of an ordered subscription got an event before all
// earlier ones had succeeded or failed five times.
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
		done, arrived, next := map[string]bool{}, map[string]bool{}, 0
		for _, q := range r.log {
			for next < len(order) && done[order[next]] {
				next++
			}
			place, isEvent := places[q.event]
			if isEvent && r.ordered && place > next {
				m.t.Fatalf("%s got attempt %d of event %d before event %d was done", r.host, q.number, place, next)
			}
			arrived[q.event] = arrived[q.event] || q.succeeded
			done[q.event] = done[q.event] || q.succeeded || q.failed && q.number >= 5
		}
		for place, event := range order {
			if !arrived[event] {
				m.t.Fatalf("event %d of %d never arrived at %s", place, len(order), r.host)
			}
		}
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
		m.open()
		for i := range 6 {
			r := &orderedReceiver{ordered: m.random.IntN(2) == 0}
			r.owner, r.host, r.behaviour = m.owner, "r"+strconv.Itoa(i)+".example", "well"
			r.Subscription = m.subscribe(t, r.host, r.note)
			m.setOrdered(t, r.Subscription, r.ordered)
			m.receivers = append(m.receivers, r)
		}
		for range 80 {
			m.stepInOrder()
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
