package servertest

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// find returns the operation of a request; nil if there is none. A fixed path wins over a path with parameters, whatever the method.
func (d *Description) find(method string, at *url.URL) *Operation {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	asked, best := strings.TrimSuffix(at.EscapedPath(), "/")+"/", "" // the pattern of the operation
	for _, op := range d.Operations {
		fixed, _, _ := strings.Cut(op.pattern, "*")
		if best != "" && op.pattern != best || !strings.HasPrefix(asked, fixed) { // path.Match takes much longer
			continue
		}
		if matches, _ := path.Match(op.pattern, asked); !matches {
			continue
		}
		if best = op.pattern; op.Method == method {
			return op
		}
	}
	return nil
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
func (d *Description) check(a Response) (wrong findings) {
	r := a.Request
	op := d.find(r.Method, r.URL)
	if op == nil || !strings.HasPrefix(r.URL.Path, "/") || strings.Contains(r.URL.Path, "//") {
		return nil // other tests cover the routes
	}
	described, ok := op.Responses[strconv.Itoa(a.StatusCode)]
	if !ok {
		wrong.add("status %d is not described", a.StatusCode)
		return wrong
	}
	for name, h := range described.Headers {
		values := a.Header.Values(name)
		if len(values) == 0 && h.required {
			wrong.add("there is no header %s", name)
		}
		for _, value := range values {
			wrong.addError("header "+name, d.validateText(h, value))
		}
	}
	for name := range a.Header {
		if _, found := described.Headers[name]; !found && !slices.Contains(everywhere, name) {
			wrong.add("header %s is not described", name)
		}
	}
	// Thousands of refusals differ only in their ids.
	refusal := op.Line() + strings.Replace(a.Text, a.Header.Get("X-Request-Id"), "", 1)
	_, known := d.refusals.Load(refusal)
	if r.Method != http.MethodHead && !known {
		d.checkBody(&wrong, described, a)
	}
	if a.StatusCode >= 400 && len(wrong) == 0 && r.Method != http.MethodHead {
		d.refusals.Store(refusal, true)
	}
	if a.StatusCode < 300 {
		d.checkRequest(&wrong, op, r)
	}
	return wrong
}

// findings are the differences between a description and what was there.
type findings []string

func (f *findings) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func (f *findings) addError(what string, err error) {
	if err != nil {
		f.add("%s: %v", what, err)
	}
}

// checkBody compares a body with the description of the response.
func (d *Description) checkBody(wrong *findings, described response, a Response) {
	if len(described.Content) == 0 {
		if a.Text != "" {
			wrong.add("a body is not described: %s", a.Text)
		}
		return
	}
	mediaType, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	schema, ok := described.Content[mediaType]
	if !ok {
		wrong.add("media type %q is not described", mediaType)
		return
	}
	if strings.HasSuffix(mediaType, "json") {
		wrong.addError("body", d.validateJSON(schema, strings.NewReader(a.Text)))
	} else {
		wrong.addError("body", d.Validate(schema, a.Text))
	}
	if mediaType != "application/problem+json" {
		return
	}
	if code := a.Field("code"); !described.Codes[code] {
		wrong.add("code %s is not described", code)
	}
	for _, field := range a.Fields() {
		if _, code, _ := strings.Cut(field, ": "); !d.fieldCodes[code] {
			wrong.add("code of field %s is not described", field)
		}
	}
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
func (d *Description) checkRequest(wrong *findings, op *Operation, r *http.Request) {
	for name, values := range r.URL.Query() {
		if op.IsOpen() || op.IsProxied() {
			break // the body is not read
		}
		if p, ok := op.Parameters["query "+name]; ok {
			wrong.addError("query parameter "+name+" was taken", d.validateText(p, values[0]))
		} else {
			wrong.add("query parameter %s was taken and is not described", name)
		}
	}
	if r.ContentLength <= 0 || r.ContentLength > largest || r.GetBody == nil || op.Body == "" {
		return
	}
	sent, err := r.GetBody()
	if err == nil {
		err = d.validateJSON(op.Body, sent)
	}
	wrong.addError("the body was taken", err)
}

// validateText compares the text of a parameter or a header with its schema.
func (d *Description) validateText(p parameter, text string) error {
	if _, err := strconv.ParseInt(text, 10, 64); p.number && err == nil {
		return d.Validate(p.schema, json.Number(text))
	}
	return d.Validate(p.schema, text)
}

func (d *Description) validateJSON(schema string, text io.Reader) error {
	value, err := jsonschema.UnmarshalJSON(text)
	if err != nil {
		return err
	}
	return d.Validate(schema, value)
}
