package browser

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// target describes an element as a person does who hears the page read aloud: a role of ARIA and an accessible name. An empty
// name is any name.
type target struct {
	roles []string // the first is for messages
	name  string
}

func (t target) String() string { return fmt.Sprintf("%s %q", t.roles[0], t.name) }

// fields are the roles of elements that take a text or a choice.
var fields = []string{"field", "textbox", "searchbox", "combobox", "spinbutton", "listbox", "slider", "Date", "DateTime", "InputTime", "ColorWell"}

// in returns the same page, of which the test sees only one element, such as a row, a dialog or a region. The name may also be
// a part of the text in the element.
func (p *page) in(role, name string) *page {
	inner := *p
	inner.scope = append(slices.Clone(p.scope), target{[]string{role}, name})
	return &inner
}

// click clicks the element with a role and a name: the whole name, or, if no element has that name, a part of it.
func (p *page) click(role, name string) {
	p.tb.Helper()
	p.clickTimes(1, role, name)
}

// doubleClick clicks an element twice, as fast as a hand can.
func (p *page) doubleClick(role, name string) {
	p.tb.Helper()
	p.clickTimes(2, role, name)
}

func (p *page) clickTimes(n int, role, name string) {
	p.tb.Helper()
	t := target{[]string{role}, name}
	var at struct {
		X, Y float64
		Why  string
	}
	p.await(func() string {
		e, why := p.find(t)
		if why != "" {
			return why
		}
		if err := p.ask(e, &at, locate); err != nil {
			return err.Error()
		}
		if at.Why != "" {
			return fmt.Sprintf("%s %s", t, at.Why)
		}
		return ""
	})
	evaluate[any](p, "window.clicked = true")
	for count := range n {
		if _, err := chromedp.Run(p.limited(), chromedp.MouseClickXY(at.X, at.Y, chromedp.ClickCount(count+1))); err != nil {
			p.fatalf("click %s: %v", t, err)
		}
	}
	p.finish()
	if p.hasty {
		return
	}
	p.await(func() string { // a page that follows may have its text, and get the focus in the next moment
		if evaluate[bool](p, focusLost) {
			return fmt.Sprintf("nothing has the focus after a click on %s", t)
		}
		return ""
	})
}

// focusLost is true when a person with a keyboard would have to start at the top of the page again.
// A document that was loaded since the click has no focus yet.
const focusLost = `window.clicked && document.activeElement === document.body && document.querySelector("#app h1") !== null`

// locate scrolls an element into view, and returns a point of it, or why nobody can click it.
const locate = `function() {
	if (this.matches(":disabled, [aria-disabled=true]")) return {why: "is disabled"};
	this.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
	const box = this.getClientRects()[0];
	if (!box) return {why: "has no size"};
	const x = box.x + box.width / 2, y = box.y + box.height / 2, hit = document.elementFromPoint(x, y);
	const hits = hit && (this.contains(hit) || hit.contains(this) || [...(this.labels ?? [])].some(l => l.contains(hit)));
	return hits ? {x, y} : {why: "is covered by " + (hit?.outerHTML ?? "nothing").slice(0, 200)};
}`

// fill replaces the text of the field with a label.
func (p *page) fill(label, text string) {
	p.tb.Helper()
	p.onField(label, prepare, text)
	if text != "" {
		if _, err := chromedp.Call(p.limited(), input.InsertText, input.InsertTextParams{Text: text}); err != nil {
			p.fatalf("fill %q: %v", label, err)
		}
	} else if err := p.strike(kb.Delete); err != nil {
		p.fatalf("empty %q: %v", label, err)
	}
	p.finish()
}

// prepare selects the text of a field. Nobody can type whole dates, so these are set.
const prepare = `function(text) {
	if (this.matches(":disabled, [readonly]")) return "is disabled";
	this.focus();
	if (/^(date|time|datetime-local|month|week|color|range)$/.test(this.type)) {
		this.value = text;
		this.dispatchEvent(new Event("input", {bubbles: true}));
		this.dispatchEvent(new Event("change", {bubbles: true}));
	} else {
		this.select?.();
	}
	return "";
}`

// choose chooses an option by its text in the select element with a label.
func (p *page) choose(label, option string) {
	p.tb.Helper()
	p.onField(label, `function(text) {
		const option = [...(this.options ?? [])].find(o => o.label.trim() === text);
		if (!option) return "has no option " + text + ", only " + [...(this.options ?? [])].map(o => o.label);
		this.focus();
		this.value = option.value;
		this.dispatchEvent(new Event("input", {bubbles: true}));
		this.dispatchEvent(new Event("change", {bubbles: true}));
		return "";
	}`, option)
	p.finish()
}

// value returns the text in the field with a label.
func (p *page) value(label string) string {
	p.tb.Helper()
	var value string
	p.await(func() string {
		e, why := p.find(target{fields, label})
		if why != "" {
			return why
		}
		if err := p.ask(e, &value, "function() { return this.value }"); err != nil {
			return err.Error()
		}
		return ""
	})
	return value
}

// onField calls a function on a field until it returns no reason to wait.
func (p *page) onField(label, function string, args ...any) {
	p.tb.Helper()
	p.await(func() string {
		e, why := p.find(target{fields, label})
		if why != "" {
			return why
		}
		if err := p.ask(e, &why, function, args...); err != nil {
			return err.Error()
		}
		if why != "" {
			return fmt.Sprintf("the field %q %s", label, why)
		}
		return ""
	})
}

// keys are the names of keys without a character.
var keys = map[string]string{
	"Enter": kb.Enter, "Escape": kb.Escape, "Tab": kb.Tab, "Backspace": kb.Backspace, "Home": kb.Home, "End": kb.End,
	"ArrowDown": kb.ArrowDown, "ArrowUp": kb.ArrowUp, "ArrowLeft": kb.ArrowLeft, "ArrowRight": kb.ArrowRight,
}

// press presses one key by its name, such as Escape, or types a text at the focus.
func (p *page) press(key string) {
	p.tb.Helper()
	if named, isNamed := keys[key]; isNamed {
		key = named
	}
	if err := p.strike(key); err != nil {
		p.fatalf("press %q: %v", key, err)
	}
	p.finish()
}

// strike presses keys as a keyboard does: the browser makes the character, unless the page has handled the key. chromedp.KeyEvent
// sends the character in any case.
func (p *page) strike(text string) error {
	for _, r := range text {
		events := kb.Encode(r)
		for _, e := range events {
			if e.Type == kb.KeyChar {
				events[0].Text = e.Text
			}
		}
		for _, e := range []*input.DispatchKeyEventParams{events[0], events[len(events)-1]} {
			if _, err := chromedp.Call(p.limited(), input.DispatchKeyEvent, *e); err != nil {
				return err
			}
		}
	}
	return nil
}

// expect waits until the page shows a text. White space counts as one space.
func (p *page) expect(text string) {
	p.tb.Helper()
	p.await(func() string {
		if shown, why := p.text(); !strings.Contains(shown, strings.Join(strings.Fields(text), " ")) {
			return fmt.Sprintf("the page does not show %q %s", text, why)
		}
		return ""
	})
	p.check()
}

// gone waits until the page does not show a text.
func (p *page) gone(text string) {
	p.tb.Helper()
	p.await(func() string {
		if shown, _ := p.text(); strings.Contains(shown, strings.Join(strings.Fields(text), " ")) {
			return fmt.Sprintf("the page still shows %q", text)
		}
		return ""
	})
	p.check()
}

// expectElement waits until there is exactly one element with a role and a name.
func (p *page) expectElement(role, name string) {
	p.tb.Helper()
	p.await(func() string {
		_, why := p.find(target{[]string{role}, name})
		return why
	})
	p.check()
}

// goneElement waits until there is no element with a role and a name.
func (p *page) goneElement(role, name string) {
	p.tb.Helper()
	p.await(func() string {
		if found, _, err := p.candidates(p.scope, target{[]string{role}, name}); err != nil || len(found) > 0 {
			return fmt.Sprintf("there are %d of %s %q (%v)", len(found), role, name, err)
		}
		return ""
	})
	p.check()
}

// expectFocus waits until the element with a role and a name has the focus.
func (p *page) expectFocus(role, name string) {
	p.tb.Helper()
	p.await(func() string {
		e, why := p.find(target{[]string{role}, name})
		var focused bool
		if why == "" && p.ask(e, &focused, "function() { return this === document.activeElement }") == nil && !focused {
			why = fmt.Sprintf("%s %q has no focus", role, name)
		}
		return why
	})
}

// copied returns what the page has put into the clipboard last.
func (p *page) copied() string { return p.watch.lastCopied() }

// text returns what the page, or the element in which the test looks, shows.
func (p *page) text() (shown, why string) {
	e, err := p.root(p.scope)
	if err == nil {
		err = p.ask(e, &shown, "function() { return (this.body ?? this).innerText ?? '' }")
	}
	if err != nil {
		return "", err.Error()
	}
	return strings.Join(strings.Fields(shown), " "), ""
}

// element is a handle of an element in the page.
type element = runtime.RemoteObjectID

// find returns the only element that a target describes, or why there is no such element.
func (p *page) find(t target) (element, string) {
	found, others, err := p.candidates(p.scope, t)
	switch {
	case err != nil:
		return "", err.Error()
	case len(found) == 0:
		return "", fmt.Sprintf("there is no %s; there are %q", t, others)
	case len(found) > 1:
		return "", fmt.Sprintf("there are %d of %s; narrow the search with in", len(found), t)
	}
	e, err := p.resolve(found[0])
	if err != nil {
		return "", err.Error()
	}
	return e, ""
}

// root returns the element in which the test looks: the document, or the innermost element of the scope.
func (p *page) root(scope []target) (element, error) {
	if len(scope) == 0 {
		result, err := chromedp.Call(p.limited(), runtime.Evaluate, runtime.EvaluateParams{Expression: "document"})
		if err != nil {
			return "", err
		}
		return result.Result.ObjectID, nil
	}
	outer, inner := scope[:len(scope)-1], scope[len(scope)-1]
	found, others, err := p.candidates(outer, inner)
	if err == nil && len(found) == 0 {
		found, err = p.containing(outer, inner)
	}
	switch {
	case err != nil:
		return "", err
	case len(found) != 1:
		return "", fmt.Errorf("there are %d of %s; there are %q", len(found), inner, others)
	}
	return p.resolve(found[0])
}

// containing returns the elements of a role that show the name of the target as a part of their text.
func (p *page) containing(scope []target, t target) (found []cdp.BackendNodeID, err error) {
	all, _, err := p.candidates(scope, target{t.roles, ""})
	if err != nil {
		return nil, err
	}
	for _, id := range all {
		var contains bool
		e, err := p.resolve(id)
		if err == nil {
			err = p.ask(e, &contains, "function(text) { return (this.innerText ?? '').includes(text) }", t.name)
		}
		if err != nil {
			return nil, err
		}
		if contains {
			found = append(found, id)
		}
	}
	return found, nil
}

// candidates returns the elements with one of the roles that have the name, or, if none has, whose names contain it. The others
// are the names of all elements with these roles.
func (p *page) candidates(scope []target, t target) (found []cdp.BackendNodeID, others []string, err error) {
	root, err := p.root(scope)
	if err != nil {
		return nil, nil, err
	}
	query := accessibility.QueryAXTreeParams{ObjectID: root}
	if len(t.roles) == 1 {
		query.Role = t.roles[0]
	}
	tree, err := chromedp.Call(p.limited(), accessibility.QueryAXTree, query)
	if err != nil {
		return nil, nil, err
	}
	var partly []cdp.BackendNodeID
	for _, node := range tree.Nodes {
		name := strings.Join(strings.Fields(textOf(node.Name)), " ")
		if node.Ignored || node.BackendDOMNodeID == 0 || !slices.Contains(t.roles, textOf(node.Role)) {
			continue
		}
		others = append(others, name)
		if name == t.name {
			found = append(found, node.BackendDOMNodeID)
		} else if strings.Contains(name, t.name) {
			partly = append(partly, node.BackendDOMNodeID)
		}
	}
	if len(found) == 0 || t.name == "" {
		found = append(found, partly...)
	}
	return found, others, nil
}

func (p *page) resolve(id cdp.BackendNodeID) (element, error) {
	result, err := chromedp.Call(p.limited(), dom.ResolveNode, dom.ResolveNodeParams{BackendNodeID: id})
	if err != nil {
		return "", err
	}
	return result.Object.ObjectID, nil
}

// ask calls a function of JavaScript on an element, and reads what it returns into result.
func (p *page) ask(e element, result any, function string, args ...any) error {
	params := runtime.CallFunctionOnParams{FunctionDeclaration: function, ObjectID: e, ReturnByValue: &yes}
	for _, a := range args {
		text, err := json.Marshal(a)
		if err != nil {
			return err
		}
		params.Arguments = append(params.Arguments, &runtime.CallArgument{Value: text})
	}
	sent, err := chromedp.Call(p.limited(), runtime.CallFunctionOn, params)
	if err != nil {
		return err
	}
	text, err := decode[json.RawMessage](sent.Result, sent.ExceptionDetails)
	if err != nil || text == nil {
		return err
	}
	return json.Unmarshal(text, result)
}

// textOf returns a text of the accessibility tree.
func textOf(v *accessibility.Value) (text string) {
	if v != nil {
		_ = json.Unmarshal(v.Value, &text) // what is no string counts as empty
	}
	return text
}
