package server_test

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// find returns the operation of a request; nil if there is none. A fixed path wins over a path with parameters, whatever the
// method.
func (d *described) find(method, path string) *operation {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	asked := segments(path)
	var found []*operation // of the best path
	for _, op := range d.operations {
		switch {
		case !op.matches(asked):
		case len(found) > 0 && found[0].path != op.path && strings.Contains(op.path, "{"):
		case len(found) > 0 && found[0].path == op.path:
			found = append(found, op)
		default:
			found = []*operation{op}
		}
	}
	for _, op := range found {
		if op.method == method {
			return op
		}
	}
	return nil
}

func (op *operation) matches(asked []string) bool {
	if len(asked) != len(op.segments) {
		return false
	}
	for i, s := range op.segments {
		if !strings.HasPrefix(s, "{") && s != asked[i] {
			return false
		}
	}
	return true
}

// everywhere are headers of responses that need no description: the standard headers of HTTP, and Cache-Control, which every response to
// a session has.
var everywhere = []string{
	"Content-Type", "Content-Length", "Date", "Connection", "Vary", "X-Content-Type-Options", "Cache-Control",
}

// isOpen reports whether the operation reads no credential.
func (op *operation) isOpen() bool {
	security, given := op.node["security"].([]any)
	return given && len(security) == 0
}

// check returns everything that a response has and is not described, or lacks and should have. If the request was accepted, it
// returns what the request has and is not described.
func (d *described) check(a testResponse) (wrong []string) {
	r := a.Request
	op := d.find(r.Method, r.URL.Path)
	if op == nil || !strings.HasPrefix(r.URL.Path, "/") || strings.Contains(r.URL.Path, "//") {
		return nil // other tests cover the routes
	}
	note := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	described, ok := op.responses[strconv.Itoa(a.StatusCode)]
	if !ok {
		note("status %d is not described", a.StatusCode)
		return wrong
	}
	for name, h := range described.headers {
		values := a.Header.Values(name)
		if len(values) == 0 && h.required {
			note("there is no header %s", name)
		}
		for _, value := range values {
			if err := h.checkText(value); err != nil {
				note("header %s: %v", name, err)
			}
		}
	}
	for name := range a.Header {
		if _, found := described.headers[name]; !found && !slices.Contains(everywhere, name) {
			note("header %s is not described", name)
		}
	}
	// Thousands of refusals differ only in their ids.
	refusal := op.line() + strings.Replace(a.body, a.Header.Get("X-Request-Id"), "", 1)
	_, known := d.refusals.Load(refusal)
	if r.Method != http.MethodHead && !known {
		wrong = append(wrong, described.checkBody(a, d.fieldCodes)...)
	}
	if a.StatusCode >= 400 && len(wrong) == 0 && r.Method != http.MethodHead {
		d.refusals.Store(refusal, true)
	}
	if a.StatusCode < 300 {
		wrong = append(wrong, op.checkRequest(r)...)
	}
	return wrong
}

// checkBody compares a body with the description of the response.
func (r response) checkBody(a testResponse, fieldCodes map[string]bool) (wrong []string) {
	note := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if len(r.content) == 0 {
		if a.body != "" {
			note("a body is not described: %s", a.body)
		}
		return wrong
	}
	mediaType, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	schema, ok := r.content[mediaType]
	if !ok {
		note("media type %q is not described", mediaType)
		return wrong
	}
	var body any = a.body
	if strings.HasSuffix(mediaType, "json") {
		var err error
		if body, err = jsonschema.UnmarshalJSON(strings.NewReader(a.body)); err != nil {
			note("body: %v", err)
			return wrong
		}
	}
	if err := schema.Validate(body); err != nil {
		note("body: %v", err)
	}
	if mediaType != "application/problem+json" {
		return wrong
	}
	if code := a.field("code"); !r.codes[code] {
		note("code %s is not described", code)
	}
	for _, field := range a.fields() {
		if _, code, _ := strings.Cut(field, ": "); !fieldCodes[code] {
			note("code of field %s is not described", field)
		}
	}
	return wrong
}

// largest is the largest request body that is checked. Larger ones are in tests of the size.
const largest = 1 << 20

// checkRequest compares an accepted request with the description of the operation.
func (op *operation) checkRequest(r *http.Request) (wrong []string) {
	note := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for name, values := range r.URL.Query() {
		if op.isOpen() || op.isProxied() {
			break // the body is not read
		}
		p, ok := op.parameters["query "+name]
		if !ok {
			note("query parameter %s was taken and is not described", name)
			continue
		}
		if err := p.checkText(values[0]); err != nil {
			note("query parameter %s was taken: %v", name, err)
		}
	}
	if r.ContentLength <= 0 || r.ContentLength > largest || r.GetBody == nil || op.body == nil {
		return wrong
	}
	sent, err := r.GetBody()
	if err != nil {
		note("body: %v", err)
		return wrong
	}
	body, err := jsonschema.UnmarshalJSON(sent)
	if err == nil {
		err = op.body.Validate(body)
	}
	if err != nil {
		note("the body was taken: %v", err)
	}
	return wrong
}

// checkText compares the text of a parameter or a header with its schema.
func (p parameter) checkText(text string) error {
	if _, err := strconv.ParseInt(text, 10, 64); p.number && err == nil {
		return p.schema.Validate(json.Number(text))
	}
	return p.schema.Validate(text)
}

// isDescribed fails the test unless request and response are as openapi.yaml describes them.
func isDescribed(t testing.TB, line string, a testResponse) {
	t.Helper()
	d, err := description()
	if err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	for _, wrong := range d.check(a) {
		t.Errorf("%s: %d is not as openapi.yaml has it: %s", line, a.StatusCode, wrong)
	}
}
