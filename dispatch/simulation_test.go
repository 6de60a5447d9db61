package dispatch_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/storagetest/seeds"
	"github.com/keyhook/keyhook/storage/webhook"
)

// simulation makes random changes as owners, receivers, operators and disks would. Then it repairs everything and
// checks what must always be true.
type simulation struct {
	t      *testing.T
	random *rand.Rand
	file   storage.Options
	faults *faults
	*fixture
	other  access.Principal // of another organization
	subs   []*simulatedReceiver
	close  func()
	jitter func() float64 // of every dispatcher
}

// simulatedReceiver is a subscription and its receiver.
type simulatedReceiver struct {
	webhook.Subscription
	owner   access.Principal
	host    string
	deleted bool
	dropped bool // some of its deliveries were discarded
	secrets []usedSecret

	mu        sync.Mutex
	behaviour string
}

func (s *simulatedReceiver) answer(q *http.Request) (*http.Response, error) {
	s.mu.Lock()
	mood := s.behaviour
	s.mu.Unlock()
	switch mood {
	case "fails":
		return newResponse(500, ""), nil
	case "hangs":
		return hang(q)
	case "slow":
		return respondAfter(3*time.Second, respond(200))(q)
	case "flaky":
		if time.Now().UnixMilli()%3 == 0 {
			return newResponse(503, "", "Retry-After", "40"), nil
		}
		return respondAfter(7*time.Millisecond, respond(202))(q)
	}
	return newResponse(200, ""), nil
}

// newSimulation makes a simulation that is not open yet. stream is another one for each test.
func newSimulation(t *testing.T, seed int, stream uint64, r *trace) *simulation {
	m := &simulation{t: t, random: rand.New(rand.NewPCG(uint64(seed), stream)), jitter: seeds.Jitter(seed), faults: newFaults()}
	m.faults.trace = r
	m.file = storagetest.Options(t, t.TempDir()+"/keyhook.db")
	m.file.Policy = webhook.DefaultPolicy()
	return m
}

func (m *simulation) open() {
	m.faults.trace.note("start")
	store, closeStore := storagetest.OpenWith(m.t, m.file)
	m.close = closeStore
	o := dispatch.Options{Concurrency: 12, PerSubscription: 4, Grace: 5 * time.Second, Policy: m.file.Policy, Random: m.jitter}
	if m.fixture == nil {
		m.fixture = fixtureOn(m.t, store, m.faults, o)
	} else {
		m.connect(m.t, store, m.faults, o)
	}
	m.run(m.t)
}

func (m *simulation) step() {
	sub := m.subs[m.random.IntN(len(m.subs))]
	m.owner = sub.owner
	ctx := context.Background()
	n := m.random.IntN(100)
	m.faults.trace.note("step %d %s", n, sub.host)
	if !sub.deleted {
		m.checkProbe(sub.Subscription, sub.host)
	}
	switch {
	case n < 40:
		m.publish(m.t, 1+m.random.IntN(40))
	case n < 60:
		sub.mu.Lock()
		sub.behaviour = []string{"well", "fails", "hangs", "slow", "flaky"}[m.random.IntN(5)]
		sub.mu.Unlock()
		if !sub.deleted {
			m.checkProbe(sub.Subscription, sub.host)
		}
	case n < 70 && !sub.deleted:
		off := m.random.IntN(2) == 0
		m.setActive(m.t, sub.Subscription, !off)
		if off {
			m.silent("although it is off", time.Duration(m.random.IntN(100_000))*time.Millisecond, sub.host)
		}
	case n < 74 && !sub.deleted:
		_, fresh, err := m.Subscriptions.RotateSecret(ctx, m.actor(), m.org(), sub.ID, webhook.Rotation{Overlap: time.Duration(m.random.IntN(2)) * time.Minute, Force: true})
		if err != nil {
			m.t.Error(err)
		}
		sub.secrets = append(sub.secrets, usedSecret{time.Now(), fresh})
	case n < 75 && !sub.deleted:
		sub.deleted = true
		if err := m.Subscriptions.DeleteSubscription(ctx, m.actor(), m.org(), sub.ID); err != nil {
			m.t.Error(err)
		}
		m.silent("although it is deleted", time.Minute, sub.host)
	case n < 79:
		plan := []string{"growth", "free"}[m.random.IntN(2)]
		if m.setPlan(m.t, plan); plan == "free" {
			m.silent("although its plan has no webhooks", time.Minute, sub.host)
		}
	case n < 90:
		method := []string{"Begin", "Record", "Release", "Target", "PendingJobs", "OrderedJobs", "Lanes"}[m.random.IntN(7)]
		m.faults.fail(true, method)
		time.Sleep(time.Duration(m.random.IntN(20_000)) * time.Millisecond)
		m.faults.fail(false, method)
	case n < 94 && !sub.deleted:
		limited, cancel := context.WithTimeout(ctx, time.Duration(m.random.IntN(4000))*time.Millisecond)
		defer cancel()
		_, _ = m.Test(limited, m.org(), sub.ID, "")
	case n < 97:
		m.stop()
		m.close()
		time.Sleep(time.Duration(m.random.IntN(100_000)) * time.Millisecond)
		m.open()
	case n < 99 && !sub.deleted:
		m.limitRate(sub.Subscription, sub.host, []int64{0, 1, 10, 100}[m.random.IntN(4)])
	case !sub.deleted:
		sub.dropped = true
		m.discard(sub.Subscription, sub.host)
	}
	time.Sleep(time.Duration(m.random.ExpFloat64() * 3 * float64(time.Second)))
}

// repairAll makes everything work and waits until all deliveries have ended.
func (m *simulation) repairAll() {
	for _, sub := range m.subs[:2] { // one of each organization
		m.owner = sub.owner
		m.setPlan(m.t, "growth")
		synctest.Wait()
	}
	for _, sub := range m.subs {
		sub.mu.Lock()
		sub.behaviour = "well"
		sub.mu.Unlock()
		if m.owner = sub.owner; !sub.deleted {
			m.setRateLimit(m.t, sub.Subscription, 0)
			synctest.Wait()
			m.setActive(m.t, sub.Subscription, true)
			synctest.Wait()
		}
	}
	time.Sleep(12 * time.Minute) // no retry is further away
}

func (m *simulation) check() {
	if b, err := m.Store.Survey.Backlog(context.Background()); err != nil || b.OldestDue != 0 {
		m.t.Errorf("%v, still pending since %s", err, time.UnixMilli(b.OldestDue))
	}
	_, all := m.peak("")
	for _, sub := range m.subs {
		if one, _ := m.peak(sub.host); one > 4 || all > 12 {
			m.t.Errorf("%d requests at once to one, %d to all", one, all)
		}
		sent := map[string]int{}
		for _, q := range m.requests(sub.host) {
			sent[q.header.Get("Webhook-Id")+" "+q.header.Get("X-Service-Attempt")]++
		}
		if m.owner = sub.owner; sub.deleted {
			for what, times := range sent {
				if times != 1 && m.file.Policy.ProbeDisabled == 0 {
					m.t.Errorf("%s was sent %d times to %s", what, times, sub.host)
				}
			}
			continue
		}
		// What was published while it was off has arrived too. Only the plan explains that an event has no delivery.
		if missed, err := m.Queue.Replay(context.Background(), m.actor(), m.org(), sub.ID, webhook.Replay{Only: webhook.OnlyMissed, DryRun: true}); err != nil || missed.TypeAdded != 0 {
			m.t.Errorf("%s missed %+v, error %v", sub.host, missed, err)
		}
		m.compare(sub, sent)
		m.checkSignatures(sub)
		checkRetries(m.t, m.attempts(m.t, sub.Subscription))
		m.faults.trace.records(m.t, m.fixture, sub.host, sub.Subscription)
	}
}

// compare checks the records of a subscription against the requests that its receiver got, by event and number. Each request
// has a record, and each record one request, unless the attempt was cut off right before it was sent. Only a recovery
// begins anew with attempt 1, after the last one. Only an attempt that was cut off gets another one after the last. Attempts follow
// until one succeeds or the last one fails, unless their delivery was discarded.
func (m *simulation) compare(sub *simulatedReceiver, sent map[string]int) {
	most := m.file.Policy.MaxAttempts
	last, outcome, recorded, cutOff := map[string]int{}, map[string]webhook.Outcome{}, map[string]int{}, map[string]int{}
	tests := map[string]bool{}
	for _, a := range m.attempts(m.t, sub.Subscription) {
		isAgain := m.file.Policy.ProbeDisabled > 0 && a.Number == 1 && last[a.EventID] >= most && outcome[a.EventID] == webhook.Failed
		isExtra := a.Number > most && outcome[a.EventID] != webhook.Interrupted
		if a.Number != last[a.EventID]+1 && !isAgain || isExtra || !isAgain && outcome[a.EventID] == webhook.Succeeded || a.Outcome == webhook.Sending {
			m.t.Errorf("attempt %d of %s comes after %d, and is on record as %s", a.Number, a.EventID, last[a.EventID], a.Outcome)
		}
		last[a.EventID], outcome[a.EventID], tests[a.EventID] = a.Number, a.Outcome, a.Trigger == webhook.ByTest
		what := a.EventID + " " + strconv.Itoa(a.Number)
		recorded[what]++
		if a.Outcome == webhook.Interrupted {
			cutOff[what]++
		}
	}
	for event, n := range last {
		if end := outcome[event]; end != webhook.Succeeded && (end != webhook.Failed || n < most) && !tests[event] && !sub.dropped {
			m.t.Errorf("nothing follows attempt %d of %s to %s, which is on record as %s", n, event, sub.host, end)
		}
	}
	for what, n := range recorded {
		if sent[what] > n || sent[what] < n-cutOff[what] {
			m.t.Errorf("%s has %d records, %d of them cut off, and was sent %d times to %s", what, n, cutOff[what], sent[what], sub.host)
		}
		delete(sent, what)
	}
	if len(sent) != 0 {
		m.t.Errorf("%d requests to %s without a record", len(sent), sub.host)
	}
}

func TestSimulation(t *testing.T) {
	simulate(t, func(t *testing.T, seed int, r *trace) {
		m := newSimulation(t, seed, 1, r)
		if seed%2 == 1 { // failures disable subscriptions, and probes recover them
			m.file.Policy = webhook.Policy{MaxAttempts: 2, FailingAfter: 2, DisabledAfter: 4, ProbeDisabled: time.Minute}
		}
		m.open()
		first := m.owner
		m.other, _ = storagetest.Organization(t, m.Store, "other", "growth", access.RoleOwner)
		for i := range 6 {
			m.owner = []access.Principal{first, m.other}[i%2]
			sub := &simulatedReceiver{owner: m.owner, host: "r" + strconv.Itoa(i) + ".example", behaviour: "well"}
			var secret webhook.Secret
			sub.Subscription, secret = m.subscribeWithSecret(t, sub.host, sub.answer)
			sub.secrets = []usedSecret{{time.Now(), secret}}
			m.subs = append(m.subs, sub)
		}
		for range 80 {
			m.step()
		}
		for _, sub := range m.subs {
			if m.owner = sub.owner; !sub.deleted {
				m.checkHealth(sub.Subscription)
			}
		}
		m.repairAll()
		m.checkPrompt()
		m.check()
	})
}
