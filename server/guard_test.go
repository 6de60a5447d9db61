package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// withoutPermission lists the routes that need no permission, with the reason. A new one needs a line here.
var withoutPermission = map[string]string{
	"GET /healthz/":               "probes have no credential, and it says nothing",
	"GET /readyz/":                "probes have no credential, and it says what an operator's load balancer needs",
	"GET /openapi.yaml/":          "what the API is like is no secret, and says nothing of this instance but its address",
	"GET /openapi.json/":          "as openapi.yaml",
	"GET /docs/":                  "the documents say nothing of this instance",
	"GET /docs/{name}/":           "as /docs/",
	"GET /":                       "it only leads to the console",
	"GET /console/":               "the console signs people in, and its files say nothing of this instance but its name",
	"GET /console/oidc/start/":    "people sign in there",
	"GET /console/oidc/callback/": "people sign in there",
	"GET /api/v1/whoami/":         "every caller may read its own identity",
	"GET /api/v1/usage/":          "two counts, which a refusal at the limit of the plan says too",
	"POST /api/v1/session/":       "it takes an access token or a sign-in link in its body",
	"POST /api/v1/auth/leaked/":   "whoever holds a credential may revoke it, and it is in the body",
	"GET /api/v1/search/":         "it finds only what the caller has the permission to read",
	"GET /api/v1/session/":        "every session may read itself",
	"DELETE /api/v1/session/":     "every session may end itself",

	"* /api/v1/authz/{dialect}/": "the proxy names in the path the permissions that the key needs",
}

// somewhere replaces the parameters of a pattern by values of the right form that name nothing.
var somewhere = strings.NewReplacer(
	"{id}", "key_01h455vb4pex5vsknk084sn02q", "{user_id}", "usr_01h455vb4pex5vsknk084sn02q",
	"{token_id}", "tok_01h455vb4pex5vsknk084sn02q", "{attempt_id}", "att_01h455vb4pex5vsknk084sn02q",
	"{name}", "nothing", "{key}", "nothing:read", "{dialect}", "forward", "{type}", "no.type",
)

func line(r server.Route) string { return r.Method + " " + r.Pattern }

// requestsTo returns request lines that reach a route, with and without the last slash.
func requestsTo(r server.Route) (lines []string) {
	path := somewhere.Replace(strings.Replace(r.Pattern, "/docs/{name}/", "/docs/operating/", 1))
	methods := []string{r.Method}
	if r.Method == "*" {
		methods = []string{http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodOptions, "BREW"}
	}
	for _, method := range methods {
		lines = append(lines, method+" "+path, method+" "+strings.TrimSuffix(path, "/"))
	}
	return lines
}

// TestEveryRoute walks the table of routes.
func TestEveryRoute(t *testing.T) {
	t.Parallel()
	f := start(t, measured)
	tokenWith := f.tokens(t)
	described := written(t)
	for _, r := range f.Server.Routes() {
		var fromElsewhere []string // as far as a local route can tell
		if r.Local {
			fromElsewhere = []string{"X-Forwarded-For", "192.0.2.1"}
		}
		t.Run(line(r), func(t *testing.T) {
			t.Run("declares its permissions or has a reason not to", func(t *testing.T) {
				if _, excepted := withoutPermission[line(r)]; (len(r.Permissions)+len(r.AnyOf) == 0) != excepted {
					t.Errorf("permissions %q, in the list of exceptions: %v", r.Permissions, excepted)
				}
				for _, permission := range r.Permissions {
					if !slices.ContainsFunc(access.BuiltInPermissions(), func(p access.Permission) bool { return p.Key == permission }) {
						t.Errorf("there is no permission %q", permission)
					}
				}
			})
			t.Run("appears in openapi.yaml", func(t *testing.T) {
				if !slices.ContainsFunc(described.Operations, func(op *servertest.Operation) bool {
					return op.Path == r.Pattern && (op.Method == r.Method || r.Method == "*")
				}) {
					t.Error("it does not")
				}
			})
			for _, request := range requestsTo(r) {
				if r.Open {
					t.Run("needs no credential: "+request, func(t *testing.T) {
						status, code := http.StatusOK, ""
						switch {
						case r.Method == http.MethodPost:
							status, code = http.StatusBadRequest, "body_required"
						case r.Pattern == "/", strings.HasPrefix(r.Pattern, "/console/oidc/"):
							status = http.StatusSeeOther
						}
						f.Do(t, request, "", "").Want(t, status, code)
					})
					continue
				}
				if r.Local {
					t.Run("needs no credential on this machine: "+request, func(t *testing.T) {
						f.Do(t, request, "", "").Want(t, http.StatusOK, "")
					})
				}
				t.Run("refuses without a credential: "+request, func(t *testing.T) {
					refused := f.Do(t, request, "", "", fromElsewhere...).Want(t, http.StatusUnauthorized, "missing_credential")
					challenges := []string{`ApiKey realm="keyhook"`, `Bearer realm="keyhook"`}
					if diff := cmp.Diff(challenges, refused.Header.Values("WWW-Authenticate")); diff != "" {
						t.Errorf("challenges (-want +got):\n%s", diff)
					}
				})
				for i, permission := range r.Permissions {
					t.Run("refuses without "+permission+": "+request, func(t *testing.T) {
						others := slices.Delete(slices.Clone(r.Permissions), i, i+1)
						refused := f.Do(t, request, tokenWith(others), "", fromElsewhere...).Want(t, http.StatusForbidden, "permission_denied")
						if !strings.Contains(refused.Field("detail"), permission) {
							t.Errorf("it does not name the permission: %s", refused.Text)
						}
					})
				}
				for _, permission := range r.AnyOf {
					t.Run("is enough with "+permission+": "+request, func(t *testing.T) {
						if got := f.Do(t, request, tokenWith([]string{permission}), "", fromElsewhere...); got.StatusCode == http.StatusForbidden {
							t.Errorf("%d %s", got.StatusCode, got.Text)
						}
						refused := f.Do(t, request, tokenWith([]string{access.AuditRead}), "", fromElsewhere...).Want(t, http.StatusForbidden, "permission_denied")
						if !strings.Contains(refused.Field("detail"), "one of the permissions "+strings.Join(r.AnyOf, ", ")+".") {
							t.Errorf("it does not name the permissions: %s", refused.Text)
						}
					})
				}
				t.Run("accepts the operator: "+request, func(t *testing.T) {
					got := f.Do(t, request, servertest.Operator, "", fromElsewhere...)
					if got.StatusCode >= 500 || got.StatusCode == http.StatusForbidden || got.StatusCode == http.StatusUnauthorized && !r.Proxied {
						t.Errorf("%d %s", got.StatusCode, got.Text)
					}
				})
			}
		})
	}
}

// tokens returns a function that creates an access token of a user with exactly these permissions.
func (f *testServer) tokens(t *testing.T) func(permissions []string) string {
	created := map[string]string{}
	return func(permissions []string) string {
		name := fmt.Sprint("role-", len(created))
		list, _ := json.Marshal(permissions)
		if created[string(list)] == "" {
			f.Do(t, "POST /api/v1/roles/", servertest.Operator, `{"name":"`+name+`","permissions":`+string(list)+`}`).Want(t, http.StatusCreated, "")
			_, token := storagetest.Organization(t, f.Store, name, "growth", name)
			created[string(list)] = servertest.Bearer(token)
		}
		return created[string(list)]
	}
}

func TestMethods(t *testing.T) {
	t.Parallel()
	f := start(t)
	allowed := map[string][]string{}
	for _, r := range f.Server.Routes() {
		if r.Method == "*" {
			continue
		}
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
					got := f.Do(t, method+" "+at, "", "")
					if method != http.MethodHead {
						got.Want(t, http.StatusMethodNotAllowed, "method_not_allowed")
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
		t.Run("responds like GET, without a body, at "+path, func(t *testing.T) {
			get := f.Do(t, "GET "+path, servertest.Operator, "")
			head := f.Do(t, "HEAD "+path, servertest.Operator, "")
			if head.StatusCode != get.StatusCode || head.Text != "" || head.ContentLength != get.ContentLength {
				t.Errorf("HEAD %d, length %d, body %q; GET %d, length %d", head.StatusCode, head.ContentLength, head.Text, get.StatusCode, get.ContentLength)
			}
		})
	}
}

func TestUnknownPaths(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, path := range []string{
		"/api", "/api/v1/", "/api/v1/nothing/", "/API/V1/API-KEYS/", "/api/v1//api-keys/", "/api/v1/api-keys//x/",
		"/api/v1/../v1/whoami/", "/healthz//", "/api/v1/api-keys/a/b/c/",
	} {
		t.Run("are a 404 problem: "+path, func(t *testing.T) {
			f.Do(t, "GET "+path, "", "").Want(t, http.StatusNotFound, "not_found")
			f.Do(t, "POST "+path, servertest.Operator, "{}").Want(t, http.StatusNotFound, "not_found")
		})
	}
	for _, target := range []string{"*", "example.com:443"} {
		t.Run("are a 404 problem for a request target without a path: "+target, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodOptions, "/", nil)
			r.URL.Path = target
			if target != "*" {
				r.Method, r.URL.Path = http.MethodConnect, ""
			}
			w := httptest.NewRecorder()
			f.Server.ServeHTTP(w, r)
			if w.Code != http.StatusNotFound {
				t.Errorf("status %d", w.Code)
			}
		})
	}
}
