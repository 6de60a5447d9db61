package browser

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// world is a server with data: two customers with webhooks, keys and events, and one whose every text is hostile. A test that
// changes data makes a world of its own, so that it disturbs no other test.
type world struct {
	*server
	receiver *receiver
	acme     *customer // has something of everything
	other    *customer // has one subscription and one key, which nobody of acme may see
	hostile  *customer // has long texts, HTML and Hebrew wherever a field takes them
	empty    *customer // has nothing
}

// customer is an organization with one owner. Its client acts as that owner.
type customer struct {
	client
	name, id, token string
	owner           string // the id of a user

	healthy, failing, disabled, paused string // ids of subscriptions; empty without such a subscription
	event, key                         string // ids of an event that has arrived, and of an active key
}

// nasty is text that a page must show literally.
const nasty = `<script>alert("script")</script><img src=x onerror=alert("image")>"'&amp;{{7*7}} שלום עולם `

// newWorld starts a server and a receiver, and fills the server.
func newWorld(t *testing.T, settings ...string) *world {
	t.Helper()
	w := &world{server: start(t, settings...), receiver: receive(t)}
	w.acme = w.customer(t, "Acme")
	w.other = w.customer(t, "Other")
	w.empty = w.customer(t, "Empty")
	w.fillAcme(t)
	w.other.healthy = w.other.subscribe(t, object{"url": w.receiver.url("other")})
	w.other.key = w.other.create(t, "/api/v1/api-keys/", object{"name": "Other's key", "scope": "events:read"})
	w.other.event = w.other.publish(t, "order.paid", object{"order": 1})
	w.fillHostile(t)
	return w
}

// customer makes an organization on the plan enterprise, with an owner and an access token.
func (s *server) customer(t *testing.T, name string) *customer {
	t.Helper()
	c := &customer{name: name}
	c.id = s.create(t, "/api/v1/organizations/", object{"name": name, "plan": "enterprise"})
	email := strings.ToLower(strings.Fields(name + " nobody")[0])
	if strings.ContainsAny(email, "<>") {
		email = "hostile"
	}
	user := s.create(t, "/api/v1/users/", object{"name": "Owner of " + name[:min(len(name), 20)], "email": email + "@example.com"})
	c.owner = user
	s.must(t, "PUT", "/api/v1/organizations/"+c.id+"/members/"+user+"/", object{"role": "owner"}, nil)
	var token struct{ Token string }
	s.must(t, "POST", "/api/v1/users/"+user+"/access-tokens/", object{"organization_id": c.id}, &token)
	c.token = token.Token
	c.client = client{base: s.base, authorization: "Bearer " + c.token}
	return c
}

// subscribe makes a subscription and returns its id.
func (c *customer) subscribe(t *testing.T, fields object) string {
	t.Helper()
	return c.create(t, "/api/v1/webhooks/subscriptions/", fields)
}

// publish publishes an event and returns its id.
func (c *customer) publish(t *testing.T, eventType string, data object) string {
	t.Helper()
	return c.create(t, "/api/v1/events/", object{"type": eventType, "data": data})
}

// await waits until a field of a subscription has a value.
func (c *customer) await(t *testing.T, subscription, field, value string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		now := c.read(t, "/api/v1/webhooks/subscriptions/"+subscription+"/", field)
		if now == value {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s of %s is %s, not %s", field, subscription, now, value)
		}
	}
}

// fillAcme makes subscriptions in each state: each event of a failing endpoint is tried five times.
func (w *world) fillAcme(t *testing.T) {
	t.Helper()
	a := w.acme
	w.receiver.answer("failing", http.StatusServiceUnavailable, "<html><h1>Down for maintenance</h1><script>alert(1)</script></html>")
	w.receiver.answer("disabled", http.StatusInternalServerError, "panic: nil map")
	a.healthy = a.subscribe(t, object{"url": w.receiver.url("healthy"), "event_types": []string{"order.*"}, "description": "Orders to the warehouse"})
	a.failing = a.subscribe(t, object{"url": w.receiver.url("failing"), "event_types": []string{"invoice.created"}})
	a.disabled = a.subscribe(t, object{"url": w.receiver.url("disabled"), "event_types": []string{"invoice.paid"}})
	a.paused = a.subscribe(t, object{"url": w.receiver.url("paused"), "event_types": []string{"customer.*"}, "is_active": false})
	for n := range 12 {
		a.event = a.publish(t, []string{"order.created", "order.paid", "order.shipped"}[n%3], object{"order": n, "total": "12.50"})
	}
	a.publish(t, "invoice.created", object{"invoice": 1})
	for n := range 4 {
		a.publish(t, "invoice.paid", object{"invoice": n})
		a.publish(t, "customer.updated", object{"customer": n})
	}
	a.key = a.create(t, "/api/v1/api-keys/", object{"name": "Back end", "scope": "events:write webhooks:read", "metadata": object{"team": "orders"}})
	revoked := a.create(t, "/api/v1/api-keys/", object{"name": "Old laptop", "scope": "events:read"})
	a.must(t, "DELETE", "/api/v1/api-keys/"+revoked+"/", nil, nil)
	a.create(t, "/api/v1/api-keys/", object{"name": "Trial", "scope": "events:read", "expires_at": time.Now().Add(48 * time.Hour).UTC().Format(time.RFC3339)})
	a.await(t, a.healthy, "pending_deliveries", "0")
	a.await(t, a.failing, "status", "failing")
	a.await(t, a.failing, "pending_deliveries", "0")
	a.await(t, a.disabled, "status", "disabled")
	a.await(t, a.paused, "pending_deliveries", "4")
}

// fillHostile makes texts as long and as strange as the API takes them.
func (w *world) fillHostile(t *testing.T) {
	t.Helper()
	long := strings.Repeat("x", 2000)
	marks := "\u202etxet desrever\u202c \u200f\u2067"
	w.hostile = w.customer(t, fit(nasty+long, 100))
	h := w.hostile
	w.receiver.answer("hostile", http.StatusInternalServerError, nasty+marks+long)
	h.failing = h.subscribe(t, object{
		"url":         w.receiver.url("hostile?q=" + long[:1900]),
		"description": fit(nasty+long, 500), "event_types": []string{"long." + long[:120], "long.*"},
	})
	h.key = h.create(t, "/api/v1/api-keys/", object{"name": fit(nasty+long, 100), "scope": "events:read", "metadata": object{"<b>": nasty, "long": long[:1500]}})
	h.event = h.create(t, "/api/v1/events/", object{
		"type": "long." + long[:120], "data": object{"html": nasty, "marks": marks, "long": long}, "idempotency_key": fit(nasty, 50) + long[:200],
	})
	h.await(t, h.failing, "status", "failing")
}

// fit cuts a text to a number of characters.
func fit(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most])
	}
	return text
}
