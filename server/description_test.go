package server_test

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/server/servertest"
)

// written returns the parsed description.
func written(t testing.TB) *servertest.Description {
	t.Helper()
	d, err := servertest.Described()
	if err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	return d
}

func TestDescription(t *testing.T) {
	t.Parallel()
	d := written(t)
	f := start(t, measured)
	routes := map[string]server.Route{}
	for _, r := range f.Server.Routes() {
		routes[line(r)] = r
	}
	t.Run("has every route and no other", func(t *testing.T) {
		has := map[string]bool{}
		for _, op := range d.Operations {
			route := op.Line()
			if op.IsProxied() {
				route = "* " + servertest.ProxiedRoute
				path := strings.NewReplacer("{dialect}", "forward", "{permission}", "a:b").Replace(op.Path)
				f.Do(t, op.Method+" "+path, "", "").Want(t, http.StatusUnauthorized, "missing_credential")
			}
			has[route] = true
			if _, served := routes[route]; !served {
				t.Errorf("%s is described, and there is no such route", op.Line())
			}
		}
		for route := range routes {
			if !has[route] {
				t.Errorf("%s is not described: add it to openapi.yaml", route)
			}
		}
	})

	names := map[string]string{}
	for _, op := range d.Operations {
		r, found := routes[op.Line()]
		if !found {
			continue
		}
		t.Run(op.Line(), func(t *testing.T) {
			id, _ := op.Node["operationId"].(string)
			if other, taken := names[id]; taken || !regexp.MustCompile("^[a-z][A-Za-z]+$").MatchString(id) {
				t.Errorf("operationId %q, which %q has too", id, other)
			}
			names[id] = op.Line()
			t.Run("has the parameters of the route", func(t *testing.T) {
				if diff := gocmp.Diff(parametersOf(r), slices.Sorted(maps.Keys(op.Parameters))); diff != "" {
					t.Errorf("parameters (-route +described):\n%s", diff)
				}
			})
			t.Run("has the permissions of the route, and names them in its text", func(t *testing.T) {
				described, _ := op.Node["x-permission"].(string)
				text, _ := op.Node["description"].(string)
				text = strings.Join(strings.Fields(text), " ")
				if described != strings.Join(r.Permissions, " ")+strings.Join(r.AnyOf, "|") {
					t.Errorf("permissions %q, one of %q, described is %q", r.Permissions, r.AnyOf, described)
				}
				for i, permission := range append(r.Permissions, r.AnyOf...) {
					if !strings.Contains(text, "`"+permission+"`") || i == 0 && !strings.Contains(text, "eeds `"+permission+"`") {
						t.Errorf("the text does not say that %s is needed: %s", permission, text)
					}
				}
				if described == "" && !strings.Contains(text, "no permission") && !strings.Contains(text, "no credential") {
					t.Errorf("it does not say that it needs none: %s", text)
				}
			})
			t.Run("needs the same credentials as the route", func(t *testing.T) {
				security, given := op.Node["security"].([]any)
				optional := slices.ContainsFunc(security, func(s any) bool { return len(s.(map[string]any)) == 0 })
				if r.Open != op.IsOpen() || r.Local != optional || given != (r.Open || r.Local || forSessions(r)) {
					t.Errorf("open %v, local %v, and security is %v", r.Open, r.Local, security)
				}
			})
			t.Run("has a body if the route reads one", func(t *testing.T) {
				if (r.Body > 0) != (op.Body != "") {
					t.Errorf("the route takes %d bytes; a body is described: %v", r.Body, op.Body != "")
				}
			})
			t.Run("has the problems that the route can respond with", func(t *testing.T) {
				want := statusesOf(r)
				for status := range want {
					if _, found := op.Responses[status]; !found {
						t.Errorf("no %s", status)
					}
				}
				for status, response := range op.Responses {
					_, problem := response.Content["application/problem+json"]
					// The tests of each route show whether it can conflict.
					if problem && !want[status] && status != "409" {
						t.Errorf("%s is described, which this route cannot meet", status)
					}
					if problem != (len(response.Codes) > 0) {
						t.Errorf("%s lists %d codes, and is a problem: %v", status, len(response.Codes), problem)
					}
					if _, found := response.Headers["X-Request-Id"]; !found {
						t.Errorf("%s has no X-Request-Id", status)
					}
					// Operations of all kinds share the problem, with the rate headers.
					if _, limited := response.Headers["Ratelimit"]; !problem && limited == (r.Open || forSessions(r)) {
						t.Errorf("%s has rate headers: %v", status, limited)
					}
				}
			})
		})
	}
}

// statusesOf returns the statuses of the problems that a route can respond with.
func statusesOf(r server.Route) map[string]bool {
	want := map[string]bool{"500": true}
	switch {
	case !r.Open:
		mark(want, "400", "401", "403", "404", "429", "503")
	case forSessions(r): // it reads a credential in its body
		mark(want, "400", "401", "403", "429", "503")
	case r.Body > 0: // the same, and it does not say whether the credential is valid
		mark(want, "400", "429", "503")
	}
	if r.Body > 0 || r.Method == http.MethodPost { // a POST without a body refuses fields
		mark(want, "413", "415", "422")
	}
	if strings.Contains(r.Pattern, "{") || r.Pattern == "/" || strings.HasPrefix(r.Pattern, console.Path) {
		mark(want, "404")
	}
	if strings.HasSuffix(r.Pattern, "/feed/") { // a cursor expires, and two parameters exclude each other
		mark(want, "410", "422")
	}
	if r.Open && len(r.Parameters) > 0 {
		mark(want, "400")
	}
	return want
}

func TestDescribedProblems(t *testing.T) {
	t.Parallel()
	d := written(t)
	explained, used, sets := map[string]map[string]bool{}, map[string]map[string]bool{}, map[string]bool{}
	for _, op := range d.Operations {
		at, response := servertest.Follow(d.Doc, "", servertest.Member(op.Node, "responses", "default").(map[string]any))
		if explained[at] == nil {
			explained[at], used[at] = explainedCodes(response), map[string]bool{}
		}
		for status, r := range op.Responses {
			for code := range r.Codes {
				if used[at][status+" "+code] = true; !explained[at][status+" "+code] {
					t.Errorf("%s can have %s %s, which %s does not explain", op.Line(), status, code, at)
				}
			}
		}
		list, _ := servertest.Member(op.Node, "x-problems", "sets").([]any)
		for _, name := range list {
			sets[name.(string)] = true
		}
	}
	for at, codes := range explained {
		for code := range codes {
			if !used[at][code] {
				t.Errorf("%s explains %s, which no operation can have", at, code)
			}
		}
	}
	for name := range servertest.Object(d.Doc, "components", "x-problems") {
		if !sets[name] {
			t.Errorf("no operation has the set %s", name)
		}
	}
}

// explainedCodes returns the codes that the description of a problem explains, as "status code". Each status has a paragraph.
func explainedCodes(response map[string]any) map[string]bool {
	explained := map[string]bool{}
	text, _ := response["description"].(string)
	for _, part := range strings.Split(text, "\n**")[1:] {
		for code := range servertest.Codes(part) {
			explained[part[:3]+" "+code] = true
		}
	}
	return explained
}

// parametersOf lists the parameters that a description must have, as "in name", sorted.
func parametersOf(r server.Route) []string {
	var list []string
	for part := range strings.SplitSeq(r.Pattern, "/") {
		if name, found := strings.CutPrefix(part, "{"); found {
			list = append(list, "path "+strings.TrimSuffix(name, "}"))
		}
	}
	for _, name := range r.Parameters {
		list = append(list, "query "+name)
	}
	if !r.Open {
		list = append(list, "header X-Organization-Id")
	}
	return slices.Sorted(slices.Values(append(list, ownHeaders[line(r)]...)))
}

// forSessions reports whether a route works with the cookie of a session and with no other credential.
func forSessions(r server.Route) bool { return r.Pattern == "/api/v1/session/" }

// ownHeaders are the headers that a handler reads itself.
var ownHeaders = map[string][]string{
	"POST /api/v1/events/": {"header Idempotency-Key"},
	"GET /openapi.yaml/":   {"header If-None-Match"},
	"GET /openapi.json/":   {"header If-None-Match"},
	"GET /docs/":           {"header If-None-Match"},
	"GET /docs/{name}/":    {"header If-None-Match"},
}

func mark(set map[string]bool, names ...string) {
	for _, name := range names {
		set[name] = true
	}
}

func TestServedDescription(t *testing.T) {
	t.Parallel()
	onDisk, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/openapi.yaml", "/openapi.json", "/openapi.yaml/", "/openapi.json/"} {
		t.Run("can be cached and revalidated at "+path, func(t *testing.T) {
			t.Parallel()
			f := start(t)
			first := f.Do(t, "GET "+path, "", "", "Accept-Encoding", "identity").Want(t, http.StatusOK, "")
			tag := first.Header.Get("ETag")
			for _, held := range []string{tag, strings.TrimPrefix(tag, "W/"), `"other", ` + tag, "*"} {
				again := f.Do(t, "GET "+path, "", "", "If-None-Match", held).Want(t, http.StatusNotModified, "")
				if again.Text != "" || again.Header.Get("ETag") != tag {
					t.Errorf("If-None-Match %s: ETag %s, body %q", held, again.Header.Get("ETag"), again.Text)
				}
			}
			f.Do(t, "GET "+path, "", "", "If-None-Match", `"other"`).Want(t, http.StatusOK, "")
			if head := f.Do(t, "HEAD "+path, "", "", "Accept-Encoding", "identity"); head.ContentLength != first.ContentLength || head.Header.Get("ETag") != tag {
				t.Errorf("HEAD has length %d and ETag %s; GET %d and %s", head.ContentLength, head.Header.Get("ETag"), first.ContentLength, tag)
			}
		})
	}
	t.Run("is openapi.yaml with what most operations have", func(t *testing.T) {
		t.Parallel()
		got := start(t).Do(t, "GET /openapi.yaml", "", "")
		if diff := gocmp.Diff(withoutAdded(decoded(t, string(onDisk))), withoutAdded(decoded(t, got.Text))); diff != "" {
			t.Errorf("it says something else (-file +served):\n%s", diff)
		}
		for _, name := range added {
			if n := strings.Count(string(onDisk), `/headers/`+name+`"`); n != 1 {
				t.Errorf("the file names %s %d times; name it once, the server adds the others", name, n)
			}
		}
		for _, text := range []string{"# Words.\n", "tags: [Operations]", "description: |\n"} {
			if in, want := strings.Count(got.Text, text), strings.Count(string(onDisk), text); in != want || in == 0 {
				t.Errorf("%q is %d times in it, and %d times in the file", text, in, want)
			}
		}
	})
	for base, want := range map[string]string{
		"": "/", "https://keys.example.com": "https://keys.example.com", "https://example.com/keyhook/": "https://example.com/keyhook",
	} {
		t.Run("has the address at which callers reach the server: "+cmp.Or(base, "none"), func(t *testing.T) {
			t.Parallel()
			f := start(t, func(o *server.Options) { o.BaseURL = base })
			asYAML := f.Do(t, "GET /openapi.yaml", "", "")
			asJSON := f.Do(t, "GET /openapi.json", "", "")
			if diff := gocmp.Diff(decoded(t, asYAML.Text), decoded(t, asJSON.Text)); diff != "" {
				t.Errorf("the two differ (-YAML +JSON):\n%s", diff)
			}
			var got struct{ Servers []struct{ URL string } }
			if err := json.Unmarshal([]byte(asJSON.Text), &got); err != nil || len(got.Servers) != 1 || got.Servers[0].URL != want {
				t.Errorf("servers %+v, error %v", got.Servers, err)
			}
		})
	}
}

// withoutAdded returns a description without what a server adds to openapi.yaml.
func withoutAdded(node any) any {
	if list, ok := node.([]any); ok {
		for _, child := range list {
			withoutAdded(child)
		}
	}
	object, _ := node.(map[string]any)
	for name, child := range object {
		withoutAdded(child)
		switch child := child.(type) {
		case map[string]any:
			maps.DeleteFunc(child, func(member string, value any) bool {
				return name == "headers" && slices.Contains(added, member) && isRef(value, "headers/"+member) ||
					name == "responses" && member == "default" && isRef(value, "responses/ProblemResponse")
			})
			if name == "headers" && len(child) == 0 || name == "x-problems" && (isSets(child, "credential") || isSets(child, "credential", "body")) {
				delete(object, name)
			}
			if item, isPage := servertest.Member(child, "properties", "data", "items", "$ref").(string); isPage && strings.HasSuffix(name, "Page") {
				object[name] = map[string]any{"x-page": strings.TrimPrefix(item, "#/components/schemas/")}
			}
		case []any:
			if name == "parameters" {
				child = slices.DeleteFunc(child, func(p any) bool { return isRef(p, "parameters/ActFor") })
				object[name] = child
			}
			if len(child) == 0 && name != "security" {
				delete(object, name)
			}
		}
	}
	return node
}

func isRef(node any, to string) bool { return servertest.Member(node, "$ref") == "#/components/"+to }

// isSets reports whether x-problems has only these sets.
func isSets(problems map[string]any, names ...any) bool {
	sets, _ := problems["sets"].([]any)
	return len(problems) == 1 && slices.Equal(sets, names)
}

// added are the headers that a server adds to openapi.yaml.
var added = append([]string{"X-Request-Id"}, windowHeaders...)

// decoded reads YAML or JSON.
func decoded(t *testing.T, text string) (content any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &content); err != nil {
		t.Fatal(err)
	}
	return content
}
