package server_test

import (
	"net/http"
	"strings"
	"testing"
)

// scenario is one request and its expected response. The scenarios of a table run in order, on one server.
type scenario struct {
	name   string
	call   call
	status int
	code   string   // of a problem
	want   []string // the body, or "Header: value", must contain
	never  []string // the body must not contain
}

// run runs the scenarios. Words in braces are replaced by values from known, which earlier responses filled. The scenario stores
// the id of its response there under the name in save.
func (f *testServer) run(t *testing.T, known map[string]string, scenarios []scenario) {
	t.Helper()
	fill := func(s string) string {
		for name, value := range known {
			s = strings.ReplaceAll(s, "{"+name+"}", value)
		}
		return s
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			s.call.line, s.call.body, s.call.as = fill(s.call.line), fill(s.call.body), fill(s.call.as)
			got := f.do(t, s.call).want(t, s.status, s.code)
			for _, want := range s.want {
				if !has(got, fill(want)) {
					t.Errorf("no %s in %v %s", fill(want), got.Header, got.body)
				}
			}
			for _, never := range s.never {
				if has(got, fill(never)) {
					t.Errorf("%s in %v %s", fill(never), got.Header, got.body)
				}
			}
			if id := got.field("id"); got.StatusCode == http.StatusCreated && id != "" {
				known["last"] = id
			}
			for _, secret := range []string{"key", "secret", "token"} {
				if value := got.field(secret); value != "" {
					known[secret] = value
				}
			}
		})
	}
}

// has reports whether the body of a response contains a text. A text such as "Header: value" names a header.
func has(a testResponse, text string) bool {
	if name, value, ok := strings.Cut(text, ": "); ok && !strings.ContainsAny(name, ` "{`) {
		return strings.Contains(a.Header.Get(name), value)
	}
	return strings.Contains(a.body, text)
}

// noSecret lists fields that only the response to a creation may have.
var noSecret = []string{`"key":"svc_`, `"secret":"`, `"token":"`, "Cache-Control: no-store"}

// ok is a scenario whose response has these texts.
func ok(name, line, body string, status int, want ...string) scenario {
	return scenario{name, call{line, "{as}", body, nil}, status, "", want, noSecret}
}

// shows is a scenario whose response shows a secret.
func shows(name, line, body string, status int, want ...string) scenario {
	return scenario{name, call{line, "{as}", body, nil}, status, "", append(want, "Cache-Control: no-store"), nil}
}

// bad is a scenario whose request is refused.
func bad(name, line, body string, status int, code string, want ...string) scenario {
	return scenario{name, call{line, "{as}", body, nil}, status, code, want, noSecret}
}
