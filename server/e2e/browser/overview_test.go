package browser

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// overviewPages are the states of the overview, and of the search, for TestPages.
func overviewPages(w *world) []pageRow {
	return []pageRow{
		{"overview", "/console/", w.acme.token, "Needs attention"},
		{"overview-empty", "/console/", w.empty.token, "Three steps to the first delivery"},
		{"overview-healthy", "/console/?range=7d", w.other.token, "The subscription is healthy. Nothing needs attention."},
		{"overview-hostile", "/console/?range=1h", w.hostile.token, "<script>alert"},
		{"overview-everywhere", "/console/", operatorToken, "All organizations"},
		{"missing", "/console/nothing/", w.acme.token, "There is no such page"},
	}
}

func TestOverview(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Run("a customer recovers a subscription", func(t *testing.T) {
		p := open(t, w.base)
		p.signIn(w.acme.token)
		p.visit("/console/")
		p.expectElement("heading", "Overview")
		p.in("navigation", "Pages").expect("2 need attention") // the paused subscription is no fault
		p.in("table", "What waits, and why").expect("Paused by a person 4 1")
		p.expect("12 succeeded")
		p.in("table", "What waits, and why").click("link", "Paused by a person")
		p.expectPath("/console/subscriptions/?status=paused&pending=true")
		p.in("table", "Subscriptions").expect("/paused")
		p.in("table", "Subscriptions").gone("/disabled")
		p.visit("/console/")
		p.click("link", "7 d")
		p.expectPath("/console/?range=7d")
		p.in("table", "Problems").expect("/disabled")
		p.gone("/paused")

		w.receiver.answer("disabled", http.StatusNoContent, "")
		before := len(w.receiver.arrived("disabled"))
		p.in("table", "Problems").click("link", "/disabled")
		p.click("button", "Recover…")
		p.doubleClick("button", "Recover 4 events")
		p.goneElement("dialog", "Recover after an outage")
		p.visit("/console/")
		p.in("table", "Problems").gone("/disabled")
		w.receiver.await(t, "disabled", before+4)
		w.acme.await(t, w.acme.disabled, "status", "healthy")
		w.acme.await(t, w.acme.disabled, "pending_deliveries", "0")
		if got := len(w.receiver.arrived("disabled")); got != before+4 {
			t.Errorf("%d requests have arrived after the recovery, not 4", got-before)
		}
	})
	t.Run("an operator sees who is in trouble, and comes to the page that recovers", func(t *testing.T) {
		p := open(t, w.base)
		p.signIn(operatorToken)
		p.visit("/console/")
		p.in("table", "Problems").expect("Acme")
		p.in("navigation", "Pages").expect("2 need attention in all organizations") // Acme's other one is healthy again
		p.in("table", "Problems").expect("<script>alert")
		w.receiver.answer("failing", http.StatusNoContent, "")
		p.in("table", "Problems").click("link", "/failing")
		p.click("button", "Recover…")
		p.click("button", "Recover 1 event")
		p.goneElement("dialog", "Recover after an outage")
		p.visit("/console/")
		p.in("table", "Problems").gone("/failing")
		w.acme.await(t, w.acme.failing, "status", "healthy")

		w.must(t, "POST", "/api/v1/queue/hold/", object{"reason": "a receiver leaks"}, nil)
		w.acme.publish(t, "order.paid", object{}) // a delivery waits, so the counts change
		p.expect("The queue is held: nothing is sent")
		p.expect("a receiver leaks")
		w.must(t, "POST", "/api/v1/queue/release/", nil, nil)
		p.gone("The queue is held")

		p.click("link", "Default")
		p.expectPath("/console/?in=one")
		p.expect("Three steps to the first delivery")
		p.visit("/console/?org=" + w.acme.id)
		p.expect("Nothing needs attention.")
		p.click("link", "All organizations")
		p.expect("Needs attention")
	})
	t.Run("an empty list of an operator leads to all organizations", func(t *testing.T) {
		p := open(t, w.base)
		p.signIn(operatorToken)
		for path, list := range map[string][2]string{"events": {"events", "Events"}, "subscriptions": {"subscriptions", "Subscriptions"}, "keys": {"active API keys", "API keys"}} {
			p.visit("/console/" + path + "/")
			p.expect("Default has no " + list[0])
			p.click("link", "Show all organizations")
			p.in("table", list[1]).expect("Acme")
		}
	})
	t.Run("the three steps are marked when they are done", func(t *testing.T) {
		p := open(t, w.base)
		p.signIn(w.empty.token)
		p.visit("/console/")
		p.expect("Step 1")
		p.expectElement("link", "New subscription")
		w.empty.subscribe(t, object{"url": w.receiver.url("empty"), "event_types": []string{"order.*"}})
		p.goneElement("link", "New subscription")
		p.gone("Step 1")
		w.empty.create(t, "/api/v1/api-keys/", object{"name": "First", "scope": "events:write"})
		w.empty.publish(t, "order.paid", object{})
		p.expect("All three steps are done")
		p.expect("1 succeeded")
	})
	t.Run("the chart is read with the keyboard", func(t *testing.T) {
		p := open(t, w.base)
		p.signIn(w.other.token)
		p.visit("/console/?range=1h")
		p.expect("Last hour")
		evaluate[any](p, `document.querySelector(".chart-box").focus()`)
		p.press("End")
		p.gone("Last hour")
		p.press("Home")
		p.expect("0 succeeded 0 failed")
		evaluate[any](p, `document.activeElement.blur()`)
		p.expect("Last hour")
		p.show(light, phone)
		top := func() float64 {
			return evaluate[float64](p, `document.querySelector(".chart-box").focus({preventScroll: true}), document.querySelector(".chart-box").getBoundingClientRect().top`)
		}
		before := top()
		p.press("End")
		p.in("figure", "").expect(" – ")
		if after := top(); after != before {
			t.Errorf("the chart moves from %.0f to %.0f under the finger", before, after)
		}
	})
}

// TestEightProblems: the worst is first, those of one customer are together, and the chart stays on the first screen.
func TestEightProblems(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.receiver.answer("down", http.StatusInternalServerError, "down")
	var failing []string
	for range 2 {
		failing = append(failing, w.acme.subscribe(t, object{"url": w.receiver.url("down"), "event_types": []string{"many.one"}}))
	}
	for range 2 {
		failing = append(failing, w.acme.subscribe(t, object{"url": w.receiver.url("down"), "event_types": []string{"many.*"}}))
	}
	third := w.customer(t, "Third")
	late := third.subscribe(t, object{"url": w.receiver.url("down"), "event_types": []string{"late.*"}})
	third.publish(t, "late.one", object{})
	for range 4 {
		w.acme.publish(t, "many.two", object{})
	}
	w.acme.publish(t, "many.one", object{})
	for _, each := range failing[:2] {
		w.acme.await(t, each, "status", "failing")
	}
	for _, each := range failing[2:] {
		w.acme.await(t, each, "status", "disabled")
	}
	third.await(t, late, "status", "failing")
	p := open(t, w.base)
	p.signIn(operatorToken)
	p.visit("/console/")
	p.in("table", "Problems").expect("Third")
	customers := evaluate[string](p, `[...document.querySelectorAll("tbody tr")].slice(0, 8).map(r => r.cells[1].innerText.slice(0, 8) + " " + r.cells[0].innerText).join()`)
	if want := "Acme Disabled,Acme Disabled,Acme Disabled,Acme Failing,Acme Failing,Acme Failing"; !strings.HasPrefix(customers, want) {
		t.Errorf("the problems are those of %s", customers)
	}
	if bottom := evaluate[float64](p, `document.querySelector(".chart-box").getBoundingClientRect().bottom`); bottom > float64(desktop.height) {
		t.Errorf("the chart ends at %.0f px, below the first screen", bottom)
	}
	p.look("overview-eight")
}

// TestAnIdleOverviewAsksForLittle counts the requests of 30 s.
func TestAnIdleOverviewAsksForLittle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := open(t, w.base)
	p.signIn(operatorToken)
	p.visit("/console/")
	for range 3 {
		evaluate[any](p, `new Promise(done => setTimeout(done, 10000))`)
	}
	asked := evaluate[[]string](p, `performance.getEntriesByType("resource").filter(e => e.startTime > performance.now() - 30000 && e.name.includes("/api/")).map(e => e.name)`)
	if len(asked) > 4 {
		t.Errorf("the page has asked %d times in 30 s: %q", len(asked), asked)
	}
	w.acme.publish(t, "invoice.paid", object{})
	p.in("row", "/disabled").expect("5") // a change shows
}

// TestColours switches between light and dark, and looks at a page in forced colours.
func TestColours(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := open(t, w.base)
	p.signIn(w.acme.token)
	p.visit("/console/")
	background := func() string { return evaluate[string](p, `getComputedStyle(document.body).backgroundColor`) }
	bright := background()
	menu := func(item string) {
		p.click("button", "Signed in as")
		p.click("menuitem", item)
	}
	menu("Dark colours")
	if background() == bright {
		t.Error("the page stays light")
	}
	p.axe(dark)
	p.reload()
	if background() == bright {
		t.Error("the choice is lost when the page is loaded again")
	}
	menu("Light colours")
	p.show(dark, desktop)
	if background() != bright {
		t.Error("the page follows the system after a choice")
	}
	menu("Colours of the system")
	if background() == bright {
		t.Error("the page does not follow the system")
	}

	p.show(forced, desktop)
	style := func(selector, property string) string {
		return evaluate[string](p, `getComputedStyle(document.querySelector("`+selector+`")).`+property)
	}
	if style("[aria-current=page].side-link", "outlineStyle") == "none" || style(".spark-succeeded", "fill") == style(".spark-failed", "fill") {
		t.Error("in forced colours, the page of the side bar or the failed attempts look like the others")
	}
	p.save("overview-forced")
	p.visit(console(w.acme.failing) + "?attempt=" + w.attempt(w.acme, w.acme.failing))
	p.save("attempt-forced")
}

func TestSearch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Run("an operator reaches anything", func(t *testing.T) {
		p := open(t, w.base)
		p.signIn(operatorToken)
		p.visit("/console/")
		p.press("/")
		p.fill("Search", ` "id": "`+strings.ToUpper(w.acme.event)+`", `)
		p.expectElement("option", "order.shipped")
		if got := evaluate[string](p, `document.querySelector("[role=option]").innerText`); strings.Contains(got, "Z") || !strings.Contains(got, ":") {
			t.Errorf("the result has the time of the server, or none: %s", got)
		}
		p.press("Enter")
		p.expectPath("/console/events/" + w.acme.event + "/?org=" + w.acme.id)
		p.expectElement("heading", "order.shipped")

		p.press("/")
		p.fill("Search", "“ACME”")
		p.in("listbox", "Results").expectElement("group", "Organizations")
		p.press("Enter")
		p.expectPath("/console/organizations/" + w.acme.id + "/?org=" + w.acme.id)

		p.press("/")
		p.fill("Search", "127.0.0.1")
		p.in("listbox", "Results").expect("failing · " + w.acme.failing)
		p.press("ArrowDown")
		p.press("ArrowUp")
		p.look("search")
		p.press("Escape")
		p.goneElement("option", "")
		p.press("/")
		p.fill("Search", "nothing like it")
		p.expect("Nothing is found for nothing like it.")
		p.look("search-nothing")
	})
	t.Run("a link without the organization opens for an operator", func(t *testing.T) {
		p := open(t, w.base)
		p.signIn(operatorToken)
		p.allow(http.StatusNotFound, "/api/v1/")
		for path, heading := range map[string]string{
			eventPage(w.acme.event): "order.shipped", "/console/subscriptions/" + w.acme.failing + "/?tab=settings": "",
			"/console/keys/" + w.acme.key + "/": "",
		} {
			p.visit(path)
			p.await(func() string {
				if at := p.path(); !strings.HasPrefix(at, strings.Split(path, "?")[0]) || !strings.Contains(at, "org="+w.acme.id) {
					return "the page is at " + at
				}
				return ""
			})
			if heading != "" {
				p.expectElement("heading", heading)
			}
			p.gone("cannot be shown")
		}
		p.visit("/console/events/evt_01h455vb4pex5vsknk084sn02q/")
		p.expect("This event cannot be shown")

		p.signIn(w.acme.token)
		p.visit(eventPage(w.other.event))
		p.expect("This event cannot be shown")
	})
	t.Run("Enter before the results come opens the first of them", func(t *testing.T) {
		p := open(t, w.base)
		p.signIn(w.acme.token)
		p.visit("/console/events/")
		p.press("/")
		p.atOnce().fill("Search", w.acme.healthy)
		p.press("Enter")
		p.expectPath(console(w.acme.healthy))
	})
	t.Run("a customer finds nothing of others, and no page of operators", func(t *testing.T) {
		p := open(t, w.base)
		p.signIn(w.acme.token)
		p.visit("/console/")
		for _, text := range []string{w.other.event, w.other.name, "growth"} {
			p.fill("Search", text)
			p.expect("Only this organization is searched.")
		}
		p.fill("Search", "Acme")
		p.press("Enter")
		p.expectPath("/console/")
	})
}

func TestSessionsInTheConsole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const signOut = `fetch("/api/v1/session/", {method: "DELETE"})`

	t.Run("after the end of a session, what was typed is still there", func(t *testing.T) {
		p := open(t, w.base)
		p.signIn(w.acme.token)
		p.visit("/console/subscriptions/new/")
		p.fill("Address", w.receiver.url("typed"))
		p.allow(http.StatusUnauthorized, "/api/v1/")
		evaluate[any](p, signOut) // as another tab does
		waiting := p.atOnce()     // the button is busy until the session goes on
		waiting.click("button", "Create subscription")
		waiting.in("dialog", "Your session has ended").expect("Owner of Acme")
		waiting.axe(light)
		waiting.save("session-ended")
		waiting.fill("Access token", w.acme.token)
		waiting.press("Enter")
		p.goneElement("dialog", "Your session has ended")
		p.expect("nothing was done")
		if got := p.value("Address"); got != w.receiver.url("typed") {
			t.Errorf("the field has %q", got)
		}
		p.click("button", "Create subscription")
		p.expect("Send test")
	})
	t.Run("while the server is away, a banner says so, and nothing is lost", func(t *testing.T) {
		p := open(t, w.base)
		p.signIn(w.acme.token)
		p.visit("/console/")
		p.fill("Search", "typed")
		p.allow(0, "/")
		w.end(syscall.SIGTERM)
		p.expect("The server does not answer.")
		p.expect("What you typed stays.")
		p.atOnce().click("button", "Signed in as Owner of Acme")
		p.atOnce().click("menuitem", "Sign out")
		p.expect("Signing out did not work")
		w.again()
		p.gone("The server does not answer.")
		p.expect("Needs attention")
		if got := p.value("Search"); got != "typed" {
			t.Errorf("the search has %q", got)
		}
	})
}
