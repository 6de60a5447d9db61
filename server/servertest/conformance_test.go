package servertest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
)

// recorder takes the place of a test that may fail.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// TestAResponseThatIsNotDescribedFails changes one thing in a right response. The check of all responses must name it.
func TestAResponseThatIsNotDescribedFails(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	body := func(old, replacement string) func(*servertest.Response) {
		return func(a *servertest.Response) {
			if !strings.Contains(a.Text, old) {
				t.Errorf("no %s in %s", old, a.Text)
			}
			a.Text = strings.Replace(a.Text, old, replacement, 1)
		}
	}
	whoami := servertest.NewCall("GET /api/v1/whoami/", servertest.Operator, "")
	refused := servertest.NewCall("GET "+servertest.Orgs+"org%2F1/", servertest.Operator, "")
	list := servertest.NewCall("GET "+servertest.Orgs+"?limit=1", servertest.Operator, "")
	create := servertest.NewCall("POST "+servertest.Orgs, servertest.Operator, `{"name":"Acme","plan":"growth"}`)
	for _, tt := range []struct {
		name   string
		call   servertest.Call
		change func(*servertest.Response)
		want   string
	}{
		{"another status", whoami, func(a *servertest.Response) { a.StatusCode = 299 }, "status 299 is not described"},
		{"a further header", whoami, func(a *servertest.Response) { a.Header.Set("X-More", "1") }, "header X-More is not described"},
		{"no request id", whoami, func(a *servertest.Response) { a.Header.Del("X-Request-Id") }, "there is no header X-Request-Id"},
		{"another form of a header", whoami, func(a *servertest.Response) { a.Header.Set("X-RateLimit-Limit", "many") }, "header X-Ratelimit-Limit: "},
		{"another media type", whoami, func(a *servertest.Response) { a.Header.Set("Content-Type", "text/plain") }, `media type "text/plain" is not described`},
		{"a further field", whoami, body(`{"user":`, `{"more":1,"user":`), "body: "},
		{"a field less", whoami, body(`"permissions":`, `"permits":`), "body: "},
		{"no JSON", whoami, body(`{`, ``), "body: "},
		{"another code", refused, body(`"code":"not_found"`, `"code":"lost"`), "code lost is not described"},
		{"another query that was taken", list, func(a *servertest.Response) { a.Request.URL.RawQuery = "size=1" }, "query parameter size was taken and is not described"},
		{"a wrong query that was taken", list, func(a *servertest.Response) { a.Request.URL.RawQuery = "limit=x" }, "query parameter limit was taken: "},
		{"a body that was taken", create, func(a *servertest.Response) {
			r, err := http.NewRequestWithContext(t.Context(), "POST", a.Request.URL.String(), strings.NewReader(`{"title":"Acme"}`))
			if err != nil {
				t.Fatal(err)
			}
			a.Request = r
		}, "the body was taken: "},
	} {
		a := f.Call(t, tt.call) // as it is described, or this test fails
		tt.change(&a)
		r := &recorder{TB: t}
		servertest.CheckResponse(r, tt.call.Line, a)
		if got := strings.Join(r.failures, "\n"); !strings.Contains(got, "is not as openapi.yaml has it: "+tt.want) {
			t.Errorf("%s: no %q in %q", tt.name, tt.want, got)
		}
	}
}
