package server_test

import (
	"net/http"
	"strings"
	"testing"
)

// scenario is one request and what its answer must be like. Scenarios of a table run in order, on one floor.
type scenario struct {
	name   string
	call   call
	status int
	code   string   // of a problem
	want   []string // the body, or "Header: value", must contain
	never  []string // the body must not contain
}

// run runs the scenarios. Braces in a call are filled with what earlier answers have left in known; a scenario's own
// name in known, as in save, keeps its id.
func (f *floor) run(t *testing.T, known map[string]string, scenarios []scenario) {
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

// has reports whether an answer has a piece of text in its body, or a header where the text is "Header: value".
func has(a answer, text string) bool {
	if name, value, ok := strings.Cut(text, ": "); ok && !strings.ContainsAny(name, ` "{`) {
		return strings.Contains(a.Header.Get(name), value)
	}
	return strings.Contains(a.body, text)
}

// noSecret is what no answer but the first may hold.
var noSecret = []string{`"key":"svc_`, `"secret":"`, `"token":"`, "Cache-Control: no-store"}

// ok is a scenario that wants pieces of a body.
func ok(name, line, body string, status int, want ...string) scenario {
	return scenario{name, call{line, "{as}", body, nil}, status, "", want, noSecret}
}

// shows is a scenario whose answer shows a secret.
func shows(name, line, body string, status int, want ...string) scenario {
	return scenario{name, call{line, "{as}", body, nil}, status, "", append(want, "Cache-Control: no-store"), nil}
}

// bad is a scenario that is refused.
func bad(name, line, body string, status int, code string, want ...string) scenario {
	return scenario{name, call{line, "{as}", body, nil}, status, code, want, noSecret}
}
