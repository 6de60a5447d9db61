// Package simulation_test runs a whole server in virtual time: the HTTP handlers, the dispatcher and the store, on a disk that fills up
// and loses power, with customers, operators and receivers around it. A model says what must have arrived, and who may see what.
package simulation_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/faultdisk"
	"github.com/keyhook/keyhook/storage/storagetest/seeds"
)

func TestMain(m *testing.M) {
	faultdisk.Install()
	os.Exit(m.Run())
}

const steps = 120

func TestSimulation(t *testing.T) {
	seeds.Run(t, func(t *testing.T, seed int, trace *seeds.Trace) {
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
	began := time.Now()
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
	w.repair(began)
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
	if alive := slices.DeleteFunc(slices.Clone(c.subs), func(s *subscription) bool { return s.deleted }); len(alive) > 0 {
		s = alive[w.random.IntN(len(alive))]
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
		w.mu.Lock()
		s.mood = moods[w.random.IntN(len(moods))]
		w.mu.Unlock()
	case n < 78:
		w.useKeys(c)
	case n < 82:
		w.look(c)
	case n < 85:
		w.operate(c)
	case n < 90:
		w.fillDisk(c)
	case n < 93:
		w.stop()
		time.Sleep(time.Duration(w.random.IntN(600)) * time.Second)
		w.open()
	case n < 97:
		w.losePower()
	case n < 98:
		time.Sleep(time.Duration(w.random.IntN(120)) * time.Minute)
	case n < 99 && w.random.IntN(8) == 0:
		w.call(nil, nil, "POST /api/v1/organizations/"+c.id+"/close/", map[string]any{}).Want(w.t, http.StatusAccepted, "")
		settle()
		w.mu.Lock()
		c.closed = true
		w.mu.Unlock()
	}
}

var kinds = []string{"order.created", "order.paid", "user.created"}

// publish publishes one event or several, with an idempotency key each.
func (w *world) publish(c *customer) {
	n := 1
	if w.random.IntN(3) == 0 {
		n += w.random.IntN(20)
	}
	var list []map[string]any
	var events []*event
	for range n {
		w.place++
		e := &event{kind: kinds[w.random.IntN(len(kinds))], amount: w.random.IntN(200), place: w.place}
		events = append(events, e)
		list = append(list, map[string]any{"type": e.kind, "data": map[string]any{"amount": e.amount}, "idempotency_key": strconv.Itoa(e.place)})
	}
	line, body := "POST /api/v1/events/batch/", any(map[string]any{"events": list})
	if n == 1 {
		line, body = "POST /api/v1/events/", list[0]
	}
	for again := w.random.IntN(6) == 0; ; again = false {
		r := w.call(c, nil, line, body)
		for r.StatusCode == http.StatusServiceUnavailable && w.full { // nobody knows whether it is stored
			time.Sleep(time.Duration(w.random.IntN(20)) * time.Second)
			if w.random.IntN(2) == 0 {
				w.mendDisk()
			}
			r = w.call(c, nil, line, body)
		}
		r.Want(w.t, http.StatusAccepted, "")
		w.accepted(c, events, publishedOf(w.t, r.Text))
		if !again {
			return
		}
	}
}

// accepted notes what the server has said about accepted events.
func (w *world) accepted(c *customer, events []*event, published []published) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(published) != len(events) {
		w.t.Fatalf("%d events were published, and the answer has %d", len(events), len(published))
	}
	for i, e := range events {
		if e.id != "" && e.id != published[i].ID {
			w.t.Errorf("a repetition of %s has the id %s", e.id, published[i].ID)
		}
		if e.id != "" {
			continue
		}
		e.id = published[i].ID
		w.events[e.id] = e
		c.events = append(c.events, e)
		wanted := 0
		for _, s := range c.subs {
			if s.wants(e) && c.plan != "free" {
				s.must[e.id] = true
				wanted++
			}
		}
		if published[i].Deliveries != wanted {
			w.t.Errorf("%s of %s has %d deliveries, want %d", e.id, c.name, published[i].Deliveries, wanted)
		}
	}
	for _, a := range w.early {
		if w.events[a.id] == nil || !a.by.must[a.id] {
			w.t.Errorf("%s got %s, which nobody has published for it", a.by.host, a.id)
		}
	}
	w.early = nil
}

// fields are the settings of a subscription that may change.
func (w *world) fields(s *subscription) map[string]any {
	s.kinds = [][]string{{}, {"order.*"}, {"order.paid"}, {"user.created", "order.paid"}}[w.random.IntN(4)]
	s.least = []int{0, 0, 50, 150}[w.random.IntN(4)]
	f := map[string]any{"event_types": s.kinds, "filter": nil}
	if s.least > 0 {
		f["filter"] = []map[string]any{{"path": "amount", "op": "gte", "value": s.least}}
	}
	return f
}

// subscribe makes a subscription with a receiver of its own.
func (w *world) subscribe(c *customer) {
	s := &subscription{
		of: c, host: fmt.Sprintf("r%d.example.com", len(w.hosts)), active: true, ordered: w.random.IntN(3) == 0, mood: "well",
		must: map[string]bool{}, may: map[string]bool{}, sent: map[string]int{},
	}
	f := w.fields(s)
	f["url"], f["ordered"] = "https://"+s.host+"/", s.ordered
	r := w.call(c, nil, "POST /api/v1/webhooks/subscriptions/", f)
	if c.plan == "free" {
		r.Want(w.t, http.StatusForbidden, "plan_capability_required")
		return
	}
	r.Want(w.t, http.StatusCreated, "")
	s.id, s.secrets = r.Field("id"), []string{r.Field("secret")}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.subs = append(c.subs, s)
	w.hosts[s.host] = s
}

// changeSubscription makes one of the changes that its owner can make.
func (w *world) changeSubscription(s *subscription) {
	path := "/api/v1/webhooks/subscriptions/" + s.id + "/"
	switch w.random.IntN(12) {
	case 0, 1:
		f := w.fields(&subscription{})
		w.call(s.of, nil, "PATCH "+path, f).Want(w.t, http.StatusOK, "")
		w.mu.Lock()
		defer w.mu.Unlock()
		s.kinds, s.least = f["event_types"].([]string), 0
		if f["filter"] != nil {
			s.least = f["filter"].([]map[string]any)[0]["value"].(int)
		}
		w.relax(s) // a later recovery leaves out what it no longer wants
	case 2, 3, 4:
		w.activate(s, !s.active)
	case 5:
		force := w.random.IntN(2) == 0
		r := w.call(s.of, nil, "POST "+path+"rotate-secret/", map[string]any{"force": true, "overlap_seconds": map[bool]int{false: 86400}[force]})
		r.Want(w.t, http.StatusOK, "")
		w.mu.Lock()
		defer w.mu.Unlock()
		s.secrets = []string{r.Field("secret"), s.secrets[0]} // a request may have been signed before
	case 6:
		w.recover(s, nil)
	case 7:
		w.call(s.of, nil, "POST "+path+"discard/", map[string]any{}).Want(w.t, http.StatusAccepted, "")
		w.mu.Lock()
		defer w.mu.Unlock()
		w.relax(s)
	case 8:
		w.mu.Lock()
		s.repeated = true
		for _, e := range s.of.events {
			if s.wants(e) {
				s.may[e.id] = true
			}
		}
		w.mu.Unlock()
		w.call(s.of, nil, "POST "+path+"replay/", map[string]any{"since": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)})
	case 9:
		w.mu.Lock()
		s.repeated = true
		w.mu.Unlock()
		w.call(s.of, nil, "POST /api/v1/webhooks/redeliver/", map[string]any{
			"state": "delivered", "since": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), "subscription_id": s.id,
		})
	case 10:
		w.call(s.of, nil, "POST "+path+"test/", map[string]any{})
	case 11:
		if w.random.IntN(3) > 0 {
			return
		}
		w.call(s.of, nil, "DELETE "+path, nil).Want(w.t, http.StatusNoContent, "")
		settle()
		w.mu.Lock()
		defer w.mu.Unlock()
		s.deleted = true
	}
}

// relax allows that what the subscription had to get does not arrive, and says nothing of its order any more.
func (w *world) relax(s *subscription) {
	s.repeated = true
	for id := range s.must {
		if !slices.Contains(s.took, id) {
			s.may[id] = true
			delete(s.must, id)
		}
	}
}

// activate pauses a subscription or lets it go on.
func (w *world) activate(s *subscription, active bool) {
	set := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		s.active = active
	}
	if active {
		set()
	}
	w.call(s.of, nil, "PATCH /api/v1/webhooks/subscriptions/"+s.id+"/", map[string]any{"is_active": active}).Want(w.t, http.StatusOK, "")
	if settle(); !active {
		set()
	}
}

// recover sends again what was given up. Without since, that is what the outage has cost.
func (w *world) recover(s *subscription, since *time.Time) {
	body := map[string]any{"activate": true}
	if since != nil {
		body["since"] = since.UTC().Format(time.RFC3339)
	}
	w.mu.Lock()
	s.active, s.repeated = true, true
	w.mu.Unlock()
	r := w.call(s.of, nil, "POST /api/v1/webhooks/subscriptions/"+s.id+"/recover/", body)
	if s.of.plan != "free" {
		r.Want(w.t, http.StatusAccepted, "")
	}
}

// makeKey makes an API key.
func (w *world) makeKey(c *customer) {
	k := &key{scope: []string{"events:read", "events:read events:write webhooks:read"}[w.random.IntN(2)]}
	r := w.call(c, nil, "POST /api/v1/api-keys/", map[string]any{"name": "simulated", "scope": k.scope})
	if c.plan == "free" {
		r.Want(w.t, http.StatusForbidden, "plan_capability_required")
		return
	}
	r.Want(w.t, http.StatusCreated, "")
	k.id, k.secret = r.Field("id"), r.Field("key")
	c.keys = append(c.keys, k)
}

// useKeys uses each key of a customer for what it may do and for what it may not, and makes or revokes one.
func (w *world) useKeys(c *customer) {
	other := w.customers[(slices.Index(w.customers, c)+1)%len(w.customers)]
	for _, k := range c.keys {
		switch {
		case k.revoked:
			w.call(nil, k, "GET /api/v1/events/?limit=1", nil).Want(w.t, http.StatusUnauthorized, "key_revoked")
			continue
		case c.plan == "free":
			w.call(nil, k, "GET /api/v1/events/?limit=1", nil).Want(w.t, http.StatusForbidden, "plan_capability_required")
			continue
		}
		w.call(nil, k, "GET /api/v1/events/?limit=1", nil).Want(w.t, http.StatusOK, "")
		w.call(nil, k, "GET /api/v1/api-keys/", nil).Want(w.t, http.StatusForbidden, "permission_denied")
		if len(c.events) > 0 {
			w.call(nil, k, "GET /api/v1/events/"+c.events[0].id+"/", nil).Want(w.t, http.StatusOK, "")
		}
		if len(other.events) > 0 {
			w.call(nil, k, "GET /api/v1/events/"+other.events[0].id+"/", nil).Want(w.t, http.StatusNotFound, "")
			w.call(nil, k, "GET /api/v1/events/"+other.events[0].id+"/explain/", nil).Want(w.t, http.StatusNotFound, "")
		}
		if len(other.subs) > 0 && strings.Contains(k.scope, "webhooks") {
			w.call(nil, k, "GET /api/v1/webhooks/subscriptions/"+other.subs[0].id+"/", nil).Want(w.t, http.StatusNotFound, "")
		}
	}
	if len(c.keys) < 4 {
		w.makeKey(c)
		return
	}
	k := c.keys[w.random.IntN(len(c.keys))]
	if !k.revoked {
		w.call(c, nil, "DELETE /api/v1/api-keys/"+k.id+"/", nil).Want(w.t, http.StatusNoContent, "")
		k.revoked = true
	}
}

// look reads lists and explanations, whose answers must have the form that the description gives.
func (w *world) look(c *customer) {
	for _, line := range []string{"events/?limit=5", "webhooks/subscriptions/", "webhooks/stats/", "audit-events/?limit=5", "usage/"} {
		w.call(c, nil, "GET /api/v1/"+line, nil).Want(w.t, http.StatusOK, "")
	}
	if len(c.events) > 0 {
		w.call(c, nil, "GET /api/v1/events/"+c.events[w.random.IntN(len(c.events))].id+"/explain/", nil).Want(w.t, http.StatusOK, "")
	}
}

// operate does what an operator does.
func (w *world) operate(c *customer) {
	switch w.random.IntN(4) {
	case 0:
		w.call(nil, nil, "POST /api/v1/queue/hold/", map[string]any{"reason": "simulated"}).Want(w.t, http.StatusOK, "")
		settle()
		w.mu.Lock()
		w.held = true
		w.mu.Unlock()
		time.Sleep(time.Duration(w.random.IntN(60)) * time.Second)
		w.release()
	case 1:
		plan := []string{"business", "growth", "free"}[w.random.IntN(3)]
		w.call(nil, nil, "PATCH /api/v1/organizations/"+c.id+"/", map[string]any{"plan": plan}).Want(w.t, http.StatusOK, "")
		c.plan = plan
	case 2:
		w.call(nil, nil, "POST /api/v1/apply/", map[string]any{"document": map[string]any{
			"organizations": []map[string]any{{"external_id": c.name, "name": c.name, "plan": c.plan}},
		}}).Want(w.t, http.StatusOK, "")
	case 3:
		w.call(nil, nil, "PUT /api/v1/event-types/"+url.PathEscape(kinds[0])+"/", map[string]any{"description": "simulated"})
	}
}

func (w *world) release() {
	w.mu.Lock()
	w.held = false
	w.mu.Unlock()
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
func (w *world) repair(began time.Time) {
	w.release()
	for _, c := range w.customers {
		if c.closed {
			continue
		}
		w.call(nil, nil, "PATCH /api/v1/organizations/"+c.id+"/", map[string]any{"plan": "business"}).Want(w.t, http.StatusOK, "")
		c.plan = "business"
		for _, s := range c.subs {
			w.mu.Lock()
			s.mood = "well"
			w.mu.Unlock()
			if !s.deleted {
				w.activate(s, true)
			}
		}
	}
	time.Sleep(30 * time.Minute)
	w.mu.Lock()
	for _, s := range w.hosts {
		if s.ordered && !s.repeated && !slices.IsSortedFunc(s.took, func(a, b string) int { return w.events[a].place - w.events[b].place }) {
			w.t.Errorf("%s is ordered, and took its events in another order", s.host)
		}
	}
	w.mu.Unlock()
	for _, c := range w.customers {
		for _, s := range c.subs {
			if !s.deleted && !c.closed {
				w.recover(s, &began)
			}
		}
	}
	time.Sleep(2 * time.Hour)
	synctest.Wait()
}

// check compares the model with what the server says and what the receivers have seen.
func (w *world) check() {
	for _, c := range w.customers {
		if c.closed {
			continue
		}
		for _, e := range c.events {
			w.call(c, nil, "GET /api/v1/events/"+e.id+"/", nil).Want(w.t, http.StatusOK, "")
		}
		w.useKeys(c)
		time.Sleep(time.Minute) // a revocation is an audit event, and some subscriptions get it
		for _, s := range c.subs {
			if s.deleted {
				continue
			}
			for id := range s.must {
				if !slices.Contains(s.took, id) {
					w.t.Errorf("%s never took %s (ordered %v)", s.host, id, s.ordered)
				}
			}
			w.compareAttempts(s)
		}
	}
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
