package servertest

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
func (d *Description) find(method, path string) *Operation {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	asked, best := Segments(path), "" // the path of the operation
	for _, op := range d.Operations {
		if op.matches(asked) && (best == "" || !strings.Contains(op.Path, "{")) {
			best = op.Path
		}
	}
	for _, op := range d.Operations {
		if op.Path == best && op.Method == method {
			return op
		}
	}
	return nil
}

func (op *Operation) matches(asked []string) bool {
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
	"Content-Type", "Content-Length", "Content-Encoding", "Date", "Connection", "Vary", "X-Content-Type-Options", "Cache-Control",
}

// IsOpen reports whether the operation reads no credential.
func (op *Operation) IsOpen() bool {
	security, given := op.Node["security"].([]any)
	return given && len(security) == 0
}

// check returns everything that a response has and is not described, or lacks and should have. If the request was accepted, it
// returns what the request has and is not described.
func (d *Description) check(a Response) (wrong []string) {
	r := a.Request
	op := d.find(r.Method, r.URL.Path)
	if op == nil || !strings.HasPrefix(r.URL.Path, "/") || strings.Contains(r.URL.Path, "//") {
		return nil // other tests cover the routes
	}
	note := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if err := op.read(); err != nil {
		return []string{err.Error()}
	}
	described, ok := op.Responses[strconv.Itoa(a.StatusCode)]
	if !ok {
		note("status %d is not described", a.StatusCode)
		return wrong
	}
	for name, h := range described.Headers {
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
		if _, found := described.Headers[name]; !found && !slices.Contains(everywhere, name) {
			note("header %s is not described", name)
		}
	}
	// Thousands of refusals differ only in their ids.
	refusal := op.Line() + strings.Replace(a.Text, a.Header.Get("X-Request-Id"), "", 1)
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
func (r response) checkBody(a Response, fieldCodes map[string]bool) (wrong []string) {
	note := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if len(r.Content) == 0 {
		if a.Text != "" {
			note("a body is not described: %s", a.Text)
		}
		return wrong
	}
	mediaType, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	schema, ok := r.Content[mediaType]
	if !ok {
		note("media type %q is not described", mediaType)
		return wrong
	}
	var body any = a.Text
	if strings.HasSuffix(mediaType, "json") {
		var err error
		if body, err = jsonschema.UnmarshalJSON(strings.NewReader(a.Text)); err != nil {
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
	if code := a.Field("code"); !r.Codes[code] {
		note("code %s is not described", code)
	}
	for _, field := range a.Fields() {
		if _, code, _ := strings.Cut(field, ": "); !fieldCodes[code] {
			note("code of field %s is not described", field)
		}
	}
	return wrong
}

// ProxiedRoute begins the patterns of the routes that a proxy asks with the request of its client.
const ProxiedRoute = "/api/v1/authz/{dialect}/"

// IsProxied reports whether the request of a client of a proxy is checked, so that its query is not ours.
func (op *Operation) IsProxied() bool { return strings.HasPrefix(op.Path, ProxiedRoute) }

// Line returns the method and the path.
func (op *Operation) Line() string { return op.Method + " " + op.Path }

// largest is the largest request body that is checked. Larger ones are in tests of the size.
const largest = 1 << 20

// checkRequest compares an accepted request with the description of the operation.
func (op *Operation) checkRequest(r *http.Request) (wrong []string) {
	note := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for name, values := range r.URL.Query() {
		if op.IsOpen() || op.IsProxied() {
			break // the body is not read
		}
		p, ok := op.Parameters["query "+name]
		if !ok {
			note("query parameter %s was taken and is not described", name)
			continue
		}
		if err := p.checkText(values[0]); err != nil {
			note("query parameter %s was taken: %v", name, err)
		}
	}
	if r.ContentLength <= 0 || r.ContentLength > largest || r.GetBody == nil || op.Body == nil {
		return wrong
	}
	sent, err := r.GetBody()
	if err != nil {
		note("body: %v", err)
		return wrong
	}
	body, err := jsonschema.UnmarshalJSON(sent)
	if err == nil {
		err = op.Body.Validate(body)
	}
	if err != nil {
		note("the body was taken: %v", err)
	}
	return wrong
}

// checkText compares the text of a parameter or a header with its schema.
func (p parameter) checkText(text string) error {
	if _, err := strconv.ParseInt(text, 10, 64); p.number && err == nil {
		return p.Schema.Validate(json.Number(text))
	}
	return p.Schema.Validate(text)
}

// isDescribed fails the test unless request and response are as openapi.yaml describes them.
func isDescribed(t testing.TB, line string, a Response) {
	t.Helper()
	d, err := described()
	if err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	for _, wrong := range d.check(a) {
		t.Errorf("%s: %d is not as openapi.yaml has it: %s", line, a.StatusCode, wrong)
	}
}
