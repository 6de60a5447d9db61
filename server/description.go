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
)

// openAPI describes the API, in OpenAPI 3.1.
//
//go:embed openapi.yaml
var openAPI []byte

// description serves the OpenAPI description as YAML and as JSON.
type description struct {
	yaml document
	json func() (document, error) // made at the first request for it
}

// document is a response body that is the same for every caller.
type document struct {
	mediaType string
	body      []byte
	tag       string // of the body, in quotes (RFC 9110 section 8.8.3)
}

func newDocument(mediaType string, body []byte) document {
	sum := sha256.Sum256(body)
	return document{mediaType, body, `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
}

// newDescription describes a server that callers reach at the URL base. If base is empty, the description names the
// server by the path /, so clients use the address from which they got the description.
func newDescription(base string) description {
	text := at(openAPI, base)
	return description{
		yaml: newDocument("application/yaml", text), // RFC 9512
		json: sync.OnceValues(func() (document, error) {
			body, err := jsonFromYAML(text)
			return newDocument("application/json", body), err
		}),
	}
}

// at returns the description with base as the URL of the server. A JSON string is also a YAML string.
func at(text []byte, base string) []byte {
	if base == "" {
		return text
	}
	address, err := json.Marshal(strings.TrimSuffix(base, "/"))
	if err != nil {
		return text // unreachable: every string can be written as JSON
	}
	return bytes.Replace(text, []byte("\n  - url: /\n"), []byte("\n  - url: "+string(address)+"\n"), 1)
}

func (h description) asYAML(c *call) error {
	h.yaml.answer(c)
	return nil
}

func (h description) asJSON(c *call) error {
	d, err := h.json()
	if err != nil {
		return fmt.Errorf("description as JSON: %w", err)
	}
	d.answer(c)
	return nil
}

// answer sends the document, or 304 if the caller has it already. Callers may cache it but must revalidate it, because
// another version of the program has another text.
func (d document) answer(c *call) {
	c.set("ETag", d.tag)
	c.set("Cache-Control", "no-cache")
	if holds(c.request.Header.Values("If-None-Match"), d.tag) {
		c.WriteHeader(http.StatusNotModified)
		return
	}
	c.send(http.StatusOK, d.mediaType, d.body)
}

// holds reports whether If-None-Match names the tag (RFC 9110 section 13.1.2). A proxy may have made the tag weak. Our
// tags contain no comma.
func holds(lists []string, tag string) bool {
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
