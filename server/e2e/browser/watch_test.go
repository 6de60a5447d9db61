package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// maxShift is how much the layout may jump during a visit: the sum of the layout shifts (https://web.dev/articles/cls).
const maxShift = 0.05

// watch hears what happens in a page: requests, errors, violations, jumps of the layout.
type watch struct {
	base string // the address of the server
	host string // of another site that the test visits too

	mu       sync.Mutex
	requests map[network.RequestID]string       // the requests that run, with their addresses
	sent     map[network.RequestID]string       // the addresses of all requests
	loaders  map[network.RequestID]cdp.LoaderID // the documents to which the requests belong
	problems []string
	allowed  []allowance
	shift    float64
	largest  jump
	copied   string
}

// allowance is a failure that the test has announced.
type allowance struct {
	status int
	prefix string
}

// jump is a layout shift.
type jump struct {
	Shift float64
	Nodes []string
}

func newWatch(base string) *watch {
	return &watch{base: base, requests: map[network.RequestID]string{}, sent: map[network.RequestID]string{}, loaders: map[network.RequestID]cdp.LoaderID{}}
}

// observer runs in each document before its own scripts. It reports to the binding keyhookTest. The clipboard is replaced,
// because all pages of Chromium share one.
const observer = `(() => {
	const report = value => window.keyhookTest(JSON.stringify(value));
	document.addEventListener("securitypolicyviolation", e =>
		report({violation: e.violatedDirective + " " + e.blockedURI + " " + e.sourceFile + ":" + e.lineNumber}));
	new PerformanceObserver(list => {
		for (const entry of list.getEntries()) {
			if (!entry.hadRecentInput) {
				report({shift: entry.value, nodes: entry.sources.map(s => (s.node?.outerHTML ?? s.node?.data ?? "").slice(0, 120))});
			}
		}
	}).observe({type: "layout-shift", buffered: true});
	if (navigator.clipboard) {
		navigator.clipboard.writeText = async text => report({copied: String(text)});
	}
})()`

// attach opens the tab of ctx and listens to it.
func (w *watch) attach(ctx context.Context) error {
	if err := chromedp.Listen(ctx, func(event any) { w.hear(ctx, event) }); err != nil {
		return err
	}
	if _, err := chromedp.Call(ctx, runtime.AddBinding, runtime.AddBindingParams{Name: "keyhookTest"}); err != nil {
		return err
	}
	if _, err := chromedp.Call(ctx, accessibility.Enable, cdp.Empty{}); err != nil {
		return err
	}
	_, err := chromedp.Call(ctx, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: observer})
	return err
}

// hear takes one event of the browser. It must not wait.
func (w *watch) hear(ctx context.Context, event any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		w.begin(e)
	case *network.EventResponseReceived:
		w.judge(int(e.Response.Status), e.Response.URL)
	case *cdppage.EventFrameNavigated: // a new document cancels the requests of the one before, without an event for each
		maps.DeleteFunc(w.loaders, func(_ network.RequestID, loader cdp.LoaderID) bool { return loader != e.Frame.LoaderID })
		maps.DeleteFunc(w.requests, func(id network.RequestID, _ string) bool { return w.loaders[id] == "" })
	case *network.EventLoadingFinished:
		delete(w.requests, e.RequestID)
	case *network.EventLoadingFailed:
		delete(w.requests, e.RequestID)
		if !e.Canceled && e.BlockedReason == "" { // a blocked request is reported as a violation
			w.judge(0, w.sent[e.RequestID])
		}
	case *runtime.EventExceptionThrown:
		_, err := decode[any](nil, e.ExceptionDetails)
		w.add("uncaught exception: %v", err)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeAssert {
			w.add("console: %s", texts(e.Args))
		}
	case *log.EventEntryAdded:
		// Requests that fail have an entry of their own, but the test may have announced them.
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			w.add("browser (%s): %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventBindingCalled:
		w.reported(e.Payload)
	case *cdppage.EventJavascriptDialogOpening:
		if e.Type != cdppage.DialogTypeBeforeunload {
			w.add("the page opened a dialog of the browser: %s", e.Message)
		}
		go chromedp.Call(ctx, cdppage.HandleJavaScriptDialog, cdppage.HandleJavaScriptDialogParams{Accept: true}) //nolint:errcheck // the page hangs then, and the test fails
	}
}

func (w *watch) begin(e *network.EventRequestWillBeSent) {
	w.requests[e.RequestID], w.sent[e.RequestID], w.loaders[e.RequestID] = e.Request.URL, e.Request.URL, e.LoaderID
	if e.RedirectResponse != nil {
		w.judge(int(e.RedirectResponse.Status), e.RedirectResponse.URL)
	}
	if host := hostOf(e.Request.URL); host != "" && host != hostOf(w.base) && host != w.host {
		w.add("request to another host: %s", e.Request.URL)
	}
}

// judge adds a response that the test has not announced. Status 0 is no response.
func (w *watch) judge(status int, address string) {
	if hostOf(address) == "" || status != 0 && status < 400 || status < 500 && w.hasAllowed(status, address) {
		return
	}
	if status == 0 {
		w.add("no response from %s", address)
		return
	}
	w.add("status %d from %s", status, address)
}

func (w *watch) hasAllowed(status int, address string) bool {
	return slices.ContainsFunc(w.allowed, func(a allowance) bool {
		return a.status == status && strings.HasPrefix(address, w.base+a.prefix)
	})
}

// reported takes a report of the observer.
func (w *watch) reported(payload string) {
	var report struct {
		Violation string
		Copied    *string
		jump
	}
	if err := json.Unmarshal([]byte(payload), &report); err != nil {
		w.add("the observer: %v", err)
	}
	if report.Violation != "" {
		w.add("content security policy: %s", report.Violation)
	}
	if report.Copied != nil {
		w.copied = *report.Copied
	}
	if w.shift += report.Shift; report.Shift > w.largest.Shift {
		w.largest = report.jump
	}
}

func (w *watch) add(format string, args ...any) {
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

// take returns the problems so far, and forgets them.
func (w *watch) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	problems := w.problems
	w.problems = nil
	return problems
}

// running returns the addresses of the requests that have not ended.
func (w *watch) running() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Values(w.requests))
}

func (w *watch) allow(status int, prefix string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allowed = append(w.allowed, allowance{status, prefix})
}

func (w *watch) isAllowed(status int, address string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hasAllowed(status, address)
}

// visits announces that the page visits another host.
func (w *watch) visits(host string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.host = host
}

func (w *watch) forgetShift() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shift, w.largest = 0, jump{}
}

// shifted returns the sum of the layout shifts since forgetShift, and the elements of the largest.
func (w *watch) shifted() (total float64, largest string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shift, strings.Join(w.largest.Nodes, " ")
}

// lastCopied returns what the page has put into the clipboard last.
func (w *watch) lastCopied() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.copied
}

// texts shows the arguments of a call of the console.
func texts(args []*runtime.RemoteObject) string {
	var all []string
	for _, a := range args {
		if a.Description != "" {
			all = append(all, a.Description)
		} else {
			all = append(all, string(a.Value))
		}
	}
	return strings.Join(all, " ")
}
