package browser

import (
	"net/http"
	"strings"
	"testing"
)

// newest returns the id of a customer's newest event of a type.
func (w *world) newest(c *customer, eventType string) string {
	w.tb.Helper()
	var list struct{ Data []struct{ ID string } }
	c.must(w.tb, "GET", "/api/v1/events/?limit=1&type="+eventType, nil, &list)
	if len(list.Data) == 0 {
		w.tb.Fatalf("no event of the type %s", eventType)
	}
	return list.Data[0].ID
}

// entry returns the id of the newest entry of a customer's audit log about an API key.
func (w *world) entry(c *customer) string {
	w.tb.Helper()
	var list struct{ Data []struct{ ID string } }
	c.must(w.tb, "GET", "/api/v1/audit-events/?limit=1&type=api_key_created", nil, &list)
	if len(list.Data) == 0 {
		w.tb.Fatal("no entry")
	}
	return list.Data[0].ID
}

// eventPage returns the path of the page of an event.
func eventPage(event string) string { return "/console/events/" + event + "/" }

func TestTheListOfEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.acme
	p := open(t, w.base)
	p.signIn(a.token)
	p.visit("/console/events/")
	p.in("row", a.event).expect("1 delivered")
	p.in("row", "invoice.created").expect("1 gave up")
	p.gone("webhook_subscription_created")
	p.click("checkbox", "Audit events")
	p.expect("webhook_subscription_created")
	p.expectPath("/console/events/?audit=with")
	p.click("checkbox", "Audit events")
	p.fill("Type", "invoice.*")
	p.press("Enter")
	p.gone("order.paid")
	p.expectPath("/console/events/?type=invoice.*")
	p.fill("Type", "")
	p.press("Enter")
	p.choose("State", "Gave up")
	p.gone("order.paid")
	p.in("row", "invoice.created").expect("1 gave up")
	p.expectPath("/console/events/?state=exhausted")
	p.choose("Time", "Last hour")
	p.expectPath("/console/events/?state=exhausted&range=1h")
	p.back() // takes back the last filter
	p.expectPath("/console/events/?state=exhausted")
	p.choose("Time", "Last hour")
	p.visit("/console/events/?key=unknown")
	p.expect("No event matches the filters")
	evaluate[any](p, `document.querySelector(".empty a").click()`) // the filters have such a link too
	p.expectPath("/console/events/")
	p.in("row", a.event).expect("1 delivered")
	evaluate[any](p, `document.querySelectorAll(".row-link")[2].focus()`) // the list does not move under who reads it
	live := a.publish(t, "order.live", object{})
	p.click("button", "1 new")
	p.in("row", "order.live").expect(live)
	many := make([]object, 52) // more than a page, so the first page says nothing about the oldest two
	for i := range many {
		many[i] = object{"type": "many.more", "data": object{}}
	}
	many[0]["type"] = "many.first"
	a.must(t, "POST", "/api/v1/events/batch/", object{"events": many}, nil)
	p.expect("many.more")
	p.click("button", "Show more")
	p.in("row", "many.first").expect("nowhere")
	p.in("row", "order.live").expect(live)
	p.in("row", "many.first").click("link", "many.first")
	p.expectElement("heading", "many.first")
	p.back() // to the row, which is on the second page of the list
	p.in("row", "many.first").expect("nowhere")
	p.await(func() string {
		if evaluate[int](p, "scrollY") == 0 {
			return "the list is at its beginning"
		}
		return ""
	})

	p.signIn(operatorToken)
	p.visit("/console/events/?in=all&type=order.live")
	p.click("link", "order.live")
	p.expectPath(eventPage(live) + "?org=" + a.id)
	p.expectElement("heading", "order.live")
}

func TestSendingAListOfEventsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.acme
	p := open(t, w.base)
	p.signIn(a.token)
	p.visit("/console/events/?state=pending")
	p.expect("customer.updated")
	p.goneElement("button", "these…")
	p.visit("/console/events/?type=invoice.created") // other events may give up meanwhile
	p.choose("State", "Gave up")
	p.in("row", "invoice.created").expect("1 gave up")
	p.click("button", "Recover these…")
	dialog := p.in("dialog", "Recover these events")
	dialog.expect("1 delivery of 1 event, to 1 subscription")
	p.look("events-recover")
	w.receiver.answer("failing", http.StatusNoContent, "")
	before := len(w.receiver.arrived("failing"))
	dialog.click("button", "Recover 1 delivery")
	p.goneElement("dialog", "Recover these events")
	w.receiver.await(t, "failing", before+1)
	p.visit("/console/events/?state=exhausted&type=invoice.created")
	p.click("button", "Recover these…")
	dialog = p.in("dialog", "Recover these events")
	dialog.expect("0 deliveries of 1 event")
	dialog.click("button", "Cancel")

	p.visit("/console/events/?state=delivered&type=invoice.created")
	p.click("button", "Redeliver these…")
	p.in("dialog", "Redeliver these events").click("button", "Redeliver 1 delivery")
	p.goneElement("dialog", "Redeliver these events")
	w.receiver.await(t, "failing", before+2)
	p.visit("/console/events/?state=exhausted&key=order-1")
	p.expect("No event matches the filters")
	p.goneElement("button", "these…")
}

func TestAnEventThatHasNotArrived(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.acme
	p := open(t, w.base)
	p.signIn(a.token)

	p.visit(eventPage(w.newest(a, "invoice.created")))
	p.expect("Not delivered: given up after 5 attempts. The receiver answered 503.")
	p.expect("<html><h1>Down for maintenance</h1><script>alert(1)</script></html>")
	p.expect("The receiver, or a proxy in front of it, has a fault.")
	p.in("listitem", "/failing").expect(": the receiver answered 503.")
	p.gone("http_status")
	p.expectElement("link", "Request as sent")
	p.expect("X-Request-Id request-of-failing")
	p.gone("text/html")
	p.click("DisclosureTriangle", "2 response headers")
	p.expect("Content-Type: text/html; charset=utf-8")
	p.look("event-attempt")
	w.receiver.answer("failing", http.StatusNoContent, "")
	p.click("button", "Recover subscription…")
	p.click("button", "Recover 1 event")
	p.goneElement("dialog", "Recover after an outage")
	p.expect("Recovered. 1 event is sent.")
	p.expect("Delivered to " + strings.TrimPrefix(w.receiver.base, "http://") + " at")
	p.expectElement("button", "6 attempts")

	p.visit(eventPage(w.newest(a, "customer.updated")))
	p.expect("Not delivered yet: the delivery waits, because its subscription is paused.")
	p.click("button", "Resume…")
	p.click("button", "Resume and send 4 deliveries")
	p.expect("Delivered to")

	p.visit(eventPage(a.event))
	p.expect("the receiver answered attempt 1 with 204.")
	p.click("DisclosureTriangle", "Not sent to 3 subscriptions")
	p.in("listitem", "/failing").click("button", "Add this type…")
	p.click("button", "Add type and send 1 event")
	p.expect("Delivered to all 2 subscriptions.")
	w.receiver.await(t, "failing", 7)

	p.click("link", "Exact bytes")
	p.click("button", "Copy: The exact body")
	if got := p.copied(); got != w.receiver.arrived("failing")[6].body {
		t.Errorf("copied %s", got)
	}
	p.in("listitem", "/healthy").click("button", "1 attempt")
	p.in("listitem", "/healthy").click("DisclosureTriangle", "204")
	p.expect("The answer has no body.")
	p.in("listitem", "/healthy").click("button", "Send again…")
	p.expect("It has arrived already.")
	p.click("button", "Send 1 event again")
	p.expect("1 event is sent again.")
	p.in("listitem", "/healthy").expectElement("button", "2 attempts")
	w.receiver.await(t, "healthy", 13)
}

func TestTheBodyOfAnEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.acme
	lines := make([]object, 60)
	for i := range lines {
		lines[i] = object{"number": 9007199254740993, "name": "A \"quoted\" part " + nasty, "open": true}
	}
	id := a.publish(t, "order.paid", object{"order": 1001, "lines": lines, "none": []int{}, "address": object{"city": "Bern"}})
	p := open(t, w.base)
	p.signIn(a.token)
	p.visit(eventPage(id))
	p.expect("Delivered to")
	body := p.in("region", "The body")
	body.expect(`"city": "Bern"`)
	body.expect(`"lines": [ 60 … ],`) // long lists are folded at first
	body.gone("9007199254740993")
	p.look("event-folded")
	body.click("DisclosureTriangle", `"lines": [`)
	body.expect(`{ "name": "A \"quoted\" part `)
	body.expect(`"number": 9007199254740993, "open": true },`)
	body.click("DisclosureTriangle", `"address": {`)
	body.gone("Bern")
	place := func() (is struct{ Left, Right, Below, Bottom float64 }) {
		return evaluate[struct{ Left, Right, Below, Bottom float64 }](p, `(() => {
			const [list, body] = [".deliveries", ".code:has(.tree)"].map(s => document.querySelector(s).getBoundingClientRect());
			return {Left: body.left, Right: list.right, Below: list.bottom, Bottom: body.top};
		})()`)
	}
	if at := place(); at.Left <= at.Right {
		t.Errorf("the body begins at %.0f px, and the deliveries end at %.0f px", at.Left, at.Right)
	}
	p.show(light, phone)
	if at := place(); at.Bottom < at.Below {
		t.Errorf("on a phone, the body is not below the deliveries: %+v", at)
	}
}

func TestAnEventThatAnOperatorHolds(t *testing.T) {
	t.Parallel()
	s, r := start(t), receive(t)
	c := s.customer(t, "Acme")
	c.subscribe(t, object{"url": r.url("hook"), "audit_events": false})
	s.must(t, "POST", "/api/v1/queue/hold/", object{"reason": fit("maintenance "+nasty, 100)}, nil)
	held := c.publish(t, "order.paid", object{})
	s.must(t, "PATCH", "/api/v1/organizations/"+c.id+"/", object{"plan": "free"}, nil)
	missed := c.publish(t, "order.paid", object{})
	p := open(t, s.base)
	p.signIn(c.token)
	p.visit(eventPage(held))
	p.expect("the delivery waits, because the plan has no webhooks")
	p.expect("The provider of this service can change the plan.")
	s.must(t, "PATCH", "/api/v1/organizations/"+c.id+"/", object{"plan": "growth"}, nil)
	p.visit(eventPage(held))
	p.expect("Not delivered yet: the delivery waits, because all sending is stopped.")
	p.expect("The provider of this service starts it again.")

	p.signIn(operatorToken)
	p.visit(eventPage(held) + "?org=" + c.id)
	p.click("button", "Release the queue…")
	p.expect("maintenance <script>")
	p.click("button", "Release 1 delivery")
	p.expect("Delivered to")
	p.visit(eventPage(missed) + "?org=" + c.id)
	p.expect("Sent nowhere, because the plan had no webhooks.")
	p.click("button", "Send this event…")
	evaluate[any](p, `{ const send = [...document.querySelectorAll("dialog button")].find(b => b.textContent === "Send 1 event"); send.click(); send.click(); }`)
	p.expect("Delivered to")
	if got := len(r.arrived("hook")); got != 2 {
		t.Errorf("%d requests have arrived, not 2", got)
	}
}

func TestPublishingByHand(t *testing.T) {
	t.Parallel()
	s, r := start(t), receive(t)
	c := s.customer(t, "Acme")
	p := open(t, s.base)
	p.signIn(c.token)
	p.visit("/console/events/")
	p.expect("Waiting for the first event…")
	p.visit("/console/events/new/")
	p.allow(http.StatusUnprocessableEntity, "/api/v1/events/")
	p.fill("Type", "Order paid")
	p.press("Enter")
	p.expect("This must be an event type")
	p.expectFocus("combobox", "Type")
	p.fill("Type", "order.paid")
	p.fill("Data", "{\n \"total\": 12.50,\n}")
	p.click("button", "Publish event")
	p.expect("Line 2, column 16: Remove the comma before }.")
	p.expectFocus("textbox", "Data")
	p.fill("Data", `[]`)
	p.click("button", "Publish event")
	p.expect("This must be an object")
	p.fill("Data", `{"total": 12.50, "id": 12345678901234567890, "text": "שלום"}`)
	p.click("button", "Format")
	const double = `[...document.querySelectorAll("button")].find(b => b.textContent === "Publish event").click(); document.querySelector("form.form").requestSubmit()`
	evaluate[any](p, double)
	p.expect("Published, and sent nowhere")
	p.expect("No subscription wants the type order.paid.")
	c.subscribe(t, object{"url": r.url("hook"), "audit_events": false})
	c.subscribe(t, object{"url": r.url("paused"), "is_active": false, "audit_events": false})
	p.fill("Idempotency key", "order-1")
	evaluate[any](p, double)
	p.expect("Published for 2 subscriptions")
	p.expect("1 of them is disabled")
	p.look("event-published")
	p.click("link", "See it arrive")
	p.expect("Delivered to 1 of 2 subscriptions; 1 waits, because its subscription is paused.")
	p.expect("order-1")
	p.expect(`"total": 12.50, "id": 12345678901234567890, "text": "שלום"`)
	if got := r.arrived("hook"); len(got) != 1 || !strings.Contains(got[0].body, `"data":{"total":12.50,"id":12345678901234567890,"text":"שלום"}`) {
		t.Errorf("arrived: %v", got)
	}
	var list struct{ Data []struct{ ID string } }
	c.must(t, "GET", "/api/v1/events/?type=order.paid", nil, &list)
	if len(list.Data) != 2 {
		t.Errorf("%d events were published, not 2", len(list.Data))
	}
}

func TestTheAuditLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.acme
	member := w.create(t, "/api/v1/users/", object{"name": "Ana " + nasty, "email": "ana@example.com"})
	for _, role := range []string{"owner", "member"} {
		w.must(t, "PUT", "/api/v1/organizations/"+a.id+"/members/"+member+"/", object{"role": role}, nil)
	}
	p := open(t, w.base)
	p.signIn(a.token)
	p.visit("/console/audit/")
	p.in("row", "Revoked the API key Old laptop").expect("Owner of Acme")
	p.in("row", "was disabled").expect(strings.TrimPrefix(w.receiver.base, "http://") + " …" + a.disabled[len(a.disabled)-6:] + " was disabled")
	p.choose("What", "Created the API key")
	p.goneElement("link", "Revoked the API key")
	p.click("link", "Created the API key Back end")
	entry := p.in("region", "Entry")
	entry.expect("events:write")
	entry.expect("127.0.0.1")
	entry.click("link", "Its history")
	p.choose("What", "All")
	p.gone("Old laptop")
	p.press("Escape") // leaves the filter
	p.press("Escape")
	p.goneElement("region", "Entry")
	p.visit("/console/audit/?type=member_set")
	p.expect("Set the role of the user " + member)
	evaluate[any](p, `document.querySelector(".row-link").click()`)
	p.in("region", "Entry").expect("owner became member")
	p.in("region", "Entry").click("link", "Only these changes")
	p.expect("Set the role of the user " + member)
	p.reload()
	p.in("region", "Entry").expect("owner became member")
	p.choose("Time", "Last hour")
	p.choose("Who", "This service")
	p.choose("What", "Revoked the API key")
	p.expect("No entry matches the filters")

	var other struct{ Data []struct{ ID string } }
	w.other.must(t, "GET", "/api/v1/audit-events/?limit=1", nil, &other)
	p.allow(http.StatusNotFound, "/api/v1/audit-events/")
	p.visit("/console/audit/?id=" + other.Data[0].ID)
	p.expect("This entry cannot be shown")

	p.signIn(operatorToken)
	p.visit("/console/audit/?in=all&type=api_key_revoked")
	p.in("row", "Old laptop").expect("Acme")
}

// TestTheFirstFilterDoesNotMoveTheTable: the link that clears the filters has its place beside them.
func TestTheFirstFilterDoesNotMoveTheTable(t *testing.T) {
	t.Parallel()
	s, r := start(t), receive(t)
	c := s.customer(t, "Acme")
	c.subscribe(t, object{"url": r.url("hook"), "audit_events": false})
	p := open(t, s.base)
	p.signIn(operatorToken)
	p.show(light, desktop)
	height := func(query string) float64 {
		p.visit("/console/events/?org=" + c.id + query)
		p.expectElement("combobox", "Subscription")
		return evaluate[float64](p, `document.querySelector(".filters").getBoundingClientRect().height`)
	}
	without := height("")
	if with := height("&state=pending"); with != without {
		t.Errorf("the filters are %v px high, and %v px with one that is set", without, with)
	}
	p.in("search", "Filters").expectElement("link", "Clear filters")
}
