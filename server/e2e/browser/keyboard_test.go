package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// TestTheKeyboardAlone creates a subscription, sends a test, breaks the receiver, finds out why, and recovers, as a person does who
// has no mouse and sees nothing: the test knows the names that a screen reader reads aloud, and the tab key.
func TestTheKeyboardAlone(t *testing.T) {
	t.Parallel()
	s, r := start(t), receive(t)
	c := s.customer(t, "Acme")
	p := open(t, s.base)
	p.signIn(c.token)
	p.visit("/console/")
	p.tabTo("link", "Skip to the content")
	p.press("Enter")
	p.tabTo("link", "New subscription")
	p.press("Enter")
	p.expectPath("/console/subscriptions/new/")

	p.tabTo("textbox", "Address")
	p.press(r.url("hook"))
	p.tabTo("combobox", "Event types")
	p.press("order.paid")
	p.press("Enter")
	p.tabTo("button", "Create subscription")
	p.press("Enter")
	p.tabTo("button", "I have saved it")
	p.press("Enter")
	p.tabTo("button", "Send test")
	p.press("Enter")
	r.await(t, "hook", 1)
	p.expect("Succeeded")
	p.tabTo("link", "Open subscription")
	p.press("Enter")
	p.expectElement("heading", strings.TrimPrefix(r.base, "http://")+"/hook")

	r.answer("hook", http.StatusServiceUnavailable, "down for maintenance")
	c.publish(t, "order.paid", object{"order": 1})
	c.await(t, c.firstOf(t, subscriptions), "status", "failing")
	p.expect("Failing: 5 failures in a row")
	p.in("table", "Attempts").expect("#5")
	p.press("j") // the newest attempt
	p.press("Enter")
	p.in("region", "Attempt").expect("The receiver, or a proxy in front of it, has a fault.")
	p.in("region", "Attempt").expect("down for maintenance")
	p.press("Escape")
	p.goneElement("region", "Attempt")

	r.answer("hook", http.StatusNoContent, "")
	p.tabTo("button", "Send test")
	p.press("Enter")
	p.in("region", "Attempt").expect("Response 204")
	p.press("Escape")
	p.expect("The receiver works again: the newest attempt has arrived.")
	p.tabTo("button", "Recover 1 event…")
	p.press("Enter")
	p.in("dialog", "Recover after an outage").tabTo("button", "Recover 1 event")
	p.press("Enter")
	p.in("status", "What was done").expect("Recovered. 1 event is sent.")
	p.expect("Healthy")
	r.await(t, "hook", 8) // two tests, five attempts, and the recovery
	if role, name := p.focused(); role == "RootWebArea" {
		t.Errorf("after the recovery, the focus is on the %s %q", role, name)
	}
}

// tabTo presses the tab key until the element with a role and a name has the focus. All elements on the way must have a name, and
// nothing may cover them. The way may go past the end of the page.
func (p *page) tabTo(role, name string) {
	p.tb.Helper()
	var way []string
	for range 100 {
		p.press("Tab")
		gotRole, gotName := p.focused()
		way = append(way, fmt.Sprintf("%s %q", gotRole, gotName))
		if gotRole == "RootWebArea" {
			continue // between the end and the start of the page
		}
		if gotName == "" {
			p.errorf("the %s after %s has no name", gotRole, way[max(len(way)-2, 0)])
		}
		if why := evaluate[string](p, covered); why != "" {
			p.errorf("the %s %q %s", gotRole, gotName, why)
		}
		if gotRole == role && strings.Contains(gotName, name) {
			return
		}
	}
	p.fatalf("the tab key does not reach %s %q, only %q", role, name, way)
}

// covered says why nobody sees the element with the focus; empty: it is in sight. Something of it may be below the fold.
const covered = `(() => {
	const e = document.activeElement, box = e.getClientRects()[0];
	if (!box || box.width < 2) return "has no size";
	if (box.bottom < 0 || box.top > innerHeight) return "is outside of the screen";
	const hit = document.elementFromPoint(box.x + Math.min(box.width, innerWidth) / 2, Math.min(Math.max(box.y, 0) + Math.min(box.height, 24) / 2, innerHeight - 1));
	return !hit || e.contains(hit) || hit.contains(e) || [...(e.labels ?? [])].some(l => l.contains(hit)) ? "" : "is covered by " + hit.outerHTML.slice(0, 200);
})()`

// focused returns the role and the name of the element with the focus.
func (p *page) focused() (role, name string) {
	p.tb.Helper()
	at, err := chromedp.Call(p.limited(), runtime.Evaluate, runtime.EvaluateParams{Expression: "document.activeElement"})
	if err != nil {
		p.fatalf("%v", err)
	}
	tree, err := chromedp.Call(p.limited(), accessibility.GetPartialAXTree, accessibility.GetPartialAXTreeParams{ObjectID: at.Result.ObjectID, FetchRelatives: new(bool)})
	if err != nil || len(tree.Nodes) == 0 {
		p.fatalf("no element has the focus: %v", err)
	}
	role = textOf(tree.Nodes[0].Role)
	if role == "generic" || tree.Nodes[0].Ignored { // the body
		role = "RootWebArea"
	}
	return role, strings.Join(strings.Fields(textOf(tree.Nodes[0].Name)), " ")
}
