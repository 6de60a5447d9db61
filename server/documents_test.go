package server_test

import (
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server"
)

var (
	hrefOf = regexp.MustCompile(`href="(/[^"#]*)(?:#([^"]*))?"`)
	idOf   = regexp.MustCompile(` id="([^"]+)"`)
)

// TestDocuments reads every page. Each link from one page to another must lead to a page and a heading.
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
		if policy := got.Header.Get("Content-Security-Policy"); policy != "default-src 'none'; style-src 'self'" {
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
}
