package server

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/keyhook/keyhook/server/docs"
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
func (h documents) index(x *exchange) error { return h.show(x, "") }

// read shows one document, or the style sheet.
func (h documents) read(x *exchange) error { return h.show(x, x.params.ByName("name")) }

func (h documents) show(x *exchange, name string) error {
	pages, err := h.pages()
	if err != nil {
		return fmt.Errorf("documents: %w", err)
	}
	page, found := pages[name]
	if !found {
		return &refusal{http.StatusNotFound, "not_found", "There is no document with this name; see the list at " + x.base + docsPath + "."}
	}
	x.set("Content-Security-Policy", "default-src 'none'; style-src 'self'")
	page.serve(x)
	return nil
}
