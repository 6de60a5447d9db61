package browser

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// portalLink returns the path of a link to the portal of a customer.
func (s *server) portalLink(t *testing.T, c *customer, role string) string {
	t.Helper()
	var link struct{ URL string }
	s.must(t, "POST", "/api/v1/organizations/"+c.id+"/portal-links/", object{"role": role, "return_url": s.base + "/docs/"}, &link)
	path, found := strings.CutPrefix(link.URL, s.base)
	if !found {
		t.Fatalf("the link is %s", link.URL)
	}
	return path
}

// TestPortal uses the console as a customer does who came with a link, under a path and with the name of the product around it.
func TestPortal(t *testing.T) {
	t.Parallel()
	s, r := startBehind(t, "/keyhook", "KEYHOOK_CONSOLE_NAME=Pumps & Co", "KEYHOOK_CONSOLE_ACCENT=#0b7285", "KEYHOOK_WEBHOOKS_HEADER_PREFIX=X-Pumps"), receive(t)
	acme, other := s.customer(t, "Acme"), s.customer(t, "Other")
	other.healthy = other.subscribe(t, object{"url": r.url("other")})
	other.key = other.create(t, "/api/v1/api-keys/", object{"name": "Other's key", "scope": "events:read"})
	other.event = other.publish(t, "order.paid", object{})

	p := open(t, s.base)
	link := s.portalLink(t, acme, "owner")
	t.Run("the link signs in to a console with the name and the accent of the product", func(t *testing.T) {
		p.visit(link)
		p.expectPath("/console/")
		p.expectElement("heading", "Overview")
		p.in("navigation", "Pages").expectElement("link", "Pumps & Co")
		p.expectElement("link", "Back to "+hostOf(s.base))
		p.expect("Three steps to the first event")
		if got := evaluate[string](p, `document.title + " " + getComputedStyle(document.querySelector(".button.primary")).backgroundColor`); got != "Overview · Pumps & Co rgb(11, 114, 133)" {
			t.Errorf("title and accent are %q", got)
		}
		p.look("portal-overview-empty")
	})
	t.Run("there is no page of operators, and no other organization", func(t *testing.T) {
		p.gone("Operator")
		p.goneElement("button", "Act in another organization")
		p.goneElement("link", "All organizations")
		if loaded := evaluate[[]string](p, `performance.getEntriesByType("resource").map(e => e.name).filter(n => /plans|system|users|organizations|queue/.test(n))`); len(loaded) > 0 {
			t.Errorf("a portal has loaded %q", loaded)
		}
		for _, path := range []string{"system", "organizations", "organizations/" + acme.id, "users", "plans", "roles", "permissions"} {
			p.visit("/console/" + path + "/")
			p.expect("Your role does not show this page")
		}
	})
	t.Run("the three steps lead to a first delivery", func(t *testing.T) { portalSteps(t, p, r) })
	acme.healthy = acme.firstOf(t, "/api/v1/webhooks/subscriptions/")
	acme.key = acme.firstOf(t, "/api/v1/api-keys/")
	acme.event = acme.firstOf(t, "/api/v1/events/?type=order.paid")
	t.Run("each page shows what the customer has", func(t *testing.T) {
		for _, page := range []struct{ name, path, text string }{
			{"overview", "", "The endpoint is healthy."},
			{"subscriptions", "subscriptions/", "/hook"},
			{"subscription-new", "subscriptions/new/", "More options"},
			{"subscription", "subscriptions/" + acme.healthy + "/", "/hook"},
			{"subscription-settings", "subscriptions/" + acme.healthy + "/?tab=settings", "Request headers"},
			{"events", "events/", "order.paid"},
			{"event", "events/" + acme.event + "/", "Delivered"},
			{"event-new", "events/new/", "Idempotency key"},
			{"keys", "keys/", "Back end"},
			{"key", "keys/" + acme.key + "/", "events:write"},
			{"key-new", "keys/new/", "Create API key"},
			{"explain", "keys/explain/", "Explain a request"},
			{"audit", "audit/", "Portal (owner)"},
		} {
			p.visit("/console/" + page.path)
			p.expect(page.text)
			p.gone("Other's")
			switch page.name {
			case "overview", "subscription", "audit":
				p.look("portal-" + page.name)
			}
		}
		p.expect("Created the API key Back end")
	})
	t.Run("nothing of another organization is found", func(t *testing.T) {
		for _, id := range []string{other.id, other.healthy, other.event, other.key, "Other"} {
			p.fill("Search", id)
			p.expect("Only this organization is searched.")
		}
		p.fill("Search", "")
		p.allow(http.StatusNotFound, "/api/v1/")
		for _, path := range []string{"subscriptions/" + other.healthy, "events/" + other.event, "keys/" + other.key} {
			p.visit("/console/" + path + "/")
			p.expect("There is no such")
		}
		for _, path := range []string{"", "subscriptions/" + other.healthy + "/", "audit/"} {
			p.visit("/console/" + path + "?org=" + other.id)
			p.expect("There is no such organization")
		}
	})
	t.Run("the link works once, and the end of the session leads back to the product", func(t *testing.T) {
		stranger := open(t, s.base)
		stranger.allow(http.StatusUnauthorized, "/api/v1/session/")
		stranger.visit(link)
		stranger.expect("This link was used already or has expired")
		p.visit("/console/")
		p.signOut("Acme")
		p.expectPath("/docs/")
		p.in("banner", "").expect("Pumps & Co documents")
		p.allow(http.StatusUnauthorized, "/api/v1/session/")
		p.visit("/console/")
		p.expectElement("heading", "Your session has ended")
		p.expectElement("link", "Back to "+hostOf(s.base))
		p.gone("keyhook token create")
	})
	t.Run("a member looks, and changes nothing", func(t *testing.T) {
		p := open(t, s.base)
		p.visit(s.portalLink(t, acme, "member"))
		p.expect("The endpoint is healthy.")
		for path, button := range map[string]string{"subscriptions/": "New endpoint", "keys/": "New API key", "events/": "Publish event"} {
			p.visit("/console/" + path)
			p.goneElement("link", button)
		}
		for path, button := range map[string]string{"subscriptions/" + acme.healthy: "Send test", "keys/" + acme.key: "Revoke", "events/" + acme.event: "Send again"} {
			p.visit("/console/" + path + "/")
			p.gone(button)
		}
		for _, path := range []string{"subscriptions/new/", "keys/new/", "events/new/"} {
			p.visit("/console/" + path)
			p.expect("Your role does not show this page")
		}
		p.visit("/console/audit/")
		p.expect("Portal (member)")
	})
}

// portalSteps creates a subscription with a test, and a key, and publishes an event.
func portalSteps(t *testing.T, p *page, r *receiver) {
	t.Helper()
	p.visit("/console/subscriptions/")
	p.expect(`-H "Authorization: ApiKey $KEY"`) // a customer has no access token
	p.visit("/console/")
	p.fill("Address", r.url("hook"))
	p.click("link", "More settings")
	p.expectElement("heading", "New endpoint")
	if got := p.value("Address"); got != r.url("hook") {
		t.Errorf("the full form begins with the address %q", got)
	}
	p.in("region", "Example of a delivery").expect("X-Pumps-Signature")
	p.click("button", "Create endpoint")
	p.expect("Save the signing secret")
	for language, header := range map[string]string{"Go": `h.Get("X-Pumps-Signature")`, "Node": `headers["x-pumps-timestamp"]`} {
		p.click("button", language)
		p.in("region", "Receiver in "+language).expect(header)
	}
	p.in("main", "").gone("-service-")
	p.click("button", "Send test")
	r.await(t, "hook", 1)
	p.expectElement("button", "Send test again")
	p.click("button", "I have saved it")

	p.visit("/console/keys/")
	p.click("link", "New API key")
	p.fill("Name", "Back end")
	p.click("checkbox", "events:write")
	p.click("button", "Create API key")
	p.expect("Copy the key now")
	p.goneElement("combobox", "Belongs to")
	p.click("button", "I have saved it")

	p.visit("/console/events/")
	p.click("link", "Publish")
	p.fill("Type", "order.paid")
	p.click("button", "Publish event")
	r.await(t, "hook", 2)
}

// TestTheFirstStepsOfACustomer adds an endpoint, sends a test that fails and one that arrives, and waits for the first event of the product.
func TestTheFirstStepsOfACustomer(t *testing.T) {
	t.Parallel()
	s, r := start(t, "KEYHOOK_CONSOLE_NAME=Pumps & Co"), receive(t)
	s.must(t, "PUT", "/api/v1/event-types/order.paid/", object{"description": "An order was paid.", "example": object{"order": 1001}}, nil)
	acme := s.customer(t, "Acme")
	acme.publish(t, "order.paid", object{}) // before there is an endpoint
	p := open(t, s.base)
	p.visit(s.portalLink(t, acme, "customer"))
	p.expect("Three steps to the first event")
	p.expect("Pumps & Co sends it when something happens.")
	for _, text := range []string{"API key", "Publish", "perator", "Keyhook", "plan", "queue", "Success rate", "ubscription"} {
		p.in("main", "").gone(text)
	}
	p.look("portal-first")

	p.allow(http.StatusUnprocessableEntity, "/api/v1/webhooks/subscriptions/")
	p.fill("Address", "http://")
	p.click("button", "Add endpoint")
	p.expect("Write a host after the two slashes")
	p.expectFocus("textbox", "Address")
	p.fill("Address", r.url("hook"))
	p.press("Enter")
	p.expect("Done Add an endpoint")
	p.expect("Save the signing secret")
	p.expectFocus("button", "Copy")
	p.goneElement("button", "Send test…") // it would leave the page before the secret is saved
	p.look("portal-first-secret")
	p.click("button", "I have saved it")
	p.expectFocus("button", "Send test…")
	p.expectElement("link", r.url("hook"))
	p.gone("whsec_")
	r.answer("hook", http.StatusInternalServerError, "")
	p.click("button", "Send test…")
	dialog := p.in("dialog", "Send a test")
	if got := dialog.value("Event type"); got != "order.paid" {
		t.Errorf("the test has the type %q", got)
	}
	dialog.expect(`"order": 1001`)
	p.look("portal-first-test")
	dialog.click("button", "Send test")
	p.in("region", "Attempt").expect("Response 500")
	p.visit("/console/")
	p.expect("The last test failed.")
	r.answer("hook", http.StatusNoContent, "")
	p.click("button", "Send test…")
	p.in("dialog", "Send a test").click("button", "Send test")
	p.in("region", "Attempt").expect("Response 204")
	p.visit("/console/")
	p.expect("Done Send a test")
	p.expect("Step 3 Wait for the first event")
	p.gone("Success rate")
	p.look("portal-first-waiting")

	event := acme.publish(t, "order.paid", object{"order": 7})
	p.expect("All three steps are done")
	p.in("listitem", "has arrived").click("link", "order.paid")
	p.expectPath("/console/events/" + event + "/")
	p.visit("/console/")
	p.expect("Success rate")
	p.gone("three steps")
}

// TestWhatACustomerCanDo sends a discarded event again, and asks the host for what only the host can do.
func TestWhatACustomerCanDo(t *testing.T) {
	t.Parallel()
	s, r := start(t, "KEYHOOK_CONSOLE_NAME=Pumps & Co"), receive(t)
	acme := s.customer(t, "Acme")
	id := acme.subscribe(t, object{"url": r.url("hook"), "is_active": false})
	discarded := acme.publish(t, "order.paid", object{})
	time.Sleep(2 * time.Millisecond) // events of one type and millisecond are sent again together
	later := acme.publish(t, "order.paid", object{})
	var batch struct{ Data []struct{ ID string } }
	acme.must(t, "POST", "/api/v1/events/batch/", object{"events": []object{{"type": "order.batch", "data": object{}}, {"type": "order.batch", "data": object{}}}}, &batch)
	acme.must(t, "POST", "/api/v1/webhooks/subscriptions/"+id+"/discard/", object{}, nil)
	acme.must(t, "PATCH", "/api/v1/webhooks/subscriptions/"+id+"/", object{"is_active": true}, nil)
	p := open(t, s.base)
	p.visit(s.portalLink(t, acme, "customer"))
	p.visit(eventPage(batch.Data[0].ID))
	p.click("button", "Send again…")
	p.in("dialog", "Send this event again?").expect("with 1 other event of its type and moment")
	p.visit(eventPage(discarded))
	p.expect("The delivery was discarded while it waited.")
	p.gone("publish")
	p.click("button", "Send again…")
	p.in("dialog", "Send this event again?").click("button", "Send 1 event again")
	p.expect("1 event is sent again.")
	p.expect("Delivered to")
	r.await(t, "hook", 1)
	if got := acme.read(t, "/api/v1/events/"+later+"/", "deliveries"); !strings.Contains(got, "dropped") {
		t.Errorf("the other discarded event has the deliveries %s", got)
	}

	second := acme.subscribe(t, object{"url": r.url("second"), "description": "Second"})
	p.visit(eventPage(discarded) + "?others=open")
	p.expect("To send the event anyway, ask Pumps & Co to publish it again.")
	p.fill("Search", second)
	p.in("listbox", "").expect("Endpoints")
	p.fill("Search", "")

	r.answer("hook", http.StatusInternalServerError, "")
	p.visit(eventPage(acme.publish(t, "order.paid", object{})))
	p.expect("All attempts failed, so Pumps & Co gave up.")
}

// TestPortalPages has the logo of the host and two of its pages. An operator sees all pages.
func TestPortalPages(t *testing.T) {
	t.Parallel()
	logo := filepath.Join(t.TempDir(), "logo.svg")
	if err := os.WriteFile(logo, []byte(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 60 20"><rect width="60" height="20" fill="teal"/></svg>`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "KEYHOOK_CONSOLE_PORTAL_PAGES=keys,audit", "KEYHOOK_CONSOLE_LOGO_FILE="+logo)
	acme := s.customer(t, "Acme")
	hidden, shown := acme.subscribe(t, object{"url": "https://example.com/", "is_active": false}), acme.create(t, "/api/v1/api-keys/", object{"name": "ci", "scope": "events:read"})
	p := open(t, s.base)
	p.visit(s.portalLink(t, acme, "owner"))
	p.expectPath("/console/keys/")
	p.in("navigation", "Pages").expect("API keys Audit log")
	p.in("navigation", "Pages").gone("Events")
	if width := evaluate[int](p, `document.querySelector(".brand img").naturalWidth`); width == 0 {
		t.Error("the logo does not load")
	}
	p.look("portal-pages")
	for _, path := range []string{"subscriptions/", "events/", "events/new/"} {
		p.visit("/console/" + path)
		p.expect("There is no such page")
	}
	p.visit("/console/keys/new/")
	p.expectElement("textbox", "Name")
	for _, id := range []string{shown, hidden} {
		p.visit("/console/audit/?id=" + acme.firstOf(t, "/api/v1/audit-events/?target="+id))
		p.in("region", "Entry").expect(id)
	}
	p.goneElement("link", hidden)
	o := open(t, s.base)
	o.signIn(operatorToken)
	o.visit("/console/?org=" + acme.id)
	o.in("navigation", "Pages").expect("Events")
}

// TestAPortalWithoutEvents leads to no page of events. In the same tab, the portal of another customer begins with its own first steps.
func TestAPortalWithoutEvents(t *testing.T) {
	t.Parallel()
	s, r := start(t, "KEYHOOK_CONSOLE_PORTAL_PAGES=subscriptions"), receive(t)
	acme, other := s.customer(t, "Acme"), s.customer(t, "Other")
	id := acme.subscribe(t, object{"url": r.url("hook"), "audit_events": false}) // a failing one has no first steps
	other.subscribe(t, object{"url": r.url("other")})
	var attempt struct {
		ID    string
		Event string `json:"event_id"`
	}
	r.answer("hook", http.StatusInternalServerError, "")
	acme.must(t, "POST", "/api/v1/webhooks/subscriptions/"+id+"/test/", object{}, &attempt)
	p := open(t, s.base)
	p.visit(s.portalLink(t, acme, "customer"))
	p.expect("The last test failed.")
	p.goneElement("link", "See why")
	p.visit("/console/subscriptions/" + id + "/?attempt=" + attempt.ID)
	p.in("region", "Attempt").expect(attempt.Event)
	p.in("region", "Attempt").goneElement("link", attempt.Event)

	r.answer("hook", http.StatusNoContent, "")
	p.visit("/console/")
	acme.publish(t, "order.paid", object{})
	p.expect("order.paid has arrived.")
	p.goneElement("link", "order.paid")
	p.allow(http.StatusConflict, "/api/v1/session/")
	p.visit(s.portalLink(t, other, "customer"))
	p.in("dialog", "Sign in with this link?").click("button", "Use the link")
	p.expect("Step 2 Send a test")
}

// firstOf returns the id of the first item of a list.
func (c *customer) firstOf(t *testing.T, path string) string {
	t.Helper()
	var list struct{ Data []struct{ ID string } }
	c.must(t, "GET", path, nil, &list)
	if len(list.Data) == 0 {
		t.Fatalf("nothing is in %s", path)
	}
	return list.Data[0].ID
}
