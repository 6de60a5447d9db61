package server_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// withoutPermission lists the routes that ask for none, with the reason. A new one needs a line here.
var withoutPermission = map[string]string{
	"GET /healthz/":           "probes have no credential, and it says nothing",
	"GET /readyz/":            "probes have no credential, and it says what an operator's load balancer needs",
	"GET /openapi.yaml/":      "what the API is like is no secret, and says nothing of this instance but its address",
	"GET /openapi.json/":      "as openapi.yaml",
	"GET /docs/":              "the documents say nothing of this instance",
	"GET /docs/{name}/":       "as /docs/",
	"GET /api/v1/whoami/":     "whoever holds a credential may know what it is",
	"POST /api/v1/session/":   "it takes an access token in its body",
	"GET /api/v1/session/":    "whoever has a session may know what it is",
	"DELETE /api/v1/session/": "whoever has a session may end it",
}

// somewhere fills the parameters of a pattern with words that have the right form and name nothing.
var somewhere = strings.NewReplacer(
	"{id}", "key_01h455vb4pex5vsknk084sn02q", "{user_id}", "usr_01h455vb4pex5vsknk084sn02q",
	"{token_id}", "tok_01h455vb4pex5vsknk084sn02q", "{attempt_id}", "att_01h455vb4pex5vsknk084sn02q",
	"{name}", "nothing", "{key}", "nothing:read",
)

func line(r server.Route) string { return r.Method + " " + r.Pattern }

func TestEveryRoute(t *testing.T) {
	t.Parallel()
	f := start(t, measured)
	f.do(t, call{"POST /api/v1/roles/", operator, `{"name":"nobody","permissions":[]}`, nil}).want(t, http.StatusCreated, "")
	_, token := storagetest.Tenant(t, f.store, "powerless", "growth", "nobody")

	for _, r := range f.server.Routes() {
		path := somewhere.Replace(strings.Replace(r.Pattern, "/docs/{name}/", "/docs/operating/", 1))
		t.Run(line(r), func(t *testing.T) {
			t.Run("declares a permission or has a reason not to", func(t *testing.T) {
				_, excepted := withoutPermission[line(r)]
				if (r.Permission == "") != excepted {
					t.Errorf("permission %q, in the list of exceptions: %v", r.Permission, excepted)
				}
				known := slices.ContainsFunc(access.BuiltInPermissions(), func(p access.Permission) bool { return p.Key == r.Permission })
				if r.Permission != "" && !known {
					t.Errorf("there is no permission %q", r.Permission)
				}
			})
			for _, path := range []string{path, strings.TrimSuffix(path, "/")} {
				at := r.Method + " " + path
				var relayed []string
				if r.Local {
					f.do(t, call{at, "", "", nil}).want(t, http.StatusOK, "")
					relayed = []string{"X-Forwarded-For", "192.0.2.1"}
				}
				if r.Open {
					status, code := http.StatusOK, ""
					if r.Method == http.MethodPost {
						status, code = http.StatusBadRequest, "body_required"
					}
					f.do(t, call{at, "", "", nil}).want(t, status, code)
					continue
				}
				refused := f.do(t, call{at, "", "", relayed}).want(t, http.StatusUnauthorized, "missing_credential")
				challenges := []string{`ApiKey realm="keyhook"`, `Bearer realm="keyhook"`}
				if diff := cmp.Diff(challenges, refused.Header.Values("WWW-Authenticate")); diff != "" {
					t.Errorf("%s: challenges (-want +got):\n%s", at, diff)
				}
				if r.Permission != "" {
					f.do(t, call{at, bearer(token), "", relayed}).want(t, http.StatusForbidden, "permission_denied")
				}
				if got := f.do(t, call{at, operator, "", relayed}); got.StatusCode >= 500 {
					t.Errorf("%s as operator: %d %s", at, got.StatusCode, got.body)
				}
			}
		})
	}
}

func TestMethods(t *testing.T) {
	t.Parallel()
	f := start(t)
	allowed := map[string][]string{}
	for _, r := range f.server.Routes() {
		path := somewhere.Replace(r.Pattern)
		allowed[path] = append(allowed[path], r.Method)
		if r.Method == http.MethodGet {
			allowed[path] = append(allowed[path], http.MethodHead)
		}
	}
	all := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"}
	for path, methods := range allowed {
		slices.Sort(methods)
		t.Run("only "+strings.Join(methods, " and ")+" at "+path, func(t *testing.T) {
			for _, method := range all {
				if slices.Contains(methods, method) {
					continue
				}
				for _, at := range []string{path, strings.TrimSuffix(path, "/")} {
					got := f.do(t, call{method + " " + at, "", "", nil})
					if method != http.MethodHead {
						got.want(t, http.StatusMethodNotAllowed, "method_not_allowed")
					}
					if allow := got.Header.Get("Allow"); allow != strings.Join(methods, ", ") {
						t.Errorf("%s %s: Allow %q", method, at, allow)
					}
				}
			}
		})
	}
}

func TestHead(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, path := range []string{"/healthz", "/api/v1/whoami/", "/api/v1/plans/growth/", "/api/v1/plans/none/"} {
		t.Run("answers as GET does, without a body, at "+path, func(t *testing.T) {
			get := f.do(t, call{"GET " + path, operator, "", nil})
			head := f.do(t, call{"HEAD " + path, operator, "", nil})
			if head.StatusCode != get.StatusCode || head.body != "" || head.ContentLength != get.ContentLength {
				t.Errorf("HEAD %d, length %d, body %q; GET %d, length %d", head.StatusCode, head.ContentLength, head.body, get.StatusCode, get.ContentLength)
			}
		})
	}
}

func TestUnknownPaths(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, path := range []string{
		"/", "/api", "/api/v1/", "/api/v1/nothing/", "/API/V1/API-KEYS/", "/api/v1//api-keys/", "/api/v1/api-keys//x/",
		"/api/v1/../v1/whoami/", "/healthz//", "/api/v1/api-keys/a/b/c/",
	} {
		t.Run("are a 404 problem: "+path, func(t *testing.T) {
			f.do(t, call{"GET " + path, "", "", nil}).want(t, http.StatusNotFound, "not_found")
			f.do(t, call{"POST " + path, operator, "{}", nil}).want(t, http.StatusNotFound, "not_found")
		})
	}
	for _, target := range []string{"*", "example.com:443"} {
		t.Run("are a 404 problem where there is no path at all: "+target, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodOptions, "/", nil)
			r.URL.Path = target
			if target != "*" {
				r.Method, r.URL.Path = http.MethodConnect, ""
			}
			w := httptest.NewRecorder()
			f.server.Handler().ServeHTTP(w, r)
			if w.Code != http.StatusNotFound {
				t.Errorf("status %d", w.Code)
			}
		})
	}
}
