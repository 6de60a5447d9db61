package server

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/keyhook/keyhook/server/docs"
	"github.com/keyhook/keyhook/server/exchange"
)

const docsPath = "/docs/"

// documents serves the user documents as HTML.
type documents struct {
	pages func() (map[string]document, error) // by name; rendered at the first request
}

// newDocuments serves documents. base is the path under which callers reach the server.
func newDocuments(base string) documents {
	return documents{sync.OnceValues(func() (map[string]document, error) {
		rendered, err := docs.Render(base + docsPath)
		if err != nil {
			return nil, err
		}
		pages := make(map[string]document, len(rendered))
		for _, page := range rendered {
			pages[page.Name] = newDocument(page.MediaType, page.Body)
		}
		return pages, nil
	})}
}

// index lists the documents.
func (h documents) index(x *exchange.Exchange) error { return h.show(x, "") }

// read shows one document, or the style sheet.
func (h documents) read(x *exchange.Exchange) error { return h.show(x, x.Path.Value("name")) }

func (h documents) show(x *exchange.Exchange, name string) error {
	pages, err := h.pages()
	if err != nil {
		return fmt.Errorf("documents: %w", err)
	}
	page, found := pages[name]
	if !found {
		return exchange.Refuse(http.StatusNotFound, "not_found", "There is no document with this name; see the list at "+x.Base+docsPath+".")
	}
	x.SetHeader("Content-Security-Policy", "default-src 'none'; style-src 'self'")
	page.serve(x)
	return nil
}

// document is a response that is the same for all callers.
type document struct {
	mediaType string
	body      []byte
	tag       string // of the body, in quotes (RFC 9110 section 8.8.3)
}

func newDocument(mediaType string, body []byte) document {
	sum := sha256.Sum256(body)
	return document{mediaType, body, `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
}

// serve sends the document, unless the caller has it already. Caches must revalidate it, because another version of the program
// has another document.
func (d document) serve(x *exchange.Exchange) {
	x.SetHeader("ETag", d.tag)
	x.SetHeader("Cache-Control", "no-cache")
	if matchesETag(x.Request.Header.Values("If-None-Match"), d.tag) {
		x.WriteHeader(http.StatusNotModified)
		return
	}
	x.Send(http.StatusOK, d.mediaType, d.body)
}

// matchesETag reports whether If-None-Match contains the tag (RFC 9110 section 13.1.2). A proxy may have made the tag weak. Our
// tags contain no comma.
func matchesETag(lists []string, tag string) bool {
	for _, list := range lists {
		for item := range strings.SplitSeq(list, ",") {
			if item = strings.TrimSpace(item); item == "*" || strings.TrimPrefix(item, "W/") == tag {
				return true
			}
		}
	}
	return false
}
