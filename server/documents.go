package server

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

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

// openAPI is the description of the API, in OpenAPI 3.1.
//
//go:embed openapi.yaml
var openAPI []byte

// description are the endpoints that serve the description of the API.
type description struct {
	yaml document
	json func() (document, error) // built at the first request for it
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

// newDescription describes a server that callers reach at base. If base is empty, they reach it where they found the
// description.
func newDescription(base string) description {
	text := withServerURL(openAPI, base)
	return description{
		yaml: newDocument("application/yaml", text), // RFC 9512
		json: sync.OnceValues(func() (document, error) {
			body, err := jsonFromYAML(text)
			return newDocument("application/json", body), err
		}),
	}
}

// withServerURL replaces the address of the server in the text by base. A JSON string is also a YAML string.
func withServerURL(text []byte, base string) []byte {
	if base == "" {
		return text
	}
	address, err := json.Marshal(strings.TrimSuffix(base, "/"))
	if err != nil {
		return text // unreachable: every string has a JSON form
	}
	return bytes.Replace(text, []byte("\n  - url: /\n"), []byte("\n  - url: "+string(address)+"\n"), 1)
}

func (h description) asYAML(x *exchange.Exchange) error {
	h.yaml.serve(x)
	return nil
}

func (h description) asJSON(x *exchange.Exchange) error {
	d, err := h.json()
	if err != nil {
		return fmt.Errorf("description as JSON: %w", err)
	}
	d.serve(x)
	return nil
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

// jsonFromYAML returns a YAML document as JSON, with the keys of each object sorted.
func jsonFromYAML(text []byte) ([]byte, error) {
	var content any
	if err := yaml.Unmarshal(text, &content); err != nil {
		return nil, err
	}
	return json.Marshal(content)
}
