package server_test

import (
	"compress/gzip"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server"
)

// assetOf matches the paths of assets in the page.
var assetOf = regexp.MustCompile(`(?:href|src)="(/[^"]+)"`)

func TestConsole(t *testing.T) {
	t.Parallel()
	f := start(t)
	page := f.Do(t, "GET /console/", "", "").Want(t, 200, "")

	t.Run("every path below it has the page", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{"/console", "/console/subscriptions/", "/console/subscriptions/sub_x", "/console/a%2Fb/?q=1"} {
			if got := f.Do(t, "GET "+path, "", "").Want(t, 200, ""); got.Text != page.Text {
				t.Errorf("%s has another body", path)
			}
		}
	})
	t.Run("the page is loaded again each time, and limits what it loads", func(t *testing.T) {
		t.Parallel()
		want := map[string]string{
			"Cache-Control":           "no-cache",
			"Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
			"X-Frame-Options":         "DENY",
			"Referrer-Policy":         "no-referrer",
			"X-Content-Type-Options":  "nosniff",
			"Content-Type":            "text/html; charset=utf-8",
		}
		for name, value := range want {
			if got := page.Header.Get(name); got != value {
				t.Errorf("%s: %q, want %q", name, got, value)
			}
		}
	})
	t.Run("its files are kept for ever, and have their media types", func(t *testing.T) {
		t.Parallel()
		found := assetOf.FindAllStringSubmatch(page.Text, -1)
		if len(found) < 10 {
			t.Fatalf("the page has only %d files", len(found))
		}
		for _, m := range found {
			got := f.Do(t, "GET "+m[1], "", "").Want(t, 200, "")
			if kept := got.Header.Get("Cache-Control"); kept != "public, max-age=31536000, immutable" {
				t.Errorf("%s: Cache-Control: %q", m[1], kept)
			}
			if vary := got.Header.Get("Vary"); vary != "Accept-Encoding" {
				t.Errorf("%s: Vary: %q", m[1], vary)
			}
			if mediaType := got.Header.Get("Content-Type"); !strings.HasPrefix(mediaType, "text/") && mediaType != "image/svg+xml" {
				t.Errorf("%s: Content-Type: %q", m[1], mediaType)
			}
		}
	})
	t.Run("a file is compressed for a client that accepts gzip", func(t *testing.T) {
		t.Parallel()
		got := f.Do(t, "GET /console/", "", "", "Accept-Encoding", "gzip, deflate, br").Want(t, 200, "")
		if encoding := got.Header.Get("Content-Encoding"); encoding != "gzip" {
			t.Fatalf("Content-Encoding: %q", encoding)
		}
		r, err := gzip.NewReader(strings.NewReader(got.Text))
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(r); err != nil || string(body) != page.Text {
			t.Errorf("another body: %v", err)
		}
	})
	t.Run("an unknown file is missing, and other methods are refused", func(t *testing.T) {
		t.Parallel()
		f.Do(t, "GET /console/static/0123456789abcdef/app.js", "", "").Want(t, 404, "not_found")
		f.Do(t, "GET /console/static/", "", "").Want(t, 404, "not_found")
		got := f.Do(t, "POST /console/subscriptions/", "", "").Want(t, 405, "method_not_allowed")
		if allow := got.Header.Get("Allow"); allow != "GET, HEAD" {
			t.Errorf("Allow: %q", allow)
		}
	})
}

func TestTheAddressOfTheServerLeadsToTheConsole(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{"": "/console/", "https://example.com/keyhook/": "/keyhook/console/"} {
		f := start(t, func(o *server.Options) { o.BaseURL = base })
		for _, line := range []string{"GET /", "HEAD /", "GET /?utm_source=mail"} {
			got := f.Do(t, line, "", "").Want(t, 303, "")
			if got.Header.Get("Location") != want || got.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("base %q, %s: headers %v", base, line, got.Header)
			}
		}
		f.Do(t, "GET //", "", "").Want(t, 404, "not_found")
		if got := f.Do(t, "POST /", "", "").Want(t, 405, "method_not_allowed"); got.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("Allow: %q", got.Header.Get("Allow"))
		}
	}
}

func TestConsoleOptions(t *testing.T) {
	t.Parallel()
	t.Run("without a console, its paths are missing", func(t *testing.T) {
		t.Parallel()
		f := start(t, func(o *server.Options) { o.Console = nil })
		f.Do(t, "GET /", "", "").Want(t, 404, "not_found")
		f.Do(t, "POST /", "", "").Want(t, 404, "not_found")
		f.Do(t, "GET /console/", "", "").Want(t, 404, "not_found")
		f.Do(t, "GET /console/subscriptions/", "", "").Want(t, 404, "not_found")
	})
	t.Run("pages of other origins may show it in a frame if a setting names them", func(t *testing.T) {
		t.Parallel()
		f := start(t, func(o *server.Options) {
			o.Console.FrameAncestors = []string{"https://app.example.com"}
		})
		header := f.Do(t, "GET /console/", "", "").Want(t, 200, "").Header
		if policy := header.Get("Content-Security-Policy"); !strings.Contains(policy, "frame-ancestors 'self' https://app.example.com;") || header.Get("X-Frame-Options") != "" {
			t.Errorf("headers: %v", header)
		}
	})
	t.Run("the host's logo is one of its files, and runs no script", func(t *testing.T) {
		t.Parallel()
		for logo, want := range map[string][2]string{
			`<svg xmlns="http://www.w3.org/2000/svg"/>`: {"logo.svg", "image/svg+xml"},
			"\x89PNG\r\n\x1a\n":                         {"logo.png", "image/png"},
		} {
			f := start(t, func(o *server.Options) { o.Console.Logo = []byte(logo) })
			_, rest, _ := strings.Cut(f.Do(t, "GET /console/", "", "").Text, `data-logo="`)
			path, _, _ := strings.Cut(rest, `"`)
			got := f.Do(t, "GET "+path, "", "").Want(t, 200, "")
			policy := got.Header.Get("Content-Security-Policy")
			if !strings.HasSuffix(path, "/"+want[0]) || got.Text != logo || got.Header.Get("Content-Type") != want[1] ||
				want[0] == "logo.svg" && policy != "default-src 'none'; style-src 'unsafe-inline'; sandbox" {
				t.Errorf("%s: %v", path, got.Header)
			}
		}
		if page := start(t).Do(t, "GET /console/", "", "").Text; !strings.Contains(page, `data-logo=""`) {
			t.Error("without a logo, the page names one")
		}
	})
	t.Run("the page says which pages the portal has, and all without the setting", func(t *testing.T) {
		t.Parallel()
		for want, pages := range map[string][]string{"keys audit": {"keys", "audit"}, "subscriptions events keys audit": nil} {
			f := start(t, func(o *server.Options) { o.Console.PortalPages = pages })
			if page := f.Do(t, "GET /console/", "", "").Text; !strings.Contains(page, `data-portal="`+want+`"`) || !strings.Contains(page, `data-parts="false"`) {
				t.Errorf("%q: %s", pages, page[:min(len(page), 900)])
			}
		}
	})
}
