package servertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/keyhook/keyhook/server"
)

// Description is openapi.yaml, prepared to check requests and responses.
type Description struct {
	Doc        map[string]any // as written
	Operations []*Operation
	fieldCodes map[string]bool // of problems with fields
	refusals   sync.Map        // operation and body of those that have been looked at, and were as described
}

// Operation is one method of one path.
type Operation struct {
	Method, Path string
	segments     []string // of the path, without its slashes
	Node         map[string]any
	Parameters   map[string]parameter // by "in name"
	Body         *jsonschema.Schema   // nil if none is described
	Responses    map[string]response  // by status
	read         func() error         // sets the three fields above. Compiling the schemas of all operations takes longer than many a test
}

// parameter is a parameter of an operation, or a header of a response.
type parameter struct {
	required bool
	number   bool // it is written as a number
	Schema   *jsonschema.Schema
}

type response struct {
	Headers map[string]parameter
	Content map[string]*jsonschema.Schema // by media type
	Codes   map[string]bool               // of problems; nil if it is none
}

// Described reads openapi.yaml once for all tests.
var Described = sync.OnceValues(func() (*Description, error) {
	d, err := described()
	if err != nil {
		return nil, err
	}
	for _, op := range d.Operations {
		if err := op.read(); err != nil {
			return nil, err
		}
	}
	return d, nil
})

// described is Described without the schemas of the operations that no test has used yet.
var described = sync.OnceValues(func() (*Description, error) {
	text, err := os.ReadFile(os.Getenv(descriptionFile))
	if err != nil {
		text, err = server.Description()
	}
	if err != nil {
		return nil, err
	}
	return describe(text)
})

// descriptionFile names the environment variable of ShareDescription.
const descriptionFile = "KEYHOOK_TEST_DESCRIPTION"

// ShareDescription makes the description once for a test process and its child processes. It returns a function that removes it.
func ShareDescription() (remove func(), err error) {
	if os.Getenv(descriptionFile) != "" {
		return func() {}, nil
	}
	text, err := server.Description()
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp("", "openapi-*.json")
	if err != nil {
		return nil, err
	}
	_, err = f.Write(text)
	return func() { _ = os.Remove(f.Name()) }, errors.Join(err, f.Close(), os.Setenv(descriptionFile, f.Name()))
}

// describe parses a description.
func describe(text []byte) (*Description, error) {
	d := &Description{}
	if err := json.Unmarshal(text, &d.Doc); err != nil {
		return nil, err
	}
	reader, err := NewReading(d, text)
	if err != nil {
		return nil, err
	}
	reader.paths()
	about, _ := Member(d.Doc, "components", "schemas", "FieldProblem", "description").(string)
	d.fieldCodes = Codes(about)
	return d, reader.Err
}

// Reading turns the YAML tree into operations. It stops at the first error.
type Reading struct {
	*Description
	mu       sync.Mutex // for the operations that are read later
	compiler *jsonschema.Compiler
	Err      error
}

// NewReading compiles schemas in which no object has undescribed fields. Clients must ignore fields that they do not know, but
// our own responses and examples have none.
func NewReading(d *Description, text []byte) (*Reading, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	forbidOthers(doc.(map[string]any), doc)
	r := &Reading{Description: d, compiler: jsonschema.NewCompiler()}
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
				_, whole := Follow(root, "", part.(map[string]any))
				forbidOthers(root, whole) // it may have an allOf too
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

// Follow follows a reference. It returns the path and the node that it refers to.
func Follow(root map[string]any, at string, node map[string]any) (string, map[string]any) {
	for {
		ref, ok := node["$ref"].(string)
		if !ok {
			return at, node
		}
		at = strings.TrimPrefix(ref, "#")
		node, _ = Member(root, strings.Split(at, "/")[1:]...).(map[string]any)
	}
}

// Member returns the node under nested names; nil if there is none.
func Member(node any, names ...string) any {
	for _, name := range names {
		object, _ := node.(map[string]any)
		node = object[name]
	}
	return node
}

func (d *Reading) paths() {
	paths, _ := d.Doc["paths"].(map[string]any)
	for path, item := range paths {
		at := "/paths/" + strings.ReplaceAll(path, "/", "~1")
		for key, node := range item.(map[string]any) {
			method := strings.ToUpper(key)
			if !slices.Contains([]string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"}, method) {
				continue
			}
			op := &Operation{
				Method: method, Path: path, segments: Segments(path), Node: node.(map[string]any),
				Parameters: map[string]parameter{}, Responses: map[string]response{},
			}
			op.read = sync.OnceValue(func() error {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.operation(op, at, item, key)
				return d.Err
			})
			d.Operations = append(d.Operations, op)
		}
	}
}

// operation reads one operation of a path.
func (d *Reading) operation(op *Operation, at string, item any, key string) {
	d.parameters(op, at, item)
	d.parameters(op, at+"/"+key, op.Node)
	bodyAt, body := Follow(d.Doc, at+"/"+key+"/requestBody", Object(op.Node, "requestBody"))
	if body != nil {
		op.Body = d.content(bodyAt, body)["application/json"]
	}
	for status, r := range Object(op.Node, "responses") {
		if status != "default" {
			op.Responses[status] = d.response(at+"/"+key+"/responses/"+status, r.(map[string]any), status)
		}
	}
	d.problems(op, at+"/"+key+"/responses/default")
}

func (d *Reading) parameters(op *Operation, at string, node any) {
	list, _ := Member(node, "parameters").([]any)
	for i, p := range list {
		at, p := Follow(d.Doc, at+"/parameters/"+strconv.Itoa(i), p.(map[string]any))
		op.Parameters[fmt.Sprint(p["in"], " ", p["name"])] = d.parameter(at, p)
	}
}

func (d *Reading) parameter(at string, node map[string]any) parameter {
	required, _ := node["required"].(bool)
	schemaAt, schema := Follow(d.Doc, at+"/schema", Object(node, "schema"))
	return parameter{required, schema["type"] == "integer", d.Schema(schemaAt)}
}

// problems reads the default response of an operation once for each status in x-problems, with the codes of that status.
func (d *Reading) problems(op *Operation, at string) {
	own := maps.Clone(Object(op.Node, "x-problems"))
	sets, _ := own["sets"].([]any)
	delete(own, "sets")
	lists := []map[string]any{own}
	for _, name := range sets {
		set := Object(Object(d.Doc["components"], "x-problems"), name.(string))
		if set == nil {
			d.fail("%s: there is no set %q of problems", op.Line(), name)
		}
		lists = append(lists, set)
	}
	response := Object(Object(op.Node, "responses"), "default")
	for _, list := range lists {
		for status, codes := range list {
			r, found := op.Responses[status]
			switch {
			case !found:
				r = d.response(at, response, status)
				r.Codes = map[string]bool{}
				op.Responses[status] = r
			case r.Codes == nil:
				d.fail("%s: %s has a response of its own, so it cannot be in x-problems", op.Line(), status)
				continue
			}
			for _, code := range codes.([]any) {
				r.Codes[code.(string)] = true
			}
		}
	}
}

// fail keeps the first error.
func (d *Reading) fail(format string, args ...any) {
	if d.Err == nil {
		d.Err = fmt.Errorf(format, args...)
	}
}

// response reads a response for one status. Some headers come with some statuses only: x-statuses has these, and whether the header
// is required or optional.
func (d *Reading) response(at string, node map[string]any, status string) response {
	at, node = Follow(d.Doc, at, node)
	r := response{Headers: map[string]parameter{}, Content: d.content(at, node)}
	for name, header := range Object(node, "headers") {
		at, header := Follow(d.Doc, at+"/headers/"+name, header.(map[string]any))
		p := d.parameter(at, header)
		if statuses := Object(header, "x-statuses"); statuses != nil {
			if statuses[status] == nil {
				continue
			}
			p.required = statuses[status] == "required"
		}
		r.Headers[http.CanonicalHeaderKey(name)] = p
	}
	return r
}

func (d *Reading) content(at string, node map[string]any) map[string]*jsonschema.Schema {
	content := map[string]*jsonschema.Schema{}
	for mediaType := range Object(node, "content") {
		content[mediaType] = d.Schema(at + "/content/" + strings.ReplaceAll(mediaType, "/", "~1") + "/schema")
	}
	return content
}

func (d *Reading) Schema(at string) *jsonschema.Schema {
	schema, err := d.compiler.Compile(resource + "#" + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(at))
	if err != nil {
		d.fail("%w", err)
	}
	return schema
}

func Object(node any, name string) map[string]any {
	child, _ := Member(node, name).(map[string]any)
	return child
}

func Segments(path string) []string { return strings.Split(strings.Trim(path, "/"), "/") }

var (
	codeList = regexp.MustCompile("(?m)^- (`[a-z_]+`[^:]*):")
	codeWord = regexp.MustCompile("`([a-z_]+)`")
)

// Codes returns the codes that a description lists, one or several per line: "- `a`, `b`: what they mean."
func Codes(text string) map[string]bool {
	found := map[string]bool{}
	for _, line := range codeList.FindAllStringSubmatch(strings.ReplaceAll(text, "`,\n  `", "`, `"), -1) {
		for _, code := range codeWord.FindAllStringSubmatch(line[1], -1) {
			found[code[1]] = true
		}
	}
	return found
}
