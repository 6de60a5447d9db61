package server

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/keyhook/keyhook/server/docs"
)

const docsPath = "/docs/"

// documents serves the documents for users as HTML.
type documents struct {
	pages func() (map[string]document, error) // by name; rendered when the first one is asked for
}

// newDocuments serves documents to callers who reach the server under the path base.
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
func (h documents) index(c *call) error { return h.show(c, "") }

// read shows one document, or their style sheet.
func (h documents) read(c *call) error { return h.show(c, c.params.ByName("name")) }

func (h documents) show(c *call, name string) error {
	pages, err := h.pages()
	if err != nil {
		return fmt.Errorf("documents: %w", err)
	}
	page, found := pages[name]
	if !found {
		return &refusal{http.StatusNotFound, "not_found", "There is no document of this name; " + c.base + docsPath + " lists them."}
	}
	c.set("Content-Security-Policy", "default-src 'none'; style-src 'self'")
	page.serve(c)
	return nil
}
