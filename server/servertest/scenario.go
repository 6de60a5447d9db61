package servertest

import (
	"net/http"
	"strings"
	"testing"
)

// Scenario is one request and its expected response. The scenarios of a table run in order, on one server.
type Scenario struct {
	Name   string
	Call   Call
	Status int
	Code   string   // of a problem
	Want   []string // the body, or "Header: value", must contain
	Never  []string // the body must not contain
}

// Run runs the scenarios. Words in braces are replaced by values from known, which earlier responses filled: last is the id of the
// newest thing, and key, secret and token are the newest secrets.
func (f *Fixture) Run(t *testing.T, known map[string]string, scenarios []Scenario) {
	t.Helper()
	fill := func(s string) string {
		for name, value := range known {
			s = strings.ReplaceAll(s, "{"+name+"}", value)
		}
		return s
	}
	for _, s := range scenarios {
		t.Run(s.Name, func(t *testing.T) {
			s.Call.Line, s.Call.Body, s.Call.As = fill(s.Call.Line), fill(s.Call.Body), fill(s.Call.As)
			got := f.Call(t, s.Call).Want(t, s.Status, s.Code)
			for _, want := range s.Want {
				if !has(got, fill(want)) {
					t.Errorf("no %s in %v %s", fill(want), got.Header, got.Text)
				}
			}
			for _, never := range s.Never {
				if has(got, fill(never)) {
					t.Errorf("%s in %v %s", fill(never), got.Header, got.Text)
				}
			}
			if id := got.Field("id"); got.StatusCode == http.StatusCreated && id != "" {
				known["last"] = id
			}
			for _, secret := range []string{"key", "secret", "token"} {
				if value := got.Field(secret); value != "" {
					known[secret] = value
				}
			}
		})
	}
}

// has reports whether the body of a response contains a text. A text such as "Header: value" names a header.
func has(a Response, text string) bool {
	if name, value, ok := strings.Cut(text, ": "); ok && !strings.ContainsAny(name, ` "{`) {
		return strings.Contains(a.Header.Get(name), value)
	}
	return strings.Contains(a.Text, text)
}

// NoSecret lists fields that only the response to a creation may have.
var NoSecret = []string{`"key":"svc_`, `"secret":"`, `"token":"`, "Cache-Control: no-store"}

// OK is a scenario whose response has these texts.
func OK(name, line, body string, status int, want ...string) Scenario {
	return Scenario{name, NewCall(line, "{as}", body), status, "", want, NoSecret}
}

// Shows is a scenario whose response shows a secret.
func Shows(name, line, body string, status int, want ...string) Scenario {
	return Scenario{name, NewCall(line, "{as}", body), status, "", append(want, "Cache-Control: no-store"), nil}
}

// Bad is a scenario whose request is refused.
func Bad(name, line, body string, status int, code string, want ...string) Scenario {
	return Scenario{name, NewCall(line, "{as}", body), status, code, want, NoSecret}
}
