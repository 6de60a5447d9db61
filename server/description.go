package server

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/server/exchange"
)

// openAPI is the description of the API, in OpenAPI 3.1, without what complete adds.
//
//go:embed openapi.yaml
var openAPI []byte

// description are the endpoints that serve the description of the API. Each document is made at the first request for it.
type description struct{ yaml, json func() (console.File, error) }

// newDescription describes a server that callers reach at base. If base is empty, they reach it where they found the description.
func newDescription(base string) description {
	text := sync.OnceValues(func() ([]byte, error) { return complete(openAPI, base) })
	return description{
		yaml: sync.OnceValues(func() (console.File, error) {
			body, err := text()
			return newDocument("application/yaml", body), err // RFC 9512
		}),
		json: sync.OnceValues(func() (console.File, error) {
			body, err := text()
			var content any
			if err = cmp.Or(err, yaml.Unmarshal(body, &content)); err == nil {
				body, err = json.Marshal(content)
			}
			return newDocument("application/json", body), err
		}),
	}
}

// Description returns openapi.yaml as JSON, as a server without a base URL serves it.
func Description() ([]byte, error) {
	d, err := newDescription("").json()
	return d.Body, err
}

func serveDocument(made func() (console.File, error)) handler {
	return func(x *exchange.Exchange) error {
		d, err := made()
		if err != nil {
			return fmt.Errorf("description of the API: %w", err)
		}
		sendFile(x, d)
		return nil
	}
}

// The headers of responses that openapi.yaml leaves out.
var (
	everyResponse  = []string{"X-Request-Id"}
	responsesToKey = []string{"X-Request-Id", "RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
)

// complete adds to openapi.yaml the address of the server, and what most operations have. So clients get a whole description, and the
// file says each thing once.
func complete(text []byte, base string) ([]byte, error) {
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	root := file.Content[0]
	if base != "" {
		member(member(root, "servers").Content[0], "url").SetString(strings.TrimSuffix(base, "/"))
	}
	for _, path := range members(member(root, "paths")) {
		for _, operation := range members(path) {
			if responses := member(operation, "responses"); responses != nil {
				completeOperation(root, operation, responses, operation == member(path, "post"))
			}
		}
	}
	for _, schema := range members(member(root, "components", "schemas")) {
		if of := member(schema, "x-page"); of != nil {
			*schema = *node(fmt.Sprintf(pageOf, of.Value))
		}
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err := encoder.Encode(&file)
	return out.Bytes(), err
}

const pageOf = `
type: object
required: [data, has_more, next_cursor]
properties:
  data: {type: array, maxItems: 200, items: {$ref: "#/components/schemas/%s"}}
  has_more: {$ref: "#/components/schemas/HasMore"}
  next_cursor: {$ref: "#/components/schemas/NextCursor"}
`

// completeOperation adds what follows from the credentials and the body of an operation. A POST without a body refuses fields.
func completeOperation(root, operation, responses *yaml.Node, isPost bool) {
	security := cmp.Or(member(operation, "security"), member(root, "security"))
	takes := func(credential string) bool {
		return slices.ContainsFunc(security.Content, func(n *yaml.Node) bool { return member(n, credential) != nil })
	}
	var problems []string
	if takes("sessionAuth") {
		problems = append(problems, "credential")
		parameters := child(operation, "parameters", "[]")
		parameters.Content = append(parameters.Content, node(`{$ref: "#/components/parameters/ActFor"}`))
	}
	if isPost || member(operation, "requestBody") != nil {
		problems = append(problems, "body")
	}
	child(operation, "x-problems", "{sets: ["+strings.Join(problems, ", ")+"]}")
	child(responses, "default", `{$ref: "#/components/responses/ProblemResponse"}`)
	headers := everyResponse
	if takes("apiKeyAuth") {
		headers = responsesToKey
	}
	for _, response := range members(responses) {
		if to := member(response, "$ref"); to != nil {
			response = member(root, strings.Split(to.Value, "/")[1:]...)
		}
		has := child(response, "headers", "{}")
		for _, name := range headers {
			child(has, name, `{$ref: "#/components/headers/`+name+`"}`)
		}
	}
}

// child returns a member of a mapping. If there is none, it adds the one that the text describes.
func child(parent *yaml.Node, name, text string) *yaml.Node {
	if found := member(parent, name); found != nil {
		return found
	}
	added := node(text)
	if len(added.Content) == 0 {
		added.Style = 0 // what it gets takes several lines
	}
	parent.Content, parent.Style = append(parent.Content, node(name), added), 0
	return added
}

// node returns the node that a text describes. The text is our own, so it is valid.
func node(text string) *yaml.Node {
	var document yaml.Node
	_ = yaml.Unmarshal([]byte(text), &document)
	return document.Content[0]
}

// member returns the node under nested names; nil if there is none.
func member(node *yaml.Node, names ...string) *yaml.Node {
	for _, name := range names {
		at := 0
		for at < len(node.Content) && node.Content[at].Value != name {
			at += 2
		}
		if at >= len(node.Content) {
			return nil
		}
		node = node.Content[at+1]
	}
	return node
}

func members(node *yaml.Node) (list []*yaml.Node) {
	for i := 1; i < len(node.Content); i += 2 {
		list = append(list, node.Content[i])
	}
	return list
}
