package browser

import (
	"net/http"
	"strings"
	"testing"
)

// describe puts types into the catalogue: one that customers use, and one with every text hostile.
func (w *world) describe(t *testing.T) {
	t.Helper()
	long := strings.Repeat("x", 500)
	for eventType, fields := range map[string]object{
		"order.paid":         {"description": "An order was paid.", "group": "Orders", "example": object{"order": 1001, "total": "12.50"}, "schema": object{"type": "object"}},
		"order.shipped":      {"description": "An order left the warehouse.", "group": "Orders"},
		"long." + long[:120]: {"description": fit(nasty+long, 500), "group": fit(nasty+long, 100), "example": object{"html": nasty, "long": long}},
	} {
		w.must(t, "PUT", "/api/v1/event-types/"+eventType+"/", fields, nil)
	}
}

// TestTheCatalogue has an operator describe a type, and a customer choose it, test it, and publish a misspelt one.
func TestTheCatalogue(t *testing.T) {
	t.Parallel()
	s, r := start(t), receive(t)
	c := s.customer(t, "Acme")
	c.publish(t, "user.created", object{})
	p := operate(t, s)
	p.visit("/console/event-types/")
	p.expect("No event type yet")
	p.look("event-types-empty")
	p.click("button", "New event type")
	dialog := p.in("dialog", "")
	p.allow(http.StatusUnprocessableEntity, "/api/v1/event-types/")
	dialog.fill("Type", "Order.Paid")
	dialog.click("button", "Add event type")
	dialog.expect("This must be an event type such as user.created")
	dialog.fill("Type", "order.paid")
	dialog.fill("Description", "An order was paid.")
	dialog.fill("Group", "Orders")
	dialog.fill("Example", `{"order": 1001,}`)
	dialog.expect("Line 1, column 15: Remove the comma before }.")
	dialog.fill("Example", `{"order": 1001, "rate": 1.10}`)
	dialog.fill("Schema", "[]")
	dialog.click("button", "Add event type")
	dialog.expect("This must be an object")
	dialog.fill("Schema", "")
	p.look("event-type-new")
	dialog.click("button", "Add event type")
	p.expectPath("/console/event-types/order.paid/")
	p.fill("Description", "The customer has paid an order.")
	p.click("button", "Save changes")
	p.expect("Changes saved")
	p.in("navigation", "You are here").click("link", "Event types")
	p.in("row", "order.paid").expect("Orders The customer has paid an order. Yes")
	p.fill("Search", "order.p")
	p.press("Enter")
	p.expectPath("/console/event-types/order.paid/")

	customer := open(t, s.base)
	customer.signIn(c.token)
	customer.visit("/console/subscriptions/new/")
	customer.fill("Address", r.url("hook"))
	customer.fill("Event types", "PAID")
	customer.in("group", "Orders").expect("order.paid The customer has paid an order.")
	customer.goneElement("option", "user.created")
	customer.press("ArrowDown")
	customer.expect(`{ "order": 1001, "rate": 1.1 }`)
	customer.look("subscription-picker")
	customer.press("Enter")
	customer.expectElement("button", "Remove order.paid")
	customer.in("group", "Published, without a description").click("option", "user.created")
	customer.expectElement("button", "Remove user.created")
	customer.goneElement("listbox", "Event types")
	customer.press("Backspace")
	customer.goneElement("button", "Remove user.created")
	customer.press("Escape") // the type is offered again
	customer.fill("Event types", "invoice.*")
	customer.click("button", "Create subscription") // what is typed counts
	customer.expect("Save the signing secret")

	customer.click("button", "Send test…")
	dialog = customer.in("dialog", "")
	dialog.choose("Event type", "order.paid")
	dialog.expect(`"order": 1001`)
	customer.look("subscription-test")
	dialog.click("button", "Send test")
	customer.expect("Response 204")
	got := r.arrived("hook")[0]
	if got.header.Get("X-Service-Event-Type") != "order.paid" || !strings.Contains(got.body, `"test":true,"data":{"order":1001,"rate":1.10}}`) {
		t.Errorf("the test arrived as %s", got.body)
	}
	var made struct {
		Data []struct {
			ID    string
			Types []string `json:"event_types"`
		}
	}
	c.must(t, "GET", subscriptions, nil, &made)
	if types := strings.Join(made.Data[0].Types, " "); types != "order.paid invoice.*" {
		t.Errorf("the subscription has %s", types)
	}
	customer.click("button", "I have saved it")
	customer.click("link", "Open subscription")
	customer.in("row", "order.paid").click("link", "order.paid")
	customer.click("button", "Send test again")
	r.await(t, "hook", 2)
	if got := r.arrived("hook")[1]; got.header.Get("X-Service-Event-Type") != "order.paid" {
		t.Errorf("the second test arrived as %s", got.body)
	}
	customer.visit("/console/events/")
	customer.expect("order.paid Test")
	customer.fill("Search", "has paid") // what the catalogue says about it
	customer.in("group", "Event types").expect("order.paid The customer has paid an order.")
	customer.press("Enter")
	customer.expectPath("/console/events/?type=order.paid")
	customer.visit("/console/events/new/")
	customer.fill("Type", "order.paid") // typed in full, as if it were chosen
	// The page asks for the example once the type is typed.
	customer.await(func() string {
		if got := customer.value("Data"); !strings.Contains(got, `"rate": 1.1`) {
			return "the data is " + got
		}
		return ""
	})
	customer.expect(`-d '{"type": "order.paid", "data": {
 "order": 1001,`)
	customer.fill("Type", "order.payd")
	customer.click("button", "Publish event")
	customer.expect("does not have order.payd. Is it misspelt?")

	p.visit("/console/event-types/order.paid/")
	p.click("button", "Remove…")
	p.confirm("", "Remove event type")
	p.expect("No event type yet")
	p.visit("/console/audit/")
	p.expect("Removed the event type from the catalogue: order.paid")
}
