package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/keyhook/keyhook/server"
)

// described is openapi.yaml, prepared to check requests and responses.
type described struct {
	doc        map[string]any // as written
	operations []*operation
	fieldCodes map[string]bool // of problems with fields
	refusals   sync.Map        // operation and body of those that have been looked at, and were as described
}

// operation is one method of one path.
type operation struct {
	method, path string
	segments     []string // of the path, without its slashes
	node         map[string]any
	parameters   map[string]parameter // by "in name"
	body         *jsonschema.Schema   // nil if none is described
	responses    map[string]response  // by status
}

// parameter is a parameter of an operation, or a header of a response.
type parameter struct {
	required bool
	number   bool // it is written as a number
	schema   *jsonschema.Schema
}

type response struct {
	headers map[string]parameter
	content map[string]*jsonschema.Schema // by media type
	codes   map[string]bool               // of problems; nil if it is none
}

// description reads openapi.yaml once for all tests.
var description = sync.OnceValues(func() (*described, error) {
	text, err := server.Description()
	if err != nil {
		return nil, err
	}
	return describe(text)
})

// describe parses a description.
func describe(text []byte) (*described, error) {
	d := &described{}
	if err := json.Unmarshal(text, &d.doc); err != nil {
		return nil, err
	}
	reader, err := newReading(d, text)
	if err != nil {
		return nil, err
	}
	reader.paths()
	about, _ := member(d.doc, "components", "schemas", "FieldProblem", "description").(string)
	d.fieldCodes = codes(about)
	return d, reader.err
}

// reading turns the YAML tree into operations. It stops at the first error.
type reading struct {
	*described
	compiler *jsonschema.Compiler
	err      error
}

// newReading compiles schemas in which no object has undescribed fields. Clients must ignore fields that they do not know, but
// our own responses and examples have none.
func newReading(d *described, text []byte) (*reading, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	forbidOthers(doc.(map[string]any), doc)
	r := &reading{described: d, compiler: jsonschema.NewCompiler()}
	r.compiler.DefaultDraft(jsonschema.Draft2020)
	r.compiler.AssertFormat()
	return r, r.compiler.AddResource(resource, doc)
}

// resource is the name of the description in the schema compiler.
const resource = "file:///openapi.json"

// forbidOthers forbids fields that are not among the properties of an object. It merges allOf into one object first, because
// each part alone would refuse the fields of the others.
func forbidOthers(root map[string]any, node any) {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			forbidOthers(root, child)
		}
	case map[string]any:
		if parts, ok := node["allOf"].([]any); ok {
			properties, required := map[string]any{}, []any{}
			for _, part := range parts {
				_, whole := follow(root, "", part.(map[string]any))
				maps.Copy(properties, whole["properties"].(map[string]any))
				required = append(required, whole["required"].([]any)...)
			}
			delete(node, "allOf")
			node["type"], node["properties"], node["required"] = "object", properties, required
		}
		if _, open := node["additionalProperties"]; !open && node["type"] == "object" && node["properties"] != nil {
			node["additionalProperties"] = false
		}
		for _, child := range node {
			forbidOthers(root, child)
		}
	}
}

// follow follows a reference. It returns the path and the node that it refers to.
func follow(root map[string]any, at string, node map[string]any) (string, map[string]any) {
	for {
		ref, ok := node["$ref"].(string)
		if !ok {
			return at, node
		}
		at = strings.TrimPrefix(ref, "#")
		node, _ = member(root, strings.Split(at, "/")[1:]...).(map[string]any)
	}
}

// member returns the node under nested names; nil if there is none.
func member(node any, names ...string) any {
	for _, name := range names {
		object, _ := node.(map[string]any)
		node = object[name]
	}
	return node
}

func (d *reading) paths() {
	paths, _ := d.doc["paths"].(map[string]any)
	for path, item := range paths {
		at := "/paths/" + strings.ReplaceAll(path, "/", "~1")
		for key, node := range item.(map[string]any) {
			method := strings.ToUpper(key)
			if !slices.Contains([]string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"}, method) {
				continue
			}
			op := &operation{
				method: method, path: path, segments: segments(path), node: node.(map[string]any),
				parameters: map[string]parameter{}, responses: map[string]response{},
			}
			d.parameters(op, at, item)
			d.parameters(op, at+"/"+key, node)
			bodyAt, body := follow(d.doc, at+"/"+key+"/requestBody", object(op.node, "requestBody"))
			if body != nil {
				op.body = d.content(bodyAt, body)["application/json"]
			}
			for status, r := range object(op.node, "responses") {
				if status != "default" {
					op.responses[status] = d.response(at+"/"+key+"/responses/"+status, r.(map[string]any), status)
				}
			}
			d.problems(op, at+"/"+key+"/responses/default")
			d.operations = append(d.operations, op)
		}
	}
}

func (d *reading) parameters(op *operation, at string, node any) {
	list, _ := member(node, "parameters").([]any)
	for i, p := range list {
		at, p := follow(d.doc, at+"/parameters/"+strconv.Itoa(i), p.(map[string]any))
		op.parameters[fmt.Sprint(p["in"], " ", p["name"])] = d.parameter(at, p)
	}
}

func (d *reading) parameter(at string, node map[string]any) parameter {
	required, _ := node["required"].(bool)
	schemaAt, schema := follow(d.doc, at+"/schema", object(node, "schema"))
	return parameter{required, schema["type"] == "integer", d.schema(schemaAt)}
}

// problems reads the default response of an operation once for each status in x-problems, with the codes of that status.
func (d *reading) problems(op *operation, at string) {
	own := maps.Clone(object(op.node, "x-problems"))
	sets, _ := own["sets"].([]any)
	delete(own, "sets")
	lists := []map[string]any{own}
	for _, name := range sets {
		set := object(object(d.doc["components"], "x-problems"), name.(string))
		if set == nil {
			d.fail("%s: there is no set %q of problems", op.line(), name)
		}
		lists = append(lists, set)
	}
	response := object(object(op.node, "responses"), "default")
	for _, list := range lists {
		for status, codes := range list {
			r, found := op.responses[status]
			switch {
			case !found:
				r = d.response(at, response, status)
				r.codes = map[string]bool{}
				op.responses[status] = r
			case r.codes == nil:
				d.fail("%s: %s has a response of its own, so it cannot be in x-problems", op.line(), status)
				continue
			}
			for _, code := range codes.([]any) {
				r.codes[code.(string)] = true
			}
		}
	}
}

// fail keeps the first error.
func (d *reading) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

// response reads a response for one status. Some headers come with some statuses only: x-statuses has these, and whether the header
// is required or optional.
func (d *reading) response(at string, node map[string]any, status string) response {
	at, node = follow(d.doc, at, node)
	r := response{headers: map[string]parameter{}, content: d.content(at, node)}
	for name, header := range object(node, "headers") {
		at, header := follow(d.doc, at+"/headers/"+name, header.(map[string]any))
		p := d.parameter(at, header)
		if statuses := object(header, "x-statuses"); statuses != nil {
			if statuses[status] == nil {
				continue
			}
			p.required = statuses[status] == "required"
		}
		r.headers[http.CanonicalHeaderKey(name)] = p
	}
	return r
}

func (d *reading) content(at string, node map[string]any) map[string]*jsonschema.Schema {
	content := map[string]*jsonschema.Schema{}
	for mediaType := range object(node, "content") {
		content[mediaType] = d.schema(at + "/content/" + strings.ReplaceAll(mediaType, "/", "~1") + "/schema")
	}
	return content
}

func (d *reading) schema(at string) *jsonschema.Schema {
	schema, err := d.compiler.Compile(resource + "#" + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(at))
	if err != nil {
		d.fail("%w", err)
	}
	return schema
}

func object(node any, name string) map[string]any {
	child, _ := member(node, name).(map[string]any)
	return child
}

func segments(path string) []string { return strings.Split(strings.Trim(path, "/"), "/") }

var (
	codeList = regexp.MustCompile("(?m)^- (`[a-z_]+`[^:]*):")
	codeWord = regexp.MustCompile("`([a-z_]+)`")
)

// codes returns the codes that a description lists, one or several per line: "- `a`, `b`: what they mean."; nil if it lists
// none.
func codes(text string) map[string]bool {
	var found map[string]bool
	for _, line := range codeList.FindAllStringSubmatch(strings.ReplaceAll(text, "`,\n  `", "`, `"), -1) {
		for _, code := range codeWord.FindAllStringSubmatch(line[1], -1) {
			if found == nil {
				found = map[string]bool{}
			}
			found[code[1]] = true
		}
	}
	return found
}
