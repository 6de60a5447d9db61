package browser

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// subscriptions is the path of the API.
const subscriptions = "/api/v1/webhooks/subscriptions/"

// console returns the path of the page of a subscription.
func console(subscription string) string { return "/console/subscriptions/" + subscription + "/" }

// attempt returns the id of the newest attempt of a customer's subscription.
func (w *world) attempt(c *customer, subscription string) string {
	w.tb.Helper()
	var list struct{ Data []struct{ ID string } }
	c.must(w.tb, "GET", subscriptions+subscription+"/deliveries/?limit=1", nil, &list)
	if len(list.Data) == 0 {
		w.tb.Fatal("no attempt")
	}
	return list.Data[0].ID
}

func TestCreatingASubscription(t *testing.T) {
	t.Parallel()
	s, r := start(t), receive(t)
	c := s.customer(t, "Acme")
	c.publish(t, "order.paid", object{})
	p := open(t, s.base)
	p.signIn(c.token)
	p.visit("/console/subscriptions/")
	p.expect("No subscription yet")
	p.click("link", "New subscription")
	p.expectPath("/console/subscriptions/new/")

	p.allow(http.StatusUnprocessableEntity, subscriptions)
	p.click("checkbox", "A feed, without an address")
	p.goneElement("textbox", "Address")
	p.click("checkbox", "A feed, without an address")
	p.click("button", "Create subscription")
	p.expectFocus("textbox", "Address")
	p.fill("Address", "ftp://example.com/"+strings.Repeat("x", 1900))
	p.press("Enter")
	p.expect("Begin the URL with https:// or http://.")
	p.expectFocus("textbox", "Address")
	p.click("DisclosureTriangle", "More options")
	p.fill("Requests a second, at most", "0")
	p.click("button", "Create subscription")
	p.expect("Begin the URL with https:// or http://.")

	r.answer("hook", http.StatusUnauthorized, "wrong signature")
	p.fill("Address", r.url("hook?tenant=1"))
	p.gone("Begin the URL") // the error of what was typed before
	p.fill("Event types", "order.paid, invoice.*")
	p.press("Enter")
	p.expectElement("button", "Remove order.paid")
	p.expectElement("button", "Remove invoice.*")
	p.fill("Description", "Two\nlines "+nasty)
	p.fill("Requests a second, at most", "50")
	p.click("checkbox", "In order")
	p.click("button", "Add header")
	p.fill("Name of header 1", "X-Tenant")
	p.fill("Value of header 1", "seventeen")
	p.fill("External id", "shop")
	evaluate[any](p, `[...document.querySelectorAll("button")].find(b => b.textContent.includes("Create")).click();
		document.querySelector("form").requestSubmit()`) // a double click
	p.expect("Save the signing secret")
	var made struct {
		Data []struct {
			Description, ExternalID string
			Types                   []string `json:"event_types"`
			Ordered                 bool
			Pace                    int            `json:"rate_limit_per_second"`
			Headers                 map[string]any `json:"headers"`
			Audit                   bool           `json:"audit_events"`
		}
	}
	c.must(t, "GET", subscriptions, nil, &made)
	if len(made.Data) != 1 {
		t.Fatalf("there are %d subscriptions", len(made.Data))
	}
	if m := made.Data[0]; !m.Ordered || m.Pace != 50 || m.Audit || len(m.Headers) != 1 || strings.Join(m.Types, " ") != "order.paid invoice.*" || !strings.HasPrefix(m.Description, "Two\nlines <script>") {
		t.Errorf("created %+v", m)
	}
	p.in("region", "1. Save the signing secret").click("button", "Copy")
	secret := p.copied()
	if !strings.HasPrefix(secret, "whsec_") {
		t.Errorf("copied %q", secret)
	}
	for language, text := range map[string]string{"Go": "func genuine(h http.Header, body []byte) bool", "Node": "timingSafeEqual", "Python": "hmac.compare_digest"} {
		p.click("button", language)
		p.expect(text)
	}
	p.click("button", "Send test")
	p.expect("Response 401 The receiver refuses the request. Compare the signing secret")
	p.expect("wrong signature")
	r.answer("hook", http.StatusOK, nasty)
	p.click("button", "Send test again")
	p.expect(nasty)
	p.gone("Response 401")
	if got := r.arrived("hook")[1].header; got.Get("X-Tenant") != "seventeen" || got.Get("X-Service-Event-Type") != "webhook_test" {
		t.Errorf("the test arrived with %v", got)
	}
	p.look("subscription-created")

	p.in("navigation", "You are here").click("link", "Subscriptions") // the secret is not saved yet, so the page stays
	p.expect("Save it first: it cannot be shown again.")
	p.back()
	p.expectPath("/console/subscriptions/new/")
	p.expect(secret)
	p.click("button", "I have saved it")
	p.gone(secret)
	p.click("link", "Open subscription")
	p.expectElement("heading", strings.TrimPrefix(r.base, "http://")+"/hook")
	p.expect("webhook_test")
	p.expect("In order: an event waits for the one before it")
	p.expect("At most 50 requests a second")
	p.visit("/console/subscriptions/")
	p.in("row", "/hook").expect("in order · at most 50/s")
	p.look("subscriptions-traits")
}

// TestLeavingAForm types something, and leaves the page with a link and with the back button.
func TestLeavingAForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := open(t, w.base)
	p.signIn(w.acme.token)
	p.visit("/console/subscriptions/")
	p.click("link", "New subscription")
	p.fill("Address", "https://example.com/typed")
	dialog := p.in("dialog", "Leave without saving?")
	for _, leave := range []func(){func() { p.click("link", "Events") }, p.back} {
		leave()
		dialog.expect("What you typed is lost.")
		dialog.click("button", "Cancel")
		p.expectPath("/console/subscriptions/new/")
		if got := p.value("Address"); got != "https://example.com/typed" {
			t.Errorf("the field has %q", got)
		}
	}
	p.back()
	dialog.click("button", "Leave")
	p.expectPath("/console/subscriptions/")
	p.click("link", "New subscription")
	p.click("link", "Events") // nothing is typed
	p.expectPath("/console/events/")

	p.visit(console(w.acme.healthy) + "?tab=settings")
	p.fill("Description", "Changed")
	p.in("navigation", "Parts of the subscription").click("link", "Attempts")
	dialog.click("button", "Cancel")
	p.click("button", "Save changes")
	p.expect("Changes saved")
	p.in("navigation", "Parts of the subscription").click("link", "Attempts")
	p.expectPath(console(w.acme.healthy))
}

// TestAFilter makes a filter, tries it, and reads why an event did not pass.
func TestAFilter(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.customer(t, "Acme")
	c.publish(t, "order.paid", object{"amount": 99})
	c.publish(t, "order.paid", object{"amount": 150, "to": object{"country": "CH"}})
	p := open(t, s.base)
	p.signIn(c.token)
	p.visit("/console/subscriptions/new/")
	p.fill("Address", "https://hooks.example.com/")
	p.click("DisclosureTriangle", "More options")
	p.click("button", "Add condition")
	p.allow(http.StatusUnprocessableEntity, subscriptions)
	p.fill("Path of condition 1", "amount.")
	p.fill("Value of condition 1", "100")
	p.click("button", "Create subscription")
	p.expect("A path has 1 to 10 names")
	p.expectFocus("textbox", "Path of condition 1")
	p.fill("Path of condition 1", "amount")
	p.choose("Operator of condition 1", "is at least")
	p.click("button", "Add condition")
	p.fill("Path of condition 2", "to.country")
	p.fill("Value of condition 2", "CH")
	p.click("button", "Try it on recent events")
	p.expect("1 of 2 recent events pass.")
	p.look("subscription-filter")
	p.click("button", "Create subscription")
	p.expect("Save the signing secret")
	var made struct{ Data []object }
	c.must(t, "GET", subscriptions, nil, &made)
	if got := fmt.Sprint(made.Data[0]["filter"]); got != "[map[op:gte path:amount value:100] map[op:eq path:to.country value:CH]]" {
		t.Error(got)
	}
	event := c.publish(t, "order.paid", object{"amount": 99})
	p.click("button", "I have saved it")
	p.visit("/console/events/" + event + "/")
	p.expect("Sent nowhere, because it passes no filter")
	p.expect("amount gte 100. The event has 99.")
	p.visit("/console/subscriptions/")
	p.in("row", "hooks.example.com").expect("filtered")
	p.visit("/console/subscriptions/" + made.Data[0]["id"].(string) + "/?tab=settings")
	p.expect("Filter amount is at least 100, and to.country is CH")
	p.click("button", "Remove condition 1")
	p.click("button", "Save changes")
	p.expect("Changes saved")
	c.must(t, "GET", subscriptions, nil, &made)
	if got := fmt.Sprint(made.Data[0]["filter"]); got != "[map[op:eq path:to.country value:CH]]" {
		t.Error(got)
	}
}

func TestTheAttemptsOfASubscription(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.acme
	p := open(t, w.base)
	p.signIn(a.token)
	p.visit("/console/subscriptions/")
	p.choose("Status", "Needs attention")
	p.expectPath("/console/subscriptions/?status=failing%2Cdisabled")
	p.in("table", "Subscriptions").expect("/disabled")
	p.gone("/healthy")
	p.gone("/paused") // a person paused it
	p.click("link", "/failing")
	p.expect("Failing: 5 failures in a row")
	p.expect("The receiver answered 503, since")
	p.in("navigation", "Period").click("link", "1 y")
	p.expectPath(console(a.failing) + "?range=1y")
	p.expect("0 succeeded 5 failed")

	p.choose("Outcome", "Succeeded")
	p.expect("No attempt matches the filters")
	p.choose("Outcome", "Failed")
	p.fill("Type", "invoice.created")
	p.press("Enter")
	p.in("navigation", "Period").click("link", "1 h")
	p.in("table", "Attempts").expect("503 invoice.created evt_")
	p.expectPath(console(a.failing) + "?range=1h&outcome=failed&type=invoice.created")
	p.click("link", "Clear filters")
	p.expectPath(console(a.failing) + "?range=1h")
	p.visit(console(a.failing) + "?range=custom&since=2999-01-01T00:00:00.000Z")
	p.expect("No attempt matches the filters")

	p.visit(console(a.failing))
	p.in("navigation", "Period").click("link", "24 h") // the pointer is not on the chart
	evaluate[any](p, `document.querySelector(".chart-box").focus()`)
	p.press("End")
	p.press("Enter") // the last bar, which has the attempts
	p.in("table", "Attempts").expect("#5")
	p.expect("0 succeeded 5 failed")
	if !strings.Contains(p.path(), "?range=custom&since=") || !strings.Contains(p.path(), "&until=") {
		t.Errorf("the page is at %s", p.path())
	}
	p.expectElement("link", "From … to")
	p.back()
	p.expectPath(console(a.failing) + "?range=24h")
	evaluate[any](p, `document.querySelector(".chart-box").focus()`)
	p.press("Home")
	evaluate[any](p, `document.querySelector(".chart-over a").dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true}))`)
	p.expect("No attempt matches the filters")
	p.expect("0 succeeded 0 failed")
	p.look("subscription-bar")
	p.in("navigation", "Period").click("link", "24 h")
	evaluate[any](p, `(async () => { // a drag over the whole chart
		const box = document.querySelector(".chart-box"), {left, right, top} = box.getBoundingClientRect();
		const at = (type, x) => box.dispatchEvent(new PointerEvent(type, {clientX: x, clientY: top + 50, pointerType: "mouse", bubbles: true, cancelable: true}));
		for (const [type, x] of [["pointerdown", left + 45], ["pointermove", right - 60], ["click", right - 60]]) {
			at(type, x);
			await new Promise(requestAnimationFrame);
			await new Promise(requestAnimationFrame);
		}
	})()`)
	p.in("table", "Attempts").expect("#5")
	dragged, err := url.Parse(p.path())
	if err != nil {
		t.Fatal(err)
	}
	since, _ := time.Parse(time.RFC3339, dragged.Query().Get("since"))
	until, _ := time.Parse(time.RFC3339, dragged.Query().Get("until"))
	if until.Sub(since) < 23*time.Hour {
		t.Errorf("the drag selects %s to %s", since, until)
	}

	attempt := w.attempt(a, a.failing)
	p.visit(console(a.failing))
	p.in("row", "#5").expect("503")
	p.in("row", "#5").click("link", "invoice.created")
	p.expectPath(console(a.failing) + "?attempt=" + attempt)
	panel := p.in("region", "Attempt")
	panel.expect("Not delivered")
	if room := evaluate[float64](p, `document.querySelector(".filters").getBoundingClientRect().top - document.querySelector(".head").getBoundingClientRect().bottom`); room < 0 {
		t.Errorf("the head covers %.0f px of the filters", -room)
	}
	panel.expect("<html><h1>Down for maintenance</h1><script>alert(1)</script></html>")
	panel.expect("X-Request-Id request-of-failing")
	panel.click("DisclosureTriangle", "2 response headers")
	panel.expect("Content-Type: text/html; charset=utf-8")
	panel.expect("X-Service-Signature: ***")
	panel.expect(`"invoice": 1`)
	panel.click("button", "Copy as curl")
	if got := p.copied(); !strings.HasPrefix(got, "curl '"+w.receiver.url("failing")+"'") || !strings.Contains(got, `"data":{"invoice":1}}'`) || strings.Contains(got, "***") {
		t.Errorf("copied %s", got)
	}
	panel.click("link", "Close the attempt")
	p.expectPath(console(a.failing))
	p.back()
	p.expectPath(console(a.failing) + "?attempt=" + attempt)
	p.press("Escape")
	p.expectPath(console(a.failing))
	p.press("Enter") // the focus is in the list
	p.expectPath(console(a.failing) + "?attempt=" + attempt)

	before := len(w.receiver.arrived("failing"))
	panel.click("button", "Send again")
	panel.expect("A new delivery of the event was created")
	w.receiver.await(t, "failing", before+1)
	p.visit(console(a.healthy) + "?attempt=" + w.attempt(a, a.healthy))
	panel.expect("204")
	panel.goneElement("alert", "")
	panel.click("button", "Send again…")
	p.in("dialog", "Send this event again?").click("button", "Cancel")
	a.publish(t, "order.paid", object{"order": 99})
	p.expect("1 new")
	p.click("button", "1 new")
	p.gone("1 new")
}

func TestRecoveringASubscription(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.acme
	p := open(t, w.base)
	p.signIn(a.token)
	p.visit(console(a.failing))
	p.click("button", "Recover…")
	dialog := p.in("dialog", "Recover after an outage")
	dialog.gone("that wait now")
	dialog.expect("1 event given up since")
	w.receiver.answer("failing", http.StatusNoContent, "")
	before := len(w.receiver.arrived("failing"))
	dialog.click("button", "Recover 1 event")
	p.goneElement("dialog", "Recover after an outage")
	p.in("status", "What was done").expect("Recovered. 1 event is sent.")
	p.in("navigation", "Pages").expect("1 need attention") // at once, and not when it is counted again after 30 s
	p.expect("Healthy")
	w.receiver.await(t, "failing", before+1)
	p.look("subscription-recovered")
	p.click("button", "Close the message")
	p.gone("1 event is sent")

	p.visit(console(a.paused))
	p.expect("Paused by Owner of Acme: nothing is sent")
	p.click("button", "More")
	p.allow(http.StatusConflict, subscriptions)
	p.click("menuitem", "Recover")
	dialog = p.in("dialog", "Recover after an outage")
	dialog.click("checkbox", "Resume the subscription, although a person has paused it")
	dialog.expect("4 deliveries that wait now")
	p.press("Escape")
	p.goneElement("dialog", "Recover after an outage")
	p.expect("Paused by Owner of Acme: nothing is sent")
	p.click("button", "Resume")
	p.in("dialog", "Resume").click("button", "Resume and send 4 deliveries")
	p.in("status", "What was done").expect("Resumed. 4 deliveries are sent.")
	w.receiver.await(t, "paused", 4)
	p.gone("Paused by Owner of Acme: nothing is sent")
	p.click("button", "Pause")
	p.expect("Paused by Owner of Acme: nothing is sent")
	a.publish(t, "customer.created", object{})
	p.visit(console(a.paused))
	p.click("button", "More")
	p.click("menuitem", "Discard")
	dialog = p.in("dialog", "Discard what waits?")
	dialog.fill("Type discard to confirm", "discar")
	dialog.expectElement("button", "Discard 1 delivery")
	p.press("Enter")
	p.press("d")
	p.press("Enter")
	p.expect("Discarded 1 delivery.")
	p.expect("No delivery waits")

	w.receiver.answer("disabled", http.StatusNoContent, "")
	p.visit(console(a.disabled))
	p.expect("Disabled after 15 failures in a row")
	p.click("button", "More")
	p.click("menuitem", "Delete")
	dialog = p.in("dialog", "Delete this subscription?")
	dialog.fill("to confirm", strings.TrimPrefix(w.receiver.base, "http://"))
	dialog.click("button", "Delete subscription")
	p.expectPath("/console/subscriptions/")
	p.expect("The subscription was deleted.")
	p.expect("/healthy")
	p.gone("/disabled")
	p.allow(http.StatusNotFound, subscriptions)
	p.visit(console(a.disabled) + "?attempt=" + w.attempt(a, a.disabled))
	p.expect("This subscription was deleted: nothing is sent")
	p.in("region", "Attempt").expect("panic: nil map")
	p.goneElement("button", "Send again")
	p.visit(console("sub_01h455vb4pex5vsknk084sn02q"))
	p.expect("This subscription cannot be shown")
}

func TestReplayAndRotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.acme
	p := open(t, w.base)
	p.signIn(a.token)
	p.visit(console(a.healthy) + "?tab=settings")
	p.fill("Event types", "customer.*")
	p.press("Enter")
	p.fill("Description", "Orders and customers")
	p.click("button", "Save changes")
	p.expect("Changes saved")
	p.click("button", "Add header")
	p.fill("Name of header 1", "Authorization")
	p.fill("Value of header 1", "Bearer abcdefgh")
	p.click("button", "Save changes")
	p.expect("Changes saved")
	p.fill("Address", "https://example.com/elsewhere")
	p.allow(http.StatusUnprocessableEntity, subscriptions+a.healthy)
	p.click("button", "Save changes")
	p.expect("Send the value")

	p.visit(console(a.healthy))
	p.expect("Orders and customers")
	p.click("button", "More")
	p.click("menuitem", "Replay")
	dialog := p.in("dialog", "Replay missed events")
	dialog.expect("4 events: the subscription did not want the type then")
	dialog.choose("Which events", "Those that were given up")
	dialog.expect("No event of this period is missing.")
	dialog.choose("Which events", "Those that never had a delivery")
	p.look("subscription-replay")
	dialog.click("button", "Replay 4 events")
	p.expect("4 missed events are sent.")
	w.receiver.await(t, "healthy", 16)

	p.click("button", "More")
	p.click("menuitem", "Rotate")
	dialog = p.in("dialog", "Rotate the signing secret")
	dialog.click("button", "Cancel")
	p.goneElement("dialog", "Rotate the signing secret")
	p.click("button", "More")
	p.click("menuitem", "Rotate")
	dialog.choose("Overlap", "1 hour")
	dialog.click("button", "Rotate secret")
	p.expect("The old secret also signs for 1 hour")
	p.press("Escape")
	p.click("button", "I have saved it")
	p.click("button", "More")
	p.click("menuitem", "Rotate")
	p.allow(http.StatusConflict, subscriptions+a.healthy)
	dialog.click("button", "Rotate secret")
	dialog.expect("The overlap of the last rotation has not ended")
	dialog.fill("Type “rotate”", "rotate")
	dialog.click("button", "End the overlap and rotate")
	p.expect("New signing secret")
	p.click("button", "I have saved it")
	p.expect("The signing secret was rotated.")
	p.click("link", "Events")
	p.gone("The signing secret was rotated.") // another page
}

func TestWhoMayOnlyReadSubscriptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, "/api/v1/roles/", object{"name": "reader", "permissions": []string{"webhooks:read"}})
	user := w.create(t, "/api/v1/users/", object{"name": "Reader", "email": "reader@example.com"})
	w.must(t, "PUT", "/api/v1/organizations/"+w.acme.id+"/members/"+user+"/", object{"role": "reader"}, nil)
	var token struct{ Token string }
	w.must(t, "POST", "/api/v1/users/"+user+"/access-tokens/", object{"organization_id": w.acme.id}, &token)
	p := open(t, w.base)
	p.signIn(token.Token)
	p.visit("/console/subscriptions/")
	p.expect("Orders to the warehouse")
	p.goneElement("link", "New subscription")
	p.visit("/console/subscriptions/new/")
	p.expect("It needs the permission webhooks:write")
	p.visit(console(w.acme.failing) + "?attempt=" + w.attempt(w.acme, w.acme.failing))
	p.expect("Your role does not show the body. It needs the permission events:read.")
	for _, button := range []string{"Send test", "Pause", "More", "Recover…", "Recover subscription…", "Send again"} {
		p.goneElement("button", button)
	}
	p.click("link", "Settings")
	p.expect("Request headers None")
	p.goneElement("button", "Save changes")
	p.allow(http.StatusNotFound, "/api/v1/webhooks/")
	p.visit(console(w.other.healthy))
	p.expect("It was deleted, or it is not in this organization.")

	p.signIn(operatorToken)
	p.visit("/console/subscriptions/?in=all&status=failing")
	p.in("row", "hostile").expect(w.hostile.name[:9])
	p.in("row", w.acme.name).click("link", "/failing")
	p.expectPath(console(w.acme.failing) + "?org=" + w.acme.id)
	p.visit(console(w.other.healthy) + "?org=" + w.other.id)
	p.expect(w.receiver.url("other"))
	p.click("button", "Send test")
	p.in("region", "Attempt").expect("webhook_test")
	p.in("navigation", "You are here").click("link", "Subscriptions")
	p.expectPath("/console/subscriptions/?org=" + w.other.id)
}

func TestWhatStopsASubscription(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(t, "POST", "/api/v1/queue/hold/", object{"reason": "test"}, nil)
	w.acme.publish(t, "order.paid", object{})
	p := open(t, w.base)
	p.signIn(w.acme.token)
	p.visit(console(w.acme.paused))
	p.expect("The subscription is paused: events wait until it is resumed.")
	p.gone("Waiting for the first event")
	p.visit(console(w.acme.healthy))
	p.expect("All sending is stopped for now 1 delivery waits.")
	p.gone("Release it")
	p.allow(http.StatusConflict, subscriptions)
	p.click("button", "Send test")
	p.expect("Test again after the release.")
	p.signIn(operatorToken)
	p.visit(console(w.acme.healthy) + "?org=" + w.acme.id)
	p.expectElement("link", "Release it on the page System")
	p.look("subscription-held")
	w.must(t, "POST", "/api/v1/queue/release/", nil, nil)
	p.gone("All sending is stopped")

	w.must(t, "POST", "/api/v1/plans/", object{"name": "bare", "webhooks": false, "api_keys": true, "api_rate_limit_per_minute": 100}, nil)
	w.must(t, "PATCH", "/api/v1/organizations/"+w.acme.id+"/", object{"plan": "bare"}, nil)
	p.signIn(w.acme.token)
	p.visit("/console/subscriptions/")
	p.expect("The plan bare has no webhooks")
	p.visit("/console/subscriptions/new/")
	p.expect("Ask the provider of this service for a plan that has them.")
	p.goneElement("textbox", "Address")
	p.visit(console(w.acme.failing) + "?attempt=" + w.attempt(w.acme, w.acme.failing))
	p.in("region", "Attempt").expect("Nothing can be sent before the provider of this service changes it.")
	p.allow(http.StatusForbidden, subscriptions)
	p.in("region", "Attempt").click("button", "Send again")
	p.in("region", "Attempt").expect("The provider of this service can change the plan.")
}

// TestALongAddress: the host and the path have half of the cell each, side by side. A short host leaves its room to the path.
func TestALongAddress(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.customer(t, "Acme")
	path := "/" + strings.Repeat("part/", 40)
	for _, host := range []string{"hooks.eu-central-1.internal.a-long-name-of-a-customer.example", "a.example"} {
		c.subscribe(t, object{"url": "https://" + host + path, "is_active": false})
	}
	p := open(t, s.base)
	p.signIn(c.token)
	p.visit("/console/subscriptions/")
	p.expect("a.example")
	type widths struct{ Cell, Host, Path, Gap float64 }
	shown := evaluate[[]widths](p, `[...document.querySelectorAll(".address")].map((address) => {
		const [cell, host, path] = [address, ...address.children].map((e) => e.getBoundingClientRect());
		return {cell: cell.width, host: host.width, path: path.width, gap: path.left - host.right};
	})`)
	if len(shown) != 2 {
		t.Fatalf("%d addresses", len(shown))
	}
	short, long := shown[0], shown[1]
	if short.Host > long.Host {
		short, long = long, short
	}
	if long.Path > long.Cell*0.51 || long.Host < long.Cell*0.49 || long.Gap > 1 {
		t.Errorf("a long host: %+v", long)
	}
	if short.Path < short.Cell*0.6 || short.Gap > 1 {
		t.Errorf("a short host: %+v", short)
	}
}

// TestTheLineOfAChart is drawn where enough attempts were made for a 95th percentile.
func TestTheLineOfAChart(t *testing.T) {
	t.Parallel()
	s, r := start(t), receive(t)
	c := s.customer(t, "Acme")
	id := c.subscribe(t, object{"url": r.url("hook"), "audit_events": false})
	p := open(t, s.base)
	p.signIn(c.token)
	for _, count := range []struct{ events, all int }{{4, 4}, {8, 12}} { // of twelve, one step has five, even if a step ends between them
		for range count.events {
			c.publish(t, "order.paid", object{})
		}
		r.await(t, "hook", count.all)
		c.await(t, id, "pending_deliveries", "0")
		p.visit("/console/subscriptions/" + id + "/")
		p.in("group", "").expect(fmt.Sprint(count.all))
		line := evaluate[string](p, `document.querySelector(".chart-line").getAttribute("d")`)
		if isDrawn := line != ""; isDrawn != (count.all == 12) {
			t.Errorf("the line of %d attempts is %q", count.all, line)
		}
	}
}
