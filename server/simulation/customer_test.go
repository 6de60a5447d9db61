package simulation_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

var kinds = []string{"order.created", "order.paid", "user.created"}

// publish publishes one event or several.
func (w *world) publish(c *customer) {
	n := 1
	if w.random.IntN(3) == 0 {
		n += w.random.IntN(20)
	}
	var events []*event
	for range n {
		events = append(events, &event{kind: kinds[w.random.IntN(len(kinds))], amount: w.random.IntN(200)})
	}
	w.publishAll(c, events)
}

// publishAll publishes events, with an idempotency key each.
func (w *world) publishAll(c *customer, events []*event) {
	var list []map[string]any
	for _, e := range events {
		w.place++
		e.of, e.place, e.unseen = c, w.place, c.plan == "free"
		list = append(list, map[string]any{"type": e.kind, "data": map[string]any{"amount": e.amount}, "idempotency_key": strconv.Itoa(e.place)})
	}
	line, body := "POST /api/v1/events/batch/", any(map[string]any{"events": list})
	if len(list) == 1 {
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
		w.accepted(c, events, publishedOf(w.t, r))
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
		must: map[string]bool{}, may: map[string]bool{}, never: map[string]bool{}, sent: map[string]int{}, last: map[string]try{}, born: w.place,
	}
	f := w.fields(s)
	f["url"], f["ordered"] = "https://"+s.host+"/", s.ordered
	r := w.call(c, nil, "POST /api/v1/webhooks/subscriptions/", f)
	if c.plan == "free" {
		r.Want(w.t, http.StatusForbidden, "plan_capability_required")
		return
	}
	r.Want(w.t, http.StatusCreated, "")
	s.id, s.secret = r.Field("id"), r.Field("secret")
	w.mu.Lock()
	defer w.mu.Unlock()
	c.subs = append(c.subs, s)
	w.hosts[s.host] = s
}

// changeSubscription makes one of the changes that its owner can make.
func (w *world) changeSubscription(s *subscription) {
	path := "/api/v1/webhooks/subscriptions/" + s.id + "/"
	switch w.random.IntN(13) {
	case 0, 1:
		f := w.fields(&subscription{})
		w.call(s.of, nil, "PATCH "+path, f).Want(w.t, http.StatusOK, "")
		w.mu.Lock()
		defer w.mu.Unlock()
		s.kinds, s.least = f["event_types"].([]string), 0
		if f["filter"] != nil {
			s.least = f["filter"].([]map[string]any)[0]["value"].(int)
		}
		s.relax() // a later recovery leaves out what it no longer wants
	case 2, 3, 4:
		w.activate(s, !s.active)
	case 5:
		w.rotate(s)
	case 6:
		w.recover(s, nil)
	case 7:
		before := slices.Collect(maps.Keys(s.must)) // only this goroutine changes it
		w.call(s.of, nil, "POST "+path+"discard/", map[string]any{}).Want(w.t, http.StatusAccepted, "")
		w.discarded(s, before)
	case 8:
		w.mu.Lock()
		s.repeated = true
		var missed []string // without a delivery
		for _, e := range s.of.events {
			if s.wants(e) && e.place > s.born && !s.must[e.id] && !s.may[e.id] && !s.never[e.id] {
				missed = append(missed, e.id)
				s.may[e.id] = true
			}
		}
		w.mu.Unlock()
		r := w.call(s.of, nil, "POST "+path+"replay/", map[string]any{"since": w.began.UTC().Format(time.RFC3339)})
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, id := range missed {
			delete(s.may, id)
			if r.StatusCode < 300 {
				s.must[id] = true
			}
		}
	case 9:
		w.mu.Lock()
		s.repeated = true
		for id, last := range s.last {
			last.took = false
			s.last[id] = last
		}
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
		w.know(func() { s.deleted = true })
	case 12:
		w.hurry(s)
	}
}

// rotate gives a subscription a new secret.
func (w *world) rotate(s *subscription) {
	overlap := []int{0, 300, 86400}[w.random.IntN(3)]
	w.know(func() { s.rotating = true })
	r := w.call(s.of, nil, "POST /api/v1/webhooks/subscriptions/"+s.id+"/rotate-secret/", map[string]any{"force": true, "overlap_seconds": overlap})
	r.Want(w.t, http.StatusOK, "")
	w.mu.Lock()
	defer w.mu.Unlock()
	s.previous, s.secret, s.overlap, s.rotating = s.secret, r.Field("secret"), time.Now().Add(time.Duration(overlap)*time.Second), false
}

// hurry publishes events that must arrive at once, because the receiver works, whatever other receivers do.
func (w *world) hurry(s *subscription) {
	if s.ordered || s.of.plan == "free" {
		return
	}
	w.know(func() { s.mood = "well" })
	time.Sleep(20 * time.Second) // the end of requests that hang
	w.activate(s, true)
	var events []*event
	for _, kind := range kinds {
		events = append(events, &event{kind: kind, amount: 199})
	}
	w.publishAll(s.of, events)
	time.Sleep(5 * time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events {
		if s.must[e.id] && !slices.Contains(s.took, e.id) {
			w.t.Errorf("%s of %s works, and did not get %s at once", s.host, s.of.name, e.id)
		}
	}
}

// discarded notes that those of some events that waited were dropped, and allows the rest.
func (w *world) discarded(s *subscription, before []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := s.waiting()
	for _, id := range before {
		switch gaveUp := s.sent[id+" 5"] > 0; {
		case s.last[id].open, // its failure would be the last
			slices.Contains(waiting, id) && gaveUp: // a replay of it is dropped; a recovery since then still sends what was given up
			s.may[id] = true
			delete(s.must, id)
		case slices.Contains(waiting, id):
			s.never[id] = true
			delete(s.must, id)
		}
	}
}

// relax allows that what the subscription had to get does not arrive.
func (s *subscription) relax() {
	for id := range s.must {
		if !slices.Contains(s.took, id) {
			s.may[id] = true
			delete(s.must, id)
		}
	}
}

// activate pauses a subscription or lets it go on.
func (w *world) activate(s *subscription, active bool) {
	set := func() { s.active = active }
	if active {
		w.know(set)
	}
	w.call(s.of, nil, "PATCH /api/v1/webhooks/subscriptions/"+s.id+"/", map[string]any{"is_active": active}).Want(w.t, http.StatusOK, "")
	w.know(set)
}

// recover sends again what was given up. Without since, that is what the outage has cost.
func (w *world) recover(s *subscription, since *time.Time) {
	body := map[string]any{"activate": true}
	if since != nil {
		body["since"] = since.UTC().Format(time.RFC3339)
	}
	path := "POST /api/v1/webhooks/subscriptions/" + s.id + "/recover/"
	if s.of.plan == "free" {
		w.call(s.of, nil, path, body).Want(w.t, http.StatusForbidden, "plan_capability_required")
		return
	}
	w.know(func() {
		s.active, s.repeated, s.recovering = true, true, true
		for id, t := range s.last {
			t.wait = 0
			s.last[id] = t
		}
	})
	for range 2 { // the second makes no delivery
		w.call(s.of, nil, path, body).Want(w.t, http.StatusAccepted, "")
	}
	w.know(func() { s.recovering = false })
}

// makeKey makes an API key.
func (w *world) makeKey(c *customer) {
	k := &key{scope: []string{"events:read", "events:read events:write webhooks:read"}[w.random.IntN(2)]}
	body := map[string]any{"name": "simulated", "scope": k.scope}
	if w.random.IntN(3) == 0 {
		k.ends = time.Now().Add(time.Duration(1+w.random.IntN(300)) * time.Second).Truncate(time.Second)
		body["expires_at"] = k.ends.UTC().Format(time.RFC3339)
	}
	r := w.call(c, nil, "POST /api/v1/api-keys/", body)
	if c.plan == "free" {
		r.Want(w.t, http.StatusForbidden, "plan_capability_required")
		return
	}
	r.Want(w.t, http.StatusCreated, "")
	k.id, k.secret = r.Field("id"), r.Field("key")
	c.keys = append(c.keys, k)
}

// refusal is the status and the code of every response to a key; 0 if the key works.
func (c *customer) refusal(k *key) (status int, code string) {
	switch {
	case c.closed:
		return http.StatusUnauthorized, ""
	case k.revoked:
		return http.StatusUnauthorized, "key_revoked"
	case !k.ends.IsZero() && !time.Now().Before(k.ends):
		return http.StatusUnauthorized, "key_expired"
	case c.plan == "free":
		return http.StatusForbidden, "plan_capability_required"
	}
	return 0, ""
}

// useKeys uses each key of a customer for what it may do and for what it may not, and makes, rotates or revokes one.
func (w *world) useKeys(c *customer) {
	other := w.customers[(slices.Index(w.customers, c)+1)%len(w.customers)]
	for _, k := range c.keys {
		if status, code := c.refusal(k); status != 0 {
			w.call(nil, k, "GET /api/v1/events/?limit=1", nil).Want(w.t, status, code)
			continue
		}
		if c.plan == "narrow" {
			for range 3 {
				w.call(nil, k, "GET /api/v1/events/?limit=1", nil)
			}
			w.call(nil, k, "GET /api/v1/events/?limit=1", nil).Want(w.t, http.StatusTooManyRequests, "rate_limited")
			return
		}
		w.call(nil, k, "GET /api/v1/events/?limit=1", nil).Want(w.t, http.StatusOK, "")
		w.call(nil, k, "GET /api/v1/api-keys/", nil).Want(w.t, http.StatusForbidden, "permission_denied")
		if len(c.events) > 0 {
			w.call(nil, k, "GET /api/v1/events/"+c.events[0].id+"/", nil).Want(w.t, http.StatusOK, "")
		}
		if len(other.events) > 0 {
			id := other.events[0].id
			w.call(nil, k, "GET /api/v1/events/"+id+"/", nil).Want(w.t, http.StatusNotFound, "")
			w.call(nil, k, "GET /api/v1/events/"+id+"/explain/", nil).Want(w.t, http.StatusNotFound, "")
			w.equal("a search for an event of another customer", w.ids(nil, k, "search/?q="+id), nil)
		}
		if len(other.subs) > 0 && strings.Contains(k.scope, "webhooks") {
			w.call(nil, k, "GET /api/v1/webhooks/subscriptions/"+other.subs[0].id+"/", nil).Want(w.t, http.StatusNotFound, "")
		}
	}
	if len(c.keys) < 4 && !c.closed {
		w.makeKey(c)
		return
	}
	k := c.keys[w.random.IntN(len(c.keys))]
	if status, _ := c.refusal(k); status != 0 {
		return
	}
	if k.rotated || len(c.keys) > 6 || w.random.IntN(2) == 0 {
		w.call(c, nil, "DELETE /api/v1/api-keys/"+k.id+"/", nil).Want(w.t, http.StatusNoContent, "")
		k.revoked = true
		return
	}
	grace := w.random.IntN(2) * 60
	r := w.call(c, nil, "POST /api/v1/api-keys/"+k.id+"/rotate/", map[string]any{"grace_seconds": grace}).Want(w.t, http.StatusCreated, "")
	c.keys = append(c.keys, &key{id: r.Field("id"), secret: r.Field("key"), scope: k.scope, ends: k.ends})
	k.rotated, k.revoked = true, grace == 0
	if end := time.Now().Add(time.Duration(grace) * time.Second); k.ends.IsZero() || end.Before(k.ends) {
		k.ends = end
	}
}

// equal fails the test unless a list has these ids.
func (w *world) equal(what string, got, want []string) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Errorf("%s has %v, want %v", what, got, want)
	}
}

// look reads lists, feeds and explanations. They have all that belongs to the customer, and nothing else.
func (w *world) look(c *customer) {
	for _, line := range []string{"events/?limit=5", "webhooks/subscriptions/", "webhooks/stats/", "audit-events/?limit=5", "usage/"} {
		w.call(c, nil, "GET /api/v1/"+line, nil).Want(w.t, http.StatusOK, "")
	}
	if len(c.events) > 0 {
		w.call(c, nil, "GET /api/v1/events/"+c.events[w.random.IntN(len(c.events))].id+"/explain/", nil).Want(w.t, http.StatusOK, "")
	}
	kind := kinds[w.random.IntN(len(kinds))]
	var want []string
	for _, e := range slices.Backward(c.events) {
		if e.kind == kind && len(want) < 20 {
			want = append(want, e.id)
		}
	}
	w.equal("the list of "+kind+" of "+c.name, w.ids(c, nil, "events/?limit=20&type="+kind), want)
	for _, s := range c.living() {
		w.checkHealth(s)
		if !s.active || c.plan == "free" {
			continue
		}
		var want []string
		for _, e := range c.events {
			if e.place > s.born && !e.unseen && s.wants(e) {
				want = append(want, e.id)
			}
		}
		w.equal("the feed of "+s.host, w.feed(s), want)
	}
}
