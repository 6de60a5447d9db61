package server

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/server/docs"
	"github.com/keyhook/keyhook/server/exchange"
)

type documents struct {
	site func() (site, error) // rendered at the first request
}

type site struct {
	*docs.Site
	pages map[string]console.File
}

func newDocuments(o Options, base string, api description) documents {
	return documents{sync.OnceValues(func() (site, error) {
		settings := docs.Options{Base: base, URL: strings.TrimSuffix(o.ConsoleURL, "/"), Brand: console.DefaultName}
		accent := ""
		if o.Console != nil {
			settings.Console, accent, settings.Brand = base+console.Path, o.Console.Accent, cmp.Or(o.Console.Name, settings.Brand)
		}
		described, err := api.json()
		if err != nil {
			return site{}, err
		}
		settings.Description = described.Body
		if settings.Style, err = console.Tokens(accent); err != nil {
			return site{}, err
		}
		if settings.Script, err = console.Colours(); err != nil {
			return site{}, err
		}
		rendered, err := docs.Render(settings)
		if err != nil {
			return site{}, err
		}
		pages := make(map[string]console.File, len(rendered.Pages))
		for _, page := range rendered.Pages {
			pages[page.Name] = newDocument(page.MediaType, page.Body)
		}
		return site{rendered, pages}, nil
	})}
}

func (h documents) index(x *exchange.Exchange) error {
	words, _ := x.Query.Value("q")
	if len(words) > docs.MaxQuery {
		x.Query.Refuse("q", fmt.Sprintf("must have at most %d bytes", docs.MaxQuery))
	}
	if err := x.Query.Err(); err != nil {
		return err
	}
	if words == "" {
		return h.show(x, "")
	}
	s, err := h.site()
	if err != nil {
		return fmt.Errorf("documents: %w", err)
	}
	found, err := s.Search(words)
	if err != nil {
		return fmt.Errorf("documents: search: %w", err)
	}
	h.send(x, newDocument(docs.HTML, found))
	return nil
}

func (h documents) read(x *exchange.Exchange) error { return h.show(x, x.Path.Value("name")) }

func (h documents) show(x *exchange.Exchange, name string) error {
	s, err := h.site()
	if err != nil {
		return fmt.Errorf("documents: %w", err)
	}
	page, found := s.pages[name]
	if !found {
		return exchange.Refuse(http.StatusNotFound, "not_found", "There is no document with this name; see the list at "+x.Base+docs.Path+".")
	}
	h.send(x, page)
	return nil
}

// send sends a page that may load its own style and script, and nothing else.
func (h documents) send(x *exchange.Exchange, page console.File) {
	x.SetHeader("Content-Security-Policy",
		"default-src 'none'; script-src 'self'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	sendFile(x, page)
}

// newDocument returns a file that is the same for all callers. Caches must revalidate it, because another version of the program has
// another document.
func newDocument(mediaType string, body []byte) console.File {
	sum := sha256.Sum256(body)
	f := console.NewFile(mediaType, body, [2]string{"Cache-Control", "no-cache"})
	f.Tag = `W/"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	return f
}

// sendFile sends a file, unless the caller has it already; in gzip if the caller takes it.
func sendFile(x *exchange.Exchange, f console.File) {
	for _, field := range f.Header {
		x.SetHeader(field[0], field[1])
	}
	if f.Tag != "" {
		x.SetHeader("ETag", f.Tag)
		if matchesETag(x.Request.Header.Values("If-None-Match"), f.Tag) {
			x.WriteHeader(http.StatusNotModified)
			return
		}
	}
	body := f.Body
	if exchange.AcceptsGzip(x.Request.Header) {
		if smaller := f.Zipped(); smaller != nil {
			x.SetHeader("Content-Encoding", "gzip")
			body = smaller
		}
	}
	x.Send(http.StatusOK, f.Type, body)
}

// matchesETag reports whether If-None-Match contains the weak tag (RFC 9110 section 13.1.2). Our tags contain no comma.
func matchesETag(lists []string, tag string) bool {
	for item := range strings.SplitSeq(strings.Join(lists, ","), ",") {
		if item = strings.TrimSpace(item); item == "*" || strings.TrimPrefix(item, "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}
