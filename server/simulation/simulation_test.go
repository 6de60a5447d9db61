// Package simulation_test runs a whole server in virtual time: the HTTP handlers, the dispatcher and the store, on a disk that fills up
// and loses power, with customers, operators and receivers around it. A model says what must have arrived, and who may see what.
package simulation_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/faultdisk"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/storagetest/seeds"
)

func TestMain(m *testing.M) {
	faultdisk.Install()
	remove := shareDescription()
	code := m.Run()
	remove()
	os.Exit(code)
}

// shareDescription makes the description once for this process and its child processes. It returns a function that removes it.
func shareDescription() (remove func()) {
	if os.Getenv(servertest.DescriptionFile) != "" {
		return func() {}
	}
	text, err := server.Description()
	if err != nil {
		panic(err)
	}
	f, err := os.CreateTemp("", "openapi-*.json")
	if err != nil {
		panic(err)
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close(), os.Setenv(servertest.DescriptionFile, f.Name())); err != nil {
		panic(err)
	}
	return func() { _ = os.Remove(f.Name()) }
}

const steps = 120

func TestSimulation(t *testing.T) {
	seeds.Run(t, 6, func(t *testing.T, seed int, trace *seeds.Trace) {
		w := &world{
			t: t, trace: trace, random: rand.New(rand.NewPCG(uint64(seed), 11)), jitter: seeds.Jitter(seed),
			hosts: map[string]*subscription{}, events: map[string]*event{},
		}
		w.run()
	})
}

// run runs one simulation.
func (w *world) run() {
	t := w.t
	faultdisk.Track(true)
	defer faultdisk.Track(false)
	w.dir = filepath.Join(t.TempDir(), "0")
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w.open()
	defer func() { w.stop() }()
	w.began = time.Now()
	w.call(nil, nil, "POST /api/v1/plans/", map[string]any{"name": "narrow", "api_keys": true, "webhooks": true, "api_rate_limit_per_minute": 3})
	for i := range 3 {
		c := &customer{name: "customer-" + strconv.Itoa(i), plan: "business"}
		c.id = w.call(nil, nil, "PUT /api/v1/organizations/"+c.name+"/", map[string]any{"name": c.name, "plan": c.plan}).
			Want(t, http.StatusCreated, "").Field("id")
		w.customers = append(w.customers, c)
		w.subscribe(c)
		w.makeKey(c)
	}
	for range steps {
		w.step()
		time.Sleep(time.Duration(w.random.ExpFloat64() * 4 * float64(time.Second)))
	}
	for _, c := range w.customers {
		for _, s := range c.living() {
			w.know(func() { s.mood = "well" })
		}
	}
	w.rest() // receivers that come back get what waits, although nobody does anything
	w.repair()
	w.check()
	w.trace.Note("%d events, %d requests, %d losses of power", len(w.events), w.arrived, w.power)
}

// step is one thing that a customer, an operator, a receiver, the disk or the power does.
func (w *world) step() {
	c := w.customers[w.random.IntN(len(w.customers))]
	if c.closed {
		return
	}
	var s *subscription
	if living := c.living(); len(living) > 0 {
		s = living[w.random.IntN(len(living))]
	}
	n := w.random.IntN(100)
	w.trace.Note("step %d of %s", n, c.name)
	switch {
	case n < 36:
		w.publish(c)
	case n < 42 && len(c.subs) < 8:
		w.subscribe(c)
	case n < 60 && s != nil:
		w.changeSubscription(s)
	case n < 72 && s != nil:
		w.know(func() { s.mood = moods[w.random.IntN(len(moods))] })
	case n < 78:
		w.useKeys(c)
	case n < 82:
		w.look(c)
	case n < 85:
		w.operate(c)
	case n < 90:
		w.fillDisk(c)
	case n < 91:
		w.restore()
	case n < 93:
		w.stop()
		time.Sleep(time.Duration(w.random.IntN(600)) * time.Second)
		w.open()
	case n < 97:
		w.losePower()
	case n < 98:
		w.rest()
	case n < 99 && w.random.IntN(4) == 0:
		w.call(nil, nil, "POST /api/v1/organizations/"+c.id+"/close/", map[string]any{}).Want(w.t, http.StatusAccepted, "")
		settle()
		w.know(func() { c.closed = true })
		w.useKeys(c)
	}
}

// rest lets time pass. Then nothing waits for receivers that work.
func (w *world) rest() {
	time.Sleep(time.Duration(30+w.random.IntN(60)) * time.Minute)
	for _, c := range w.customers {
		for _, s := range c.living() {
			if h := w.checkHealth(s); h.BlockedBy == nil && h.Pending > 0 && slices.Contains([]string{"well", "slow", "huge"}, s.mood) {
				w.t.Errorf("%s works, is %s, and %d deliveries wait", s.host, h.Status, h.Pending)
			}
		}
	}
}

// operate does what an operator does.
func (w *world) operate(c *customer) {
	switch w.random.IntN(3) {
	case 0:
		w.hold(c)
	case 1:
		w.useKeys(c) // the server knows them now
		w.setPlan(c, []string{"business", "growth", "free", "narrow"}[w.random.IntN(4)])
		w.useKeys(c)
		w.publish(c)
	case 2:
		w.call(nil, nil, "PUT /api/v1/event-types/"+url.PathEscape(kinds[0])+"/", map[string]any{"description": "simulated"})
	}
}

// setPlan gives a customer another plan. Nothing is sent under a plan without webhooks.
func (w *world) setPlan(c *customer, plan string) {
	set := func() { c.plan = plan }
	if plan != "free" {
		w.know(set)
	}
	if w.random.IntN(2) == 0 {
		w.call(nil, nil, "PATCH /api/v1/organizations/"+c.id+"/", map[string]any{"plan": plan}).Want(w.t, http.StatusOK, "")
	} else {
		document := map[string]any{"organizations": []map[string]any{{"external_id": c.name, "name": c.name, "plan": plan}}}
		w.call(nil, nil, "POST /api/v1/apply/", map[string]any{"document": document}).Want(w.t, http.StatusOK, "")
	}
	w.know(set)
}

// hold stops all sending. What is published then waits. The operator releases the queue, or discards what waited before.
func (w *world) hold(c *customer) {
	w.call(nil, nil, "POST /api/v1/queue/hold/", map[string]any{"reason": "simulated"}).Want(w.t, http.StatusOK, "")
	before := map[*subscription][]string{}
	w.know(func() {
		w.held = true
		for _, s := range w.hosts {
			before[s] = slices.Collect(maps.Keys(s.must))
		}
	})
	w.publish(c)
	time.Sleep(time.Duration(w.random.IntN(60)) * time.Second)
	if w.random.IntN(3) > 0 {
		w.release()
		return
	}
	for s, ids := range before {
		w.discarded(s, ids)
	}
	w.know(func() { w.held = false })
	w.call(nil, nil, "POST /api/v1/queue/discard/", nil).Want(w.t, http.StatusOK, "")
}

func (w *world) release() {
	w.know(func() { w.held = false })
	w.call(nil, nil, "POST /api/v1/queue/release/", nil).Want(w.t, http.StatusOK, "")
}

// fillDisk lets every write fail for a while, in which a customer publishes and a key is checked.
func (w *world) fillDisk(c *customer) {
	faultdisk.Break(faultdisk.Fault{Op: faultdisk.Write, Code: 13})
	w.full = true
	w.publish(c)
	time.Sleep(time.Duration(w.random.IntN(30)) * time.Second)
	w.mendDisk()
	time.Sleep(5 * time.Second)
}

func (w *world) mendDisk() {
	if w.full {
		faultdisk.Mend()
		w.full = false
		time.Sleep(2 * time.Second) // the next try of the writer
	}
}

// repair makes everything work, sends again what was given up, and waits until nothing is pending.
func (w *world) repair() {
	w.release()
	for _, c := range w.customers {
		if !c.closed {
			w.setPlan(c, "business")
		}
		for _, s := range c.living() {
			w.know(func() { s.mood = "well" })
			w.activate(s, true)
		}
	}
	time.Sleep(30 * time.Minute)
	for _, c := range w.customers {
		for _, s := range c.living() {
			inOrder := slices.IsSortedFunc(s.took, func(a, b string) int { return w.events[a].place - w.events[b].place })
			if s.ordered && !s.repeated && !inOrder {
				w.t.Errorf("%s is ordered, and took its events in another order", s.host)
			}
			if left := s.waiting(); len(left) > 0 {
				w.t.Errorf("%s still waits for %v", s.host, left)
			}
			w.recover(s, &w.began)
		}
	}
	time.Sleep(30 * time.Minute)
	synctest.Wait()
}

// check compares the model with what the server says and what the receivers have seen.
func (w *world) check() {
	for _, c := range w.customers {
		w.useKeys(c)
		if c.closed {
			continue
		}
		for _, e := range c.events {
			w.call(c, nil, "GET /api/v1/events/"+e.id+"/", nil).Want(w.t, http.StatusOK, "")
		}
		w.look(c)
		time.Sleep(time.Minute) // a revocation is an audit event, and some subscriptions get it
		for _, s := range c.living() {
			for id := range s.must {
				if !slices.Contains(s.took, id) {
					w.t.Errorf("%s never took %s (ordered %v)", s.host, id, s.ordered)
				}
			}
			if h := w.checkHealth(s); h.Status != "healthy" || h.Pending > 0 {
				w.t.Errorf("%s is %s, and %d deliveries wait", s.host, h.Status, h.Pending)
			}
			w.compareAttempts(s)
		}
	}
	// A closed customer leaves neither secrets nor events.
	var left int
	storagetest.Query(w.t, filepath.Join(w.dir, "keyhook.db"), &left, `
		SELECT (SELECT count(*) FROM subscriptions s JOIN organizations o ON o.id = s.organization_id
		        WHERE o.closed_at IS NOT NULL AND (length(s.secret) > 0 OR s.previous_secret IS NOT NULL OR s.url <> ''))
		     + (SELECT count(*) FROM events e JOIN organizations o ON o.id = e.organization_id WHERE o.closed_at IS NOT NULL)`)
	if left > 0 {
		w.t.Errorf("%d secrets and events of closed customers are left", left)
	}
}

// checkHealth compares what the server says about a subscription with itself, and with what its owner has set.
func (w *world) checkHealth(s *subscription) health {
	h := decode[health](w.t, w.call(s.of, nil, "GET /api/v1/webhooks/subscriptions/"+s.id+"/", nil).Want(w.t, http.StatusOK, ""))
	blocked := h.BlockedBy != nil && *h.BlockedBy == "disabled"
	paused := h.BlockedBy != nil && *h.BlockedBy == "paused"
	switch {
	case paused != !s.active, blocked && h.Failures < 15, h.Status == "failing" && h.Failures < 5, h.Status == "healthy" && h.Failures >= 5:
		w.t.Errorf("%s (active: %v) is %s with %d failures", s.host, s.active, h.Status, h.Failures)
	}
	return h
}

// compareAttempts compares the attempts on record with the requests that arrived: each request has a record, and each record a request,
// unless its attempt was cut off.
func (w *world) compareAttempts(s *subscription) {
	recorded, cutOff := map[string]int{}, map[string]int{}
	for _, a := range w.attempts(s) {
		what := a.EventID + " " + strconv.Itoa(a.Number)
		recorded[what]++
		switch a.Outcome {
		case "interrupted":
			cutOff[what]++
		case "sending":
			w.t.Errorf("%s to %s is still being sent", what, s.host)
		}
	}
	for what, n := range s.sent {
		if n > recorded[what] {
			w.t.Errorf("%s was sent %d times to %s, and is on record %d times", what, n, s.host, recorded[what])
		}
	}
	for what, n := range recorded {
		if n-cutOff[what] > s.sent[what] {
			w.t.Errorf("%s is on record %d times for %s, %d of them cut off, and was sent %d times", what, n, s.host, cutOff[what], s.sent[what])
		}
	}
}
