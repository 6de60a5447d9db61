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
	"github.com/keyhook/keyhook/server/form"
)

// site has the documents, which are rendered at the first request.
type site struct {
	*docs.Site
	pages map[string]console.File // by name
}

func newSite(o Options, base string, api description) func() (site, error) {
	return sync.OnceValues(func() (site, error) {
		settings := docs.Options{Base: base, URL: strings.TrimSuffix(o.ConsoleURL, "/"), Brand: console.DefaultName}
		accent := ""
		if o.Console != nil {
			settings.Console, accent, settings.Brand = base+console.Path, o.Console.Accent, cmp.Or(o.Console.Name, settings.Brand)
		}
		described, err := api.json()
		style, styleErr := console.Tokens(accent)
		script, scriptErr := console.Colours()
		if err = cmp.Or(err, styleErr, scriptErr); err != nil {
			return site{}, err
		}
		settings.Description, settings.Style, settings.Script = described.Body, style, script
		rendered, err := docs.Render(settings)
		if err != nil {
			return site{}, err
		}
		pages := make(map[string]console.File, len(rendered.Pages))
		for _, page := range rendered.Pages {
			pages[page.Name] = newDocument(page.MediaType, page.Body)
		}
		return site{rendered, pages}, nil
	})
}

// readDocument sends the page in the path, or the list of documents, or what a search finds. A page may load its own style and script, and
// nothing else.
func (h *handlers) readDocument(x *exchange.Exchange) error {
	words, _ := x.Query.Value("q")
	if len(words) > docs.MaxQuery {
		x.Query.Refuse("q", fmt.Sprintf("must have at most %d bytes", docs.MaxQuery))
	}
	if err := x.Query.Err(); err != nil {
		return err
	}
	s, err := h.documents()
	if err != nil {
		return fmt.Errorf("documents: %w", err)
	}
	page, found := s.pages[x.Path.Value("name")] // the list has no name
	if words != "" {
		results, err := s.Search(words)
		if err != nil {
			return fmt.Errorf("documents: search: %w", err)
		}
		page = newDocument(docs.HTML, results)
	}
	if !found {
		return exchange.Refuse(http.StatusNotFound, "not_found", "There is no document with this name; see the list at "+x.Base+docs.Path+".")
	}
	x.SetHeader("Content-Security-Policy",
		"default-src 'none'; script-src 'self'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	sendFile(x, page)
	return nil
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

// isConsole reports whether the files of the console have this path. The API serves the paths of sign-in with an identity provider.
func isConsole(path string) bool {
	return path+"/" == console.Path || strings.HasPrefix(path, console.Path) && !strings.HasPrefix(path, console.Path+"oidc/")
}

func isRoot(path string) bool { return path == "/" }

func (h *handlers) redirectToConsole(x *exchange.Exchange) error {
	x.Redirect(x.Base + console.Path)
	return nil
}

func (h *handlers) consoleFile(x *exchange.Exchange) error {
	path := x.Request.URL.Path
	file, found := h.console.File(strings.TrimPrefix(path, console.Path))
	if !found {
		return exchange.Refuse(http.StatusNotFound, "not_found", "The console has no file "+form.Printable(path, form.MaxName)+". Reload the page.")
	}
	sendFile(x, file)
	return nil
}
