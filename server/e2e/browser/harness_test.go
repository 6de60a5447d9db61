package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// These tests show that the checks of the other tests can fail. They use small pages of their own.

// bad lists pages with one defect each, and a part of the failure that a test must report.
var bad = []struct{ name, policy, head, body, want string }{
	{"a console error", "", `<script>console.error("oh", 1)</script>`, "", `console: "oh" 1`},
	{"an uncaught exception", "", `<script>null.x</script>`, "", "uncaught exception: JavaScript: Uncaught TypeError"},
	{"a rejected promise", "", `<script>Promise.reject(new Error("later"))</script>`, "", "Error: later"},
	{"a violation of the policy", "default-src 'self'", "<style>p { color: red }</style>", "", "content security policy: style-src-elem inline"},
	{"a script that the policy refuses", "default-src 'self'", "<script>1</script>", "", "content security policy: script-src-elem inline"},
	{"a request to another host", "", `<script src="http://keyhook.example/a.js"></script>`, "", "request to another host: http://keyhook.example/a.js"},
	{"a status 500", "", `<script>fetch("/500")</script>`, "", "status 500 from"},
	{"a status 404", "", `<script>fetch("/404")</script>`, "", "status 404 from"},
	{"no response", "", `<script>fetch("/abort").catch(() => {})</script>`, "", "no response from"},
	{"a dialog of the browser", "", `<script>alert("hello")</script>`, "", "dialog of the browser: hello"},
	{
		"a jump of the layout", "", "", `<p>Text</p><script>requestAnimationFrame(() => requestAnimationFrame(() => fetch("/slow").then(() =>
			document.body.insertAdjacentHTML("afterbegin", "<div style='height: 400px'>late</div>"))))</script>`, "the layout jumps by",
	},
	{"an image without a text", "", "", `<img src="data:,">`, "axe, in light:\n  image-alt"},
	{
		"text without contrast in the dark", "", "<style>@media (prefers-color-scheme: dark) { body { background: #222; color: #333 } }</style>",
		"<p>Text</p>", "axe, in dark:\n  color-contrast",
	},
	{"a page that is too wide", "", "", `<p style="width: 500px">Text</p>`, "the page scrolls sideways:\n  the page is 508 px wide of 360"},
	{"a page that stays busy", "", "", `<p aria-busy="true">Text</p>`, "the page is not idle"},
}

// serveSmall serves a page at / and a few endpoints.
func serveSmall(t *testing.T, policy, head, body string) (url string) {
	t.Helper()
	waiting := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			if policy != "" {
				w.Header().Set("Content-Security-Policy", policy)
			}
			fmt.Fprintf(w, `<!doctype html><html lang="en"><head><title>Small</title><link rel="icon" href="data:,">%s</head><body><main><h1>Small</h1>%s</main></body></html>`, head, body)
		case "/slow":
			select {
			case <-time.After(100 * time.Millisecond):
			case <-r.Context().Done():
			}
			_, _ = io.WriteString(w, "slow answer")
		case "/wait":
			select {
			case <-waiting:
			case <-r.Context().Done():
			}
		case "/release":
			close(waiting)
		case "/abort":
			panic(http.ErrAbortHandler)
		case "/500":
			w.WriteHeader(http.StatusInternalServerError)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// short is how long a check waits that cannot succeed.
const short = 200 * time.Millisecond

// failures takes the place of a test that may fail.
type failures struct {
	testing.TB
	all []string
}

func (f *failures) Errorf(format string, args ...any) {
	f.all = append(f.all, fmt.Sprintf(format, args...))
}
func (f *failures) FailNow()            { runtime.Goexit() }
func (f *failures) Logf(string, ...any) {}

// failing returns what the checks report while act runs. They wait only so long for what must happen.
func (p *page) failing(wait time.Duration, act func(p *page)) string {
	found := &failures{TB: p.tb}
	inner := *p
	inner.tb, inner.wait, inner.told = found, wait, nil
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		act(&inner)
	}()
	<-ended
	return strings.Join(found.all, "\n")
}

func TestADefectFailsTheTest(t *testing.T) {
	t.Parallel()
	for _, b := range bad {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			p := open(t, serveSmall(t, b.policy, b.head, b.body))
			wait := patience
			if b.want == "the page is not idle" {
				wait = short
			}
			got := p.failing(wait, func(p *page) { p.visit("/") })
			if got == "" {
				got = p.failing(wait, func(p *page) { p.look("defect") })
			}
			if !strings.Contains(got, b.want) {
				t.Errorf("no %q in %q", b.want, got)
			}
		})
	}
}

const form = `
<form onsubmit="fetch('/slow').then(r => r.text()).then(text => {
	document.querySelector('output').textContent = text + ' ' + document.querySelector('input').value + ' ' + document.querySelector('select').value;
}); return false">
	<label>Name <input></label>
	<label>Colour <select><option value="r">Red</option><option value="g">Green</option></select></label>
	<button>Save name</button>
	<button disabled type="button">Delete</button>
</form>
<output></output>
<table><tbody>
	<tr><th scope="row">api.acme.example</th><td><button onclick="this.textContent = 'Paused'">Pause</button></td></tr>
	<tr><th scope="row">api.other.example</th><td><button>Pause</button></td></tr>
</tbody></table>
<button onclick="this.nextSibling.textContent = 'Sent ' + ++times.value">Send</button><b></b><input id="times" type="hidden" value="0">
<button onclick="this.textContent = 'Waits'; fetch('/wait').then(() => { this.textContent = 'Done' })">Wait</button>
<button onclick="navigator.clipboard.writeText('evt_1')">Copy</button>
<button onclick="document.querySelector('dialog').showModal()">Close account</button>
<label>Search <input id="search" onkeydown="event.stopPropagation()"></label>
<script>addEventListener("keydown", e => { if (e.key === "/") { e.preventDefault(); document.getElementById("search").focus(); } })</script>
<dialog aria-label="Close account?"><button autofocus>Keep</button></dialog>`

func TestActingAsAPerson(t *testing.T) {
	t.Parallel()
	p := open(t, serveSmall(t, "", "", form))
	p.visit("/")
	p.fill("Name", "wrong")
	p.fill("Name", "Jane")
	p.choose("Colour", "Green")
	p.click("button", "Save")
	p.expect("slow answer Jane g")
	if got := p.value("Name"); got != "Jane" {
		t.Errorf("the field contains %q", got)
	}
	p.fill("Name", "")
	p.press("Jo")
	p.press("Enter")
	p.expect("slow answer Jo g")
	p.gone("Jane")

	p.in("row", "acme").click("button", "Pause")
	p.in("row", "acme").expectElement("button", "Paused")
	p.in("row", "other").goneElement("button", "Paused")
	p.doubleClick("button", "Send")
	p.expect("Sent 2")
	p.atOnce().click("button", "Wait")
	p.expect("Waits")
	evaluate[any](p, "fetch('/release').then(() => {})")
	p.expect("Done")
	p.click("button", "Copy")
	if got := p.copied(); got != "evt_1" {
		t.Errorf("copied %q", got)
	}
	p.press("/")
	p.expectFocus("textbox", "Search")
	p.press("a/B")
	if got := p.value("Search"); got != "a/B" {
		t.Errorf("the page has handled the first /, and the field contains %q", got)
	}
	p.click("button", "Close account")
	p.in("dialog", "Close account?").expectFocus("button", "Keep")
	p.goneElement("button", "Copy") // the dialog covers it
	p.press("Escape")
	p.goneElement("dialog", "Close account?")
	p.visit("/?q=1#top")
	p.expectPath("/?q=1#top")
	p.back()
	p.expectPath("/")

	p.allow(http.StatusNotFound, "/40")
	evaluate[any](p, "fetch('/404').then(() => {})")
	p.check()
}

func TestAnActionThatCannotBeDoneFailsTheTest(t *testing.T) {
	t.Parallel()
	p := open(t, serveSmall(t, "", "", form+`<div style="position: fixed; inset: 0">cover</div>`))
	p.visit("/")
	for _, act := range []struct {
		name string
		do   func(p *page)
		want string
	}{
		{"a missing button names the others", func(p *page) { p.click("button", "Publish") }, `there is no button "Publish"; there are ["Save name" "Delete" "Pause" "Pause" "Send" "Wait" "Copy" "Close account"]`},
		{"two elements", func(p *page) { p.click("button", "Pause") }, `there are 2 of button "Pause"`},
		{"a disabled button", func(p *page) { p.click("button", "Delete") }, `button "Delete" is disabled`},
		{"a covered button", func(p *page) { p.click("button", "Copy") }, "is covered by <div"},
		{"a missing field", func(p *page) { p.fill("E-mail", "x") }, `there is no field "E-mail"`},
		{"a missing option", func(p *page) { p.choose("Colour", "Blue") }, "has no option Blue, only Red,Green"},
		{"a missing text", func(p *page) { p.expect("Jane") }, `the page does not show "Jane"`},
		{"a text that stays", func(p *page) { p.gone("cover") }, `the page still shows "cover"`},
		{"an element that stays", func(p *page) { p.goneElement("button", "Copy") }, `there are 1 of button "Copy"`},
		{"another element with the focus", func(p *page) { p.expectFocus("button", "Copy") }, `button "Copy" has no focus`},
		{"another path", func(p *page) { p.expectPath("/x") }, "the page is at /, not at /x"},
	} {
		if got := p.failing(short, act.do); !strings.Contains(got, act.want) {
			t.Errorf("%s: no %q in %q", act.name, act.want, got)
		}
	}
}

func TestAWorldHasWhatItsFieldsSay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for subscription, status := range map[string]string{w.acme.healthy: "healthy", w.acme.failing: "failing", w.acme.disabled: "disabled"} {
		if got := w.acme.read(t, "/api/v1/webhooks/subscriptions/"+subscription+"/", "status"); got != status {
			t.Errorf("%s is %s, not %s", subscription, got, status)
		}
	}
	w.receiver.await(t, "healthy", 12)
	names := []string{w.acme.name, w.other.name, w.hostile.name, w.empty.name}
	for _, c := range []*customer{w.acme, w.other, w.hostile, w.empty} {
		if got := c.read(t, "/api/v1/whoami/", "organization"); !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(got, n) }) {
			t.Errorf("%s is in %s", c.name, got)
		}
	}
	p := open(t, w.base)
	p.allow(http.StatusNotFound, "/favicon.ico") // JSON names no icon
	p.signIn(w.acme.token)
	p.visit("/api/v1/whoami/")
	p.expect(`"name":"Acme"`)
	w.end(syscall.SIGTERM)
	w.again()
	p.reload()
	p.expect(`"name":"Acme"`)
}

func TestTheReceiverFollowsCommands(t *testing.T) {
	t.Parallel()
	s, r := start(t, "KEYHOOK_BOOTSTRAP_TOKEN="), receive(t)
	if !strings.Contains(s.printed(), "kat_") {
		t.Errorf("no token in %q", s.printed())
	}
	s.authorization = "Bearer " + regexp.MustCompile(`kat_\w+`).FindString(s.printed())
	c := s.customer(t, "Acme")
	subscription := c.subscribe(t, object{"url": r.url("a")})
	r.hang("a")
	c.publish(t, "order.paid", object{})
	r.await(t, "a", 1)
	c.await(t, subscription, "pending_deliveries", "1")
	r.answer("a", http.StatusOK, "taken")
	c.await(t, subscription, "pending_deliveries", "0")
}

func TestAServerUnderAPath(t *testing.T) {
	t.Parallel()
	p := open(t, startBehind(t, "/tools/keyhook").base)
	p.visit("/docs/")
	p.in("main", "").click("link", "Receive webhooks")
	p.expectPath("/docs/receiving/")
	p.expectElement("heading", "The five rules")
}
