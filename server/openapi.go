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

// openAPI is the description of the API, in OpenAPI 3.1.
//
//go:embed openapi.yaml
var openAPI []byte

// description are the endpoints that serve the description of the API.
type description struct {
	yaml document
	json func() (document, error) // made from the YAML when it is first asked for
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

func (h description) asYAML(x *exchange) error {
	h.yaml.serve(x)
	return nil
}

func (h description) asJSON(x *exchange) error {
	d, err := h.json()
	if err != nil {
		return fmt.Errorf("description as JSON: %w", err)
	}
	d.serve(x)
	return nil
}

// serve sends the document, unless the caller has it already. Caches must revalidate it, because another version of the program
// has another document.
func (d document) serve(x *exchange) {
	x.set("ETag", d.tag)
	x.set("Cache-Control", "no-cache")
	if matchesETag(x.request.Header.Values("If-None-Match"), d.tag) {
		x.WriteHeader(http.StatusNotModified)
		return
	}
	x.send(http.StatusOK, d.mediaType, d.body)
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

// jsonFromYAML writes a YAML document as JSON, its members in the order in which they were written. Only what JSON has is
// taken: no aliases, and no other keys than strings.
func jsonFromYAML(text []byte) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	return appendJSON(make([]byte, 0, len(text)), &root)
}

func appendJSON(dst []byte, n *yaml.Node) (_ []byte, err error) {
	switch {
	case n.Kind == yaml.DocumentNode:
		return appendJSON(dst, n.Content[0])
	case n.Kind == yaml.MappingNode:
		for i, child := range n.Content {
			switch {
			case i%2 == 1:
				dst = append(dst, ':')
			case child.ShortTag() != "!!str":
				return nil, fmt.Errorf("line %d: the key %s is no string", child.Line, child.Value)
			case i > 0:
				dst = append(dst, ',')
			default:
				dst = append(dst, '{')
			}
			if dst, err = appendJSON(dst, child); err != nil {
				return nil, err
			}
		}
		if len(n.Content) == 0 {
			dst = append(dst, '{')
		}
		return append(dst, '}'), nil
	case n.Kind == yaml.SequenceNode:
		dst = append(dst, '[')
		for i, child := range n.Content {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendJSON(dst, child); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case n.Kind == yaml.ScalarNode:
		return appendScalar(dst, n)
	}
	return nil, fmt.Errorf("line %d: JSON has no aliases", n.Line)
}

// appendScalar writes what looks like a time as the string that it is to readers of YAML 1.2.
func appendScalar(dst []byte, n *yaml.Node) ([]byte, error) {
	switch n.ShortTag() {
	case "!!null":
		return append(dst, "null"...), nil
	case "!!str", "!!timestamp":
		text, err := json.Marshal(n.Value)
		return append(dst, text...), err
	}
	if !json.Valid([]byte(n.Value)) {
		return nil, fmt.Errorf("line %d: JSON has no %s", n.Line, n.Value)
	}
	return append(dst, n.Value...), nil
}
