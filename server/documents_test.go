package server_test

import (
	"encoding/json"
	"html"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/storage/storagetest"
)

var (
	hrefOf = regexp.MustCompile(`(?:href|src)="(/[^"#]*)(?:#([^"]*))?"`)
	idOf   = regexp.MustCompile(` id="([^"]+)"`)
)

// policyOfDocuments lets a page load its own files and send its own form, and nothing else.
const policyOfDocuments = "default-src 'none'; script-src 'self'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// TestDocumentsAreServed reads every page. Each link from one page to another must lead to a page and a heading.
func TestDocumentsAreServed(t *testing.T) {
	t.Parallel()
	f := build(t, func(o *server.Options) { o.BaseURL = "https://example.com/hooks" })
	const base = "/hooks"
	pages := map[string]string{}
	links := map[string]string{} // target, with its fragment → the page that has it
	waiting := []string{"/docs/"}
	for len(waiting) > 0 {
		path := waiting[0]
		waiting = waiting[1:]
		if _, known := pages[path]; known {
			continue
		}
		got := f.Do(t, "GET "+path, "", "").Want(t, 200, "")
		if !strings.HasPrefix(path, "/docs/") { // the console, the description
			continue
		}
		if policy := got.Header.Get("Content-Security-Policy"); policy != policyOfDocuments {
			t.Errorf("%s: the policy is %q", path, policy)
		}
		pages[path] = got.Text
		for _, m := range hrefOf.FindAllStringSubmatch(got.Text, -1) {
			target, inside := strings.CutPrefix(m[1], base)
			if !inside {
				t.Errorf("%s links to %s, which is outside of the server's base path", path, m[1])
				continue
			}
			links[target+"#"+html.UnescapeString(m[2])] = path
			waiting = append(waiting, target)
		}
	}
	if len(pages) < 6 || !strings.Contains(pages["/docs/operating/"], "<h1 id=") {
		t.Fatalf("only %d pages are served", len(pages))
	}
	for link, from := range links {
		path, heading, _ := strings.Cut(link, "#")
		found := heading == ""
		for _, m := range idOf.FindAllStringSubmatch(pages[path], -1) {
			found = found || m[1] == heading
		}
		if !found {
			t.Errorf("%s links to %s, and there is no such heading", from, link)
		}
	}
	f.Do(t, "GET /docs/unknown/", "", "").Want(t, 404, "not_found")
	if without := build(t, func(o *server.Options) { o.Console = nil }).Do(t, "GET /docs/", "", ""); strings.Contains(without.Text, "/console/") {
		t.Error("a server without a console links to it")
	}
}

// TestDocumentsAreSearched looks for words in the documents and in the reference.
func TestDocumentsAreSearched(t *testing.T) {
	t.Parallel()
	f := build(t)
	for words, want := range map[string]string{
		"retr":             `<a href="/docs/receiving/#`, // finds "retry" and "retries"
		"HEALTHZ readyz":   `<a href="/docs/operating/#`, // in any case, and all words
		"publish+an+event": `<a href="/docs/api/#publishEvent">Publish an event</a>`,
		"idempotency_key":  "idempotency_key",
		"%3Cscript%3Ezzz":  "No section has all words of “&lt;script&gt;zzz”",
		"zzz+retry":        "No section has all words of “zzz retry”",
	} {
		got := f.Do(t, "GET /docs/?q="+strings.ReplaceAll(words, " ", "+"), "", "").Want(t, 200, "")
		if !strings.Contains(got.Text, want) || got.Header.Get("Content-Security-Policy") != policyOfDocuments {
			t.Errorf("%s: no %s in\n%s", words, want, got.Text)
		}
	}
	if list := f.Do(t, "GET /docs/?q=", "", "").Want(t, 200, ""); !strings.Contains(list.Text, "<h1>Documents</h1>") {
		t.Errorf("no word does not show the list: %s", list.Text)
	}
	f.Do(t, "GET /docs/?q="+strings.Repeat("a", 101), "", "").Want(t, 400, "invalid_parameter")
	f.Do(t, "GET /docs/?q="+strings.Repeat("a", 100), "", "").Want(t, 200, "")
	for words, first := range map[string]string{
		"publish+an+event": "/docs/api/#publishEvent", "rotate": "rotat", "discard": "iscard", // whose title has the word comes first
	} {
		_, results, _ := strings.Cut(f.Do(t, "GET /docs/?q="+words, "", "").Text, `<ol class="results">`)
		title, _, _ := strings.Cut(results, "</h2>")
		if n := strings.Count(results, "<li>\n<h2>"); !strings.Contains(title, first) || n < 2 || n > 30 {
			t.Errorf("%s: %d results, the first is %s", words, n, title)
		}
	}
	for _, word := range []string{"alert", "backup", "limit", "usage"} {
		var isInTitle []bool
		for _, found := range titleOfResult.FindAllStringSubmatch(f.Do(t, "GET /docs/?q="+word, "", "").Text, -1) {
			isInTitle = append(isInTitle, strings.Contains(strings.ToLower(found[1]), word))
		}
		first := slices.Index(isInTitle, false)
		if first < 1 || slices.Contains(isInTitle[first:], true) {
			t.Errorf("%s: the title has the word in these results: %v", word, isInTitle)
		}
	}
	f.Do(t, "GET /docs/?query=a", "", "").Want(t, 400, "unknown_parameter")
}

var titleOfResult = regexp.MustCompile(`<h2><a href="[^"]*">(.*)</a></h2>`)

// shownOperation matches an operation of the reference up to its command.
var shownOperation = regexp.MustCompile(`(?s)<section class="operation">\s*<h3 id="([a-z]\w+)">(.*?)<pre tabindex="0"><code>(curl .*?)</code></pre>`)

// TestReferenceHasEveryOperation compares the page with the description, and runs its commands that only read. A read needs the example's
// thing, so 404 is right where the path names one.
func TestReferenceHasEveryOperation(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip("curl is not installed: apt-get install curl")
	}
	f := start(t, measured, func(o *server.Options) { o.ConsoleURL = "http://keys.example/" })
	zipped := f.Do(t, "GET /docs/api/", "", "", "Accept-Encoding", "gzip").Want(t, 200, "")
	if zipped.Header.Get("Content-Encoding") != "gzip" || len(zipped.Text) > 80<<10 || !strings.HasPrefix(zipped.Header.Get("ETag"), "W/") {
		t.Errorf("the page has %d bytes, encoding %q, ETag %s", len(zipped.Text), zipped.Header.Get("Content-Encoding"), zipped.Header.Get("ETag"))
	}
	f.Do(t, "GET /docs/api/", "", "", "If-None-Match", zipped.Header.Get("ETag")).Want(t, 304, "")
	page := f.Do(t, "GET /docs/api/", "", "").Want(t, 200, "").Text
	shown, commands := map[string]string{}, map[string]string{}
	for _, m := range shownOperation.FindAllStringSubmatch(page, -1) {
		shown[m[1]], commands[m[1]] = m[2], html.UnescapeString(m[3])
	}
	ran := 0
	for _, op := range written(t).Operations {
		id, _ := op.Node["operationId"].(string)
		permission, _ := op.Node["x-permission"].(string)
		if !strings.Contains(shown[id], "<b>"+op.Method+"</b> "+op.Path+"<") ||
			permission != "" && !strings.Contains(shown[id], "Permission: <code>"+permission+"</code>") {
			t.Errorf("%s: the page does not show %s with the permission %q:\n%s", id, op.Line(), permission, shown[id])
		}
		if op.Method != http.MethodGet || op.IsProxied() || strings.Contains(commands[id], "$SESSION") {
			continue // the last two take other credentials
		}
		ran++
		cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(commands[id], "'http://keys.example/", "'"+f.URL+"/", 1)+` -s -w '\n%{http_code}'`)
		cmd.Env = []string{"TOKEN=" + storagetest.OperatorToken, "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
		out, err := cmd.Output()
		lines := strings.Split(string(out), "\n")
		status := lines[len(lines)-1]
		missing := status == "404" && (strings.Contains(op.Path, "{") || slices.Contains([]string{"beginSignIn", "finishSignIn"}, id))
		if err != nil || !slices.Contains([]string{"200", "204", "303"}, status) && !missing {
			t.Errorf("%s: %v\n%s", commands[id], err, out)
		}
	}
	if ran < 40 {
		t.Errorf("only %d commands were run", ran)
	}
	for id, command := range commands { // what a shell and a server must understand
		if _, body, found := strings.Cut(command, " --json '"); found && !json.Valid([]byte(strings.ReplaceAll(strings.TrimSuffix(body, "'"), `'\''`, "'"))) {
			t.Errorf("%s: the body is no JSON: %s", id, body)
		}
	}
	for _, want := range []string{
		`<a href="/docs/objects/#ApiKey">ApiKey</a>`, "1 to 100 characters", "<b>required</b>", "permission_denied", "&#39;http://keys.example/api/v1/events/&#39;",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
}
