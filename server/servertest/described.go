package servertest

import (
	"cmp"
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
	Doc        map[string]any  // as written
	Operations []*Operation    // a fixed path comes before the paths with parameters that match it
	Schemas    map[string]bool // of all parameters, headers and bodies, as JSON pointers
	fieldCodes map[string]bool // of problems with fields
	refusals   sync.Map        // operation and body of those that have been looked at, and were as described
	mu         sync.Mutex      // of the compiler
	compiler   *jsonschema.Compiler
}

// Operation is one method of one path. It has JSON pointers to its schemas.
type Operation struct {
	Method, Path string
	pattern      string // of the path, for path.Match
	Node         map[string]any
	Parameters   map[string]parameter // by "in name"
	Body         string               // the schema; empty if none is described
	Responses    map[string]response  // by status
}

// parameter is a parameter of an operation, or a header of a response.
type parameter struct {
	schema   string
	required bool
	number   bool // it is written as a number
}

type response struct {
	Headers map[string]parameter
	Content map[string]string // schemas by media type
	Codes   map[string]bool   // of its problem; nil for any other response
}

// DescriptionFile names the environment variable with the file of the description as JSON. Without it, each process makes its own, which
// takes longer than many a test.
const DescriptionFile = "KEYHOOK_TEST_DESCRIPTION"

// Described reads openapi.yaml once for all tests.
var Described = sync.OnceValues(func() (*Description, error) {
	text, err := os.ReadFile(os.Getenv(DescriptionFile))
	if err != nil {
		text, err = server.Description()
	}
	d := &Description{Schemas: map[string]bool{}, compiler: jsonschema.NewCompiler()}
	var strict map[string]any
	if err = cmp.Or(err, json.Unmarshal(text, &d.Doc), json.Unmarshal(text, &strict)); err != nil {
		return nil, err
	}
	// Clients must ignore fields that they do not know, but our own responses and examples have none.
	forbidOthers(strict, strict)
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource(resource, strict); err != nil {
		return nil, err
	}
	for path, item := range Object(d.Doc, "paths") {
		at := "/paths/" + strings.ReplaceAll(path, "/", "~1")
		for key := range item.(map[string]any) {
			if slices.Contains([]string{"get", "post", "put", "patch", "delete", "head"}, key) {
				op, wrong := d.operation(path, at, key)
				d.Operations, err = append(d.Operations, op), errors.Join(err, wrong)
			}
		}
	}
	slices.SortFunc(d.Operations, func(a, b *Operation) int { return strings.Compare(b.pattern, a.pattern) })
	about, _ := Member(d.Doc, "components", "schemas", "FieldProblem", "description").(string)
	d.fieldCodes = Codes(about)
	return d, err
})

// resource is the name of the description in the schema compiler.
const resource = "file:///openapi.json"

// Compile returns the schema at a JSON pointer. All of them would take longer than many a test.
func (d *Description) Compile(at string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.compiler.Compile(resource + "#" + inURL.Replace(at))
}

var inURL = strings.NewReplacer("{", "%7B", "}", "%7D")

// Validate compares a value with the schema at a JSON pointer.
func (d *Description) Validate(at string, value any) error {
	schema, err := d.Compile(at)
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

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

var pathParameter = regexp.MustCompile(`{[a-z_]+}`)

// operation reads one method of a path.
func (d *Description) operation(path, at, key string) (*Operation, error) {
	item := Object(d.Doc, "paths", path)
	node := Object(item, key)
	op := &Operation{
		Method: strings.ToUpper(key), Path: path, pattern: pathParameter.ReplaceAllString(path, "*"),
		Node: node, Parameters: map[string]parameter{}, Responses: map[string]response{},
	}
	d.parameters(op, at, item)
	at += "/" + key
	d.parameters(op, at, node)
	bodyAt, body := Follow(d.Doc, at+"/requestBody", Object(node, "requestBody"))
	op.Body = d.content(bodyAt, body)["application/json"]
	for status, r := range Object(node, "responses") {
		if status != "default" {
			op.Responses[status] = d.response(at+"/responses/"+status, r.(map[string]any), status)
		}
	}
	return op, d.problems(op, at+"/responses/default")
}

func (d *Description) parameters(op *Operation, at string, node map[string]any) {
	list, _ := node["parameters"].([]any)
	for i, p := range list {
		at, p := Follow(d.Doc, at+"/parameters/"+strconv.Itoa(i), p.(map[string]any))
		op.Parameters[fmt.Sprint(p["in"], " ", p["name"])] = d.parameter(at, p)
	}
}

func (d *Description) parameter(at string, node map[string]any) parameter {
	required, _ := node["required"].(bool)
	at, schema := Follow(d.Doc, at+"/schema", Object(node, "schema"))
	d.Schemas[at] = true
	return parameter{at, required, schema["type"] == "integer"}
}

// problems reads the default response of an operation once for each status in x-problems, with the codes of that status.
func (d *Description) problems(op *Operation, at string) error {
	lists := []map[string]any{Object(op.Node, "x-problems")}
	sets, _ := lists[0]["sets"].([]any)
	for _, name := range sets {
		set := Object(d.Doc, "components", "x-problems", name.(string))
		if set == nil {
			return fmt.Errorf("%s: there is no set %q of problems", op.Line(), name)
		}
		lists = append(lists, set)
	}
	for _, list := range lists {
		for status, codes := range list {
			if status == "sets" {
				continue
			}
			r, found := op.Responses[status]
			if !found {
				r = d.response(at, Object(op.Node, "responses", "default"), status)
				r.Codes = map[string]bool{}
				op.Responses[status] = r
			}
			if r.Codes == nil {
				return fmt.Errorf("%s: %s has a response of its own, so it cannot be in x-problems", op.Line(), status)
			}
			for _, code := range codes.([]any) {
				r.Codes[code.(string)] = true
			}
		}
	}
	return nil
}

// response reads a response for one status. Some headers come with some statuses only: x-statuses has these, and whether the header
// is required or optional.
func (d *Description) response(at string, node map[string]any, status string) response {
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

// content returns the schemas of a body by media type.
func (d *Description) content(at string, node map[string]any) map[string]string {
	schemas := map[string]string{}
	for mediaType := range Object(node, "content") {
		schema := at + "/content/" + strings.ReplaceAll(mediaType, "/", "~1") + "/schema"
		schemas[mediaType], d.Schemas[schema] = schema, true
	}
	return schemas
}

// Object is Member for an object.
func Object(node any, names ...string) map[string]any {
	object, _ := Member(node, names...).(map[string]any)
	return object
}

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
