package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long a test waits for what must happen soon. Only a failure takes that long.
const patience = time.Minute

// page is a tab in a browser profile of its own: nothing of another test's cookies or storage is in it.
type page struct {
	tb    testing.TB
	base  string          // the address of the server
	ctx   context.Context // of the tab
	watch *watch
	scope []target      // the elements, outermost first, in which the test looks; see in
	told  *bool         // whether a failure has shown the text of the page; nil: failures are expected
	wait  time.Duration // how long for what must happen soon
	hasty bool          // whether actions do not wait until the page is idle
}

// open opens a page at base, the address of a server. Nothing is loaded before visit.
func open(tb testing.TB, base string) *page {
	tb.Helper()
	_, err := axeSource() // a missing tool shows at once
	require(tb, err)
	browser, err := chromium()
	require(tb, err)
	return openIn(tb, base, browser, chromedp.WithNewBrowserContext())
}

// tab opens another page in the same browser: both have the same session.
func (p *page) tab() *page { return openIn(p.tb, p.base, p.ctx) }

func openIn(tb testing.TB, base string, browser context.Context, options ...chromedp.ContextOption) *page {
	tb.Helper()
	ctx, _ := chromedp.NewContext(browser, options...)
	p := &page{tb: tb, base: base, ctx: ctx, watch: newWatch(base), told: new(bool), wait: patience}
	tb.Cleanup(func() {
		p.check()
		if err := chromedp.Cancel(ctx); err != nil {
			tb.Errorf("close the page: %v", err)
		}
	})
	if err := p.watch.attach(ctx); err != nil {
		tb.Fatal(err)
	}
	p.show(light, desktop)
	return p
}

// during returns the same page, whose failures are those of a sub-test.
func (p *page) during(t *testing.T) *page {
	inner := *p
	inner.tb, inner.told = t, new(bool)
	return &inner
}

// useCache says whether visits may use the cache. Without it, each loads all files again, as the first visit of a person does: a late
// file makes the layout jump.
func (p *page) useCache(use bool) {
	p.tb.Helper()
	if _, err := chromedp.Call(p.ctx, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: !use}); err != nil {
		p.fatalf("switch the cache on or off: %v", err)
	}
}

// signIn signs in with an access token, without the page for it.
func (p *page) signIn(token string) {
	p.tb.Helper()
	body, _ := json.Marshal(object{"token": token}) // a string has a JSON form
	req, err := http.NewRequestWithContext(p.tb.Context(), http.MethodPost, p.base+"/api/v1/session/", bytes.NewReader(body))
	if err != nil {
		p.tb.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.tb.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		p.tb.Fatalf("sign in: %s", resp.Status)
	}
	for _, c := range resp.Cookies() {
		_, err := chromedp.Call(p.ctx, network.SetCookie, network.SetCookieParams{
			Name: c.Name, Value: c.Value, URL: p.base + "/", Path: c.Path, HTTPOnly: &c.HttpOnly, SameSite: network.CookieSameSiteStrict,
		})
		if err != nil {
			p.tb.Fatal(err)
		}
	}
}

// visit loads a path of the server, and waits until the page is idle. The layout may not jump meanwhile.
func (p *page) visit(path string) {
	p.tb.Helper()
	p.watch.forgetShift()
	p.load(path)
	if total, largest := p.watch.shifted(); total >= maxShift {
		p.errorf("visit %s: the layout jumps by %.3f, most at %s; allowed is %.2f", path, total, largest, maxShift)
	}
	p.check()
}

// load is visit without its checks.
func (p *page) load(path string) {
	p.tb.Helper()
	result, err := chromedp.Call(p.ctx, cdppage.Navigate, cdppage.NavigateParams{URL: p.base + path})
	if err == nil && result.ErrorText != "" && !p.watch.isAllowed(0, p.base+path) {
		err = fmt.Errorf("%s", result.ErrorText)
	}
	if err != nil {
		p.fatalf("visit %s: %v", path, err)
	}
	p.idle()
}

// reload loads the page again.
func (p *page) reload() {
	p.tb.Helper()
	if _, err := chromedp.Call(p.ctx, cdppage.Reload, cdppage.ReloadParams{}); err != nil {
		p.fatalf("reload: %v", err)
	}
	p.finish()
}

// back is the back button of the browser.
func (p *page) back() {
	p.tb.Helper()
	if _, err := tryEvaluate[any](p, "history.back()"); err != nil && !strings.Contains(err.Error(), "Inspected target navigated") { // before it could answer
		p.fatalf("go back: %v", err)
	}
	p.finish()
}

// path returns the path of the page with its query and its fragment.
func (p *page) path() string {
	p.tb.Helper()
	return strings.TrimPrefix(evaluate[string](p, "location.href"), p.base)
}

// expectPath waits until the page is at a path, with its query and its fragment.
func (p *page) expectPath(path string) {
	p.tb.Helper()
	p.await(func() string {
		if at := p.path(); at != path {
			return fmt.Sprintf("the page is at %s, not at %s", at, path)
		}
		return ""
	})
}

// allow announces that requests to paths that begin with prefix may end with a status from 400 to 499. Status 0 announces
// that the server does not answer.
func (p *page) allow(status int, prefix string) { p.watch.allow(status, prefix) }

// signOut signs out name. A page reads its lists again every few seconds, so one reading may come after the end of the session.
func (p *page) signOut(name string) {
	p.tb.Helper()
	p.allow(http.StatusUnauthorized, "/api/v1/")
	p.click("button", name)
	p.click("menuitem", "Sign out")
}

// settled is true when the page has painted and nothing on it is busy.
const settled = `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() =>
	done(document.readyState === "complete" && !document.querySelector('[aria-busy="true"]')))))`

// idle waits until no request runs, nothing is busy, and the page has painted, twice in a row: a script may react to the end of
// a request with the next request.
func (p *page) idle() {
	p.tb.Helper()
	quiet := 0
	p.await(func() string {
		done, err := tryEvaluate[bool](p, settled)
		if running := p.watch.running(); err != nil || !done || len(running) > 0 {
			quiet = 0
			return fmt.Sprintf("the page is not idle: settled %t (%v), running requests %q", done, err, running)
		}
		if quiet++; quiet < 2 {
			return "the page is idle only once"
		}
		return ""
	})
}

// finish ends an action.
func (p *page) finish() {
	p.tb.Helper()
	if !p.hasty {
		p.idle()
	}
	p.check()
}

// atOnce returns the same page, whose actions return before the page is idle: to see a page that loads, or to go on meanwhile.
func (p *page) atOnce() *page {
	hasty := *p
	hasty.hasty = true
	return &hasty
}

// await calls ask until it returns an empty text. The text is the reason to wait on, and to fail at last.
func (p *page) await(ask func() string) {
	p.tb.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(p.wait); ; <-tick.C {
		reason := ask()
		if reason == "" {
			return
		}
		if time.Now().After(deadline) {
			p.fatalf("after %s: %s", p.wait, reason)
		}
	}
}

// check reports all problems so far.
func (p *page) check() {
	p.tb.Helper()
	if problems := p.watch.take(); len(problems) > 0 {
		p.errorf("the page has problems:\n  %s", strings.Join(problems, "\n  "))
	}
}

func (p *page) fatalf(format string, args ...any) {
	p.tb.Helper()
	p.errorf(format, args...)
	p.tb.FailNow()
}

// errorf fails the test, with a screenshot and, once, with the text of the page.
func (p *page) errorf(format string, args ...any) {
	p.tb.Helper()
	if problems := p.watch.take(); len(problems) > 0 {
		format += "\nproblems:\n  %s"
		args = append(args, strings.Join(problems, "\n  "))
	}
	said := fmt.Sprintf(format, args...)
	if p.told == nil {
		p.tb.Errorf("%s", said)
		return
	}
	at, _ := tryEvaluate[string](p, "location.href") // an empty address says as much
	p.tb.Errorf("%s\nat %s, screenshot %s", said, at, p.photograph("failed-"+p.tb.Name()))
	if *p.told {
		return
	}
	*p.told = true
	text, err := tryEvaluate[string](p, "document.body?.innerText ?? ''")
	if err != nil {
		text = err.Error()
	}
	p.tb.Logf("the page shows:\n%s", shorten(text))
}

// shorten cuts a text for the output of a test.
func shorten(text string) string {
	if runes := []rune(text); len(runes) > 3000 {
		return string(runes[:3000]) + "…"
	}
	return text
}

// photograph saves what the page shows, and returns the path of the file.
func (p *page) photograph(name string) string {
	dir := screenshots()
	if dir == "" {
		dir = filepath.Join(os.TempDir(), "keyhook-screenshots")
	}
	path := filepath.Join(dir, regexp.MustCompile(`[^\w.-]+`).ReplaceAllString(name, "-")+".png")
	image, err := chromedp.Call(p.limited(), cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{})
	if err != nil {
		return err.Error()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err.Error()
	}
	if err := os.WriteFile(path, image.Data, 0o600); err != nil {
		return err.Error()
	}
	return path
}

// limited returns the context of the page with a deadline, which axe needs on the longest page.
func (p *page) limited() context.Context {
	ctx, cancel := context.WithTimeout(p.ctx, 2*patience)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// evaluate returns the value of an expression of JavaScript, or of the promise that it makes.
func evaluate[T any](p *page, expression string) T {
	p.tb.Helper()
	value, err := tryEvaluate[T](p, expression)
	if err != nil {
		p.fatalf("%v", err)
	}
	return value
}

func tryEvaluate[T any](p *page, expression string) (value T, err error) {
	result, err := chromedp.Call(p.limited(), runtime.Evaluate, runtime.EvaluateParams{Expression: expression, ReturnByValue: &yes, AwaitPromise: &yes})
	if err != nil {
		return value, err
	}
	return decode[T](result.Result, result.ExceptionDetails)
}

var yes = true // for optional parameters

// decode returns a value that JavaScript has sent.
func decode[T any](sent *runtime.RemoteObject, thrown *runtime.ExceptionDetails) (value T, err error) {
	switch {
	case thrown != nil && thrown.Exception != nil:
		return value, fmt.Errorf("JavaScript: %s %s", thrown.Text, thrown.Exception.Description)
	case thrown != nil:
		return value, fmt.Errorf("JavaScript: %s", thrown.Text)
	case len(sent.Value) == 0:
		return value, nil // undefined
	}
	return value, json.Unmarshal(sent.Value, &value)
}

// hostOf returns the host and the port of an address; empty for data: and blob:, which reach no host.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || slices.Contains([]string{"data", "blob", "about"}, u.Scheme) {
		return ""
	}
	return u.Host
}
