package server_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// explanation is a response of the endpoint.
type explanation struct {
	Allowed    bool
	Code       string
	KeyID      *string `json:"key_id"`
	Route      *string
	Permission string
	Checks     []struct{ Check, Value, Verdict, Detail string }
}

// verdicts returns "check: verdict" of every check.
func (e explanation) verdicts() string {
	var list []string
	for _, c := range e.Checks {
		list = append(list, c.Check+" "+c.Verdict)
	}
	return strings.Join(list, ", ")
}

// detail returns the text about a check.
func (e explanation) detail(check string) string {
	for _, c := range e.Checks {
		if c.Check == check {
			return c.Value + ": " + c.Detail
		}
	}
	return ""
}

func (f *testServer) explain(t *testing.T, as, key, line string, permission ...string) (e explanation) {
	t.Helper()
	method, path, _ := strings.Cut(line, " ")
	asked := map[string]string{"key": key, "method": method, "path": path}
	if len(permission) > 0 {
		asked["permission"] = permission[0]
	}
	body, _ := json.Marshal(asked)
	got := f.Do(t, "POST /api/v1/auth/explain/", as, string(body)).Want(t, 200, "")
	if got.Header.Get("Cache-Control") != "no-store" {
		t.Error("the response may be cached")
	}
	if access, isKey := strings.CutPrefix(key, "svc_"); isKey && len(access) > 10 && strings.Contains(got.Text, access[7:]) {
		t.Errorf("the response shows the key: %s", got.Text)
	}
	if err := json.Unmarshal([]byte(got.Text), &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestExplanationsAreTrue has a key for each check that it can fail. It compares the explanation with the responses to a request
// with that key, to a proxy and to a back end.
func TestExplanationsAreTrue(t *testing.T) {
	t.Parallel()
	f := start(t)
	keys := f.failingKeys(t)
	unknown := access.Mint("svc")

	checks := []string{"parse", "lookup", "revoked", "expired", "creator", "client_address", "plan", "rate_limit", "organization", "permission"}
	for _, tt := range []struct {
		name, id, raw, check string
		mend                 string // the end of the detail
	}{
		{"malformed", "", "svc_" + strings.Repeat("a", 36), "parse", "check that it was copied in full."},
		{"a token", "", storagetest.OperatorToken, "parse", "check that it was copied in full."},
		{"a token that Keyhook made", "", access.Mint(access.TokenPrefix).Reveal(), "parse", `"Authorization: Bearer kat_…".`},
		{"unknown", "", unknown.Reveal(), "lookup", "POST /api/v1/api-keys/."},
		{"revoked", keys["revoked"].id, keys["revoked"].credential.Reveal(), "revoked", "POST /api/v1/api-keys/."},
		{"expired", keys["expired"].id, keys["expired"].credential.Reveal(), "expired", "POST /api/v1/api-keys/."},
		{"of an inactive creator", keys["inactive"].id, keys["inactive"].credential.Reveal(), "creator", "create a key."},
		{"of a creator who is no longer a member", keys["removed"].id, keys["removed"].credential.Reveal(), "creator", "create a key."},
		{"under a plan without keys", keys["downgraded"].id, keys["downgraded"].credential.Reveal(), "plan", `{"plan": "PLAN"}.`},
		{"over its limit", keys["limited"].id, keys["limited"].credential.Reveal(), "rate_limit", `{"api_rate_limit_per_minute": 60}.`},
		{"without the permission", keys["powerless"].id, keys["powerless"].credential.Reveal(), "permission", "POST /api/v1/api-keys/."},
		{"good", keys["powerless"].id, keys["powerless"].credential.Reveal(), "", ""},
	} {
		line, permission := "GET /api/v1/audit-events/", access.AuditRead
		if tt.check == "" {
			line, permission = "GET /api/v1/events/?limit=3", access.EventsRead
		}
		reported := f.Do(t, line, "ApiKey "+tt.raw, "")
		proxied := f.Do(t, "GET "+gate+"forward/"+permission, "ApiKey "+tt.raw, "")
		verified := f.Do(t, "POST /api/v1/auth/verify/", servertest.Operator, `{"key":"`+tt.raw+`","permission":"`+permission+`"}`).Want(t, 200, "")
		code := reported.Field("code")
		if code == "" {
			code = "valid"
		}
		for _, shown := range []string{tt.raw, tt.id} {
			if shown == "" {
				continue
			}
			t.Run(fmt.Sprintf("of a key that is %s, by %.4s", tt.name, shown), func(t *testing.T) {
				e := f.explain(t, servertest.Operator, shown, line)
				if e.Code != code || e.Code != verified.Field("code") || e.Allowed != (reported.StatusCode == 200) || e.Allowed != (proxied.StatusCode == 200) || e.Permission != permission {
					t.Errorf("explained %t %s, the request got %d %s, the proxy %d, the back end %s", e.Allowed, e.Code, reported.StatusCode, code, proxied.StatusCode, verified.Field("code"))
				}
				if other := f.explain(t, servertest.Operator, shown, "GET "+gate+"envoy/"+permission+"/x"); other.verdicts() != e.verdicts() || other.Permission != permission {
					t.Errorf("for a proxy %s, for a request %s", other.verdicts(), e.verdicts())
				}
				if tt.id != "" && (e.KeyID == nil || *e.KeyID != tt.id) {
					t.Errorf("key %v", e.KeyID)
				}
				at := slices.Index(checks, tt.check)
				for i, c := range e.Checks {
					want := "passed"
					switch {
					case i == at:
						want = "failed"
					case at >= 0 && i > at:
						want = "not_reached"
					case c.Check == "organization", c.Check == "client_address", c.Check == "parse" && shown == tt.id:
						want = "not_applicable"
					}
					if c.Check != checks[i] || c.Verdict != want || c.Detail == "" {
						t.Errorf("%s is %s, want %s: %q", c.Check, c.Verdict, want, c.Detail)
					}
					if want == "failed" && !strings.HasSuffix(c.Detail, tt.mend) {
						t.Errorf("%s does not say what to do: %s", c.Check, c.Detail)
					}
				}
				if len(e.Checks) != len(checks) {
					t.Errorf("%d checks", len(e.Checks))
				}
			})
		}
	}
}

// consumed is a store that fails the test if an explanation records a use.
type consumed struct {
	server.Store
	t *testing.T
}

func (s consumed) Used(p access.Principal, use access.KeyUse) {
	if p.Key != nil {
		s.t.Error("a use of the key is noted")
	}
	s.Store.Used(p, use)
}

func TestExplanationsConsumeNothing(t *testing.T) {
	t.Parallel()
	f := start(t, func(o *server.Options) { o.Store = consumed{o.Store, t} })
	f.Plan(t, "three", true, true, "3")
	owner, _ := storagetest.Organization(t, f.Store, "acme", "three", access.RoleOwner)
	key, raw := storagetest.Key(t, f.Store, owner, access.EventsRead)
	for range 30 {
		e := f.explain(t, servertest.Operator, raw.Reveal(), "GET /api/v1/events/")
		if !e.Allowed || !strings.HasPrefix(e.detail("rate_limit"), "3 of 3 left") {
			t.Fatalf("%t, %s", e.Allowed, e.detail("rate_limit"))
		}
		f.explain(t, servertest.Operator, key.ID, "GET /api/v1/audit-events/")
		f.explain(t, servertest.Operator, "svc_guess", "GET /api/v1/events/")
	}
	// No explanation has counted as a failure: 30 would be too many.
	f.Do(t, "GET /api/v1/whoami/", servertest.APIKey(access.Mint("svc")), "").Want(t, 401, "invalid_key")
}

func TestExplain(t *testing.T) {
	t.Parallel()
	f := start(t, measured)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	key, raw := storagetest.Key(t, f.Store, owner, access.APIKeysRead, access.EventsRead)
	foreign, _ := storagetest.Organization(t, f.Store, "foreign", "growth", access.RoleOwner)
	theirs, theirRaw := storagetest.Key(t, f.Store, foreign, access.EventsRead)
	as := servertest.Bearer(token)

	t.Run("needs the permissions of the route", func(t *testing.T) {
		for line, want := range map[string]struct{ route, permission, code string }{
			"GET /api/v1/events/":                   {"/api/v1/events/", "events:read", "valid"},
			"get /api/v1/events":                    {"/api/v1/events/", "events:read", "valid"},
			"HEAD /api/v1/events/evt_x?a=%20":       {"/api/v1/events/{id}/", "events:read", "valid"},
			"DELETE /api/v1/api-keys/" + key.ID:     {"/api/v1/api-keys/{id}/", "api_keys:write", "permission_denied"},
			"POST /api/v1/auth/verify/":             {"/api/v1/auth/verify/", "api_keys:read platform:act_as", "permission_denied"},
			"GET /api/v1/whoami/":                   {"/api/v1/whoami/", "", "valid"},
			"GET /metrics":                          {"/metrics/", "platform:read", "permission_denied"},
			"BREW " + gate + "nginx/events:read":    {gate + "{dialect}/", "events:read", "valid"},
			"GET " + gate + "envoy/orders/7":        {gate + "{dialect}/", "orders", "permission_denied"},
			"GET " + gate + "forward/":              {gate + "{dialect}/", "", "valid"},
			"GET /orders/7":                         {"", "", "valid"},
			"PUT /api/v1/events/":                   {"", "", "valid"},
			"GET /api/v1/authz/caddy/events:read/x": {"", "", "valid"},
		} {
			e := f.explain(t, as, key.ID, line)
			route := ""
			if e.Route != nil {
				route = *e.Route
			}
			if route != want.route || e.Permission != want.permission || e.Code != want.code {
				t.Errorf("%s: route %q, permission %q, %s", line, route, e.Permission, e.Code)
			}
		}
	})
	t.Run("needs the permission that the caller names at any other path", func(t *testing.T) {
		if e := f.explain(t, as, key.ID, "GET /orders/7", "events:read"); !e.Allowed || e.Permission != "events:read" {
			t.Errorf("%+v", e)
		}
		e := f.explain(t, as, key.ID, "GET /orders/7", "webhooks:write audit:read")
		if e.Allowed || e.detail("permission") != "audit:read webhooks:write: The key's scope is fixed and does not include audit:read webhooks:write. "+
			"Create another key with it in the scope: POST /api/v1/api-keys/." {
			t.Errorf("%s", e.detail("permission"))
		}
		e = f.explain(t, as, key.ID, "GET /orders/7", "platform:read")
		if !strings.Contains(e.detail("permission"), "The creator's role, owner, does not grant platform:read") || !strings.Contains(e.detail("permission"), "scope") {
			t.Errorf("%s", e.detail("permission"))
		}
	})
	t.Run("says when no permission is needed", func(t *testing.T) {
		for line, want := range map[string]string{
			"GET /orders/7": "name the permission", "PUT /api/v1/events/": "This is no path and method of Keyhook's API.",
			"GET /api/v1/whoami/": "No permission is needed here.", "GET " + gate + "nginx": "No permission is needed here.",
		} {
			if e := f.explain(t, as, key.ID, line); !strings.Contains(e.detail("permission"), want) || !strings.HasSuffix(e.verdicts(), "permission not_applicable") {
				t.Errorf("%s: %s", line, e.detail("permission"))
			}
		}
	})
	t.Run("says that a permission does not exist", func(t *testing.T) {
		if e := f.explain(t, as, key.ID, "GET "+gate+"forward/events.read"); !strings.Contains(e.detail("permission"), "There is no permission events.read, ") {
			t.Errorf("%s", e.detail("permission"))
		}
	})
	t.Run("allows routes that read no credential, whatever the key", func(t *testing.T) {
		if e := f.explain(t, as, "svc_x", "GET /healthz"); !e.Allowed || e.Code != "valid" || strings.Contains(e.verdicts(), "passed") {
			t.Errorf("%+v", e)
		}
	})
	t.Run("does not find keys of other organizations, except for callers that may act there", func(t *testing.T) {
		body := `{"method":"GET","path":"/","key":"` + theirs.ID + `"}`
		f.Do(t, "POST /api/v1/auth/explain/", as, body).Want(t, 404, "not_found")
		of := func(key string) explanation {
			e := f.explain(t, as, key, "GET /")
			e.Checks[0].Value = "" // its display prefix
			return e
		}
		foreigner, nobody := of(theirRaw.Reveal()), of(access.Mint("svc").Reveal())
		if diff := cmp.Diff(nobody, foreigner); diff != "" || foreigner.Code != "invalid_key" {
			t.Errorf("a foreign key differs from an unknown one (-unknown +foreign):\n%s", diff)
		}
		for _, shown := range []string{theirs.ID, theirRaw.Reveal()} {
			if e := f.explain(t, servertest.Operator, shown, "GET /"); !e.Allowed || *e.KeyID != theirs.ID {
				t.Errorf("operator: %+v", e)
			}
		}
		// A key of the operator is limited by its scope too, and to read the platform is not to act everywhere.
		_, narrow := storagetest.Key(t, f.Store, storagetest.Operator(t, f.Store), access.APIKeysRead, access.PlatformRead)
		f.Do(t, "POST /api/v1/auth/explain/", servertest.APIKey(narrow), body).Want(t, 404, "not_found")
	})
	t.Run("counts the request for the explanation, if a key made it", func(t *testing.T) {
		body := `{"method":"GET","path":"/","key":"` + key.ID + `"}`
		checkWindow(t, f.Do(t, "POST /api/v1/auth/explain/", servertest.APIKey(raw), body).Want(t, 200, ""), 600, 599)
	})
	t.Run("lists all problems of its own request", func(t *testing.T) {
		for body, want := range map[string][]string{
			`{}`:                                {"key: missing", "method: missing", "path: missing"},
			`{"key":"x","method":"","path":""}`: {"method: invalid", "path: invalid"},
			`{"key":"x","method":"G T","path":"orders"}`:                   {"method: invalid", "path: invalid"},
			`{"key":"x","method":"GET","path":"http://example.com/"}`:      {"path: invalid"},
			`{"key":"x","method":"GET","path":"/%zz"}`:                     {"path: invalid"},
			`{"key":"x","method":"GET","path":"/","permission":"no:such"}`: {"permission: unknown_permission"},
			`{"key":1,"method":2,"path":3,"a":4}`:                          {"key: wrong_type", "method: wrong_type", "path: wrong_type", "a: unknown_field"},
		} {
			got := f.Do(t, "POST /api/v1/auth/explain/", as, body).Want(t, 422, "")
			if diff := cmp.Diff(want, got.Fields()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", body, diff)
			}
		}
		f.Do(t, "POST /api/v1/auth/explain/", as, `{"key":"key_01h455vb4pex5vsknk084sn02q","method":"GET","path":"/"}`).Want(t, 404, "not_found")
	})
}

// TestExplanationsOfAlternatives asks about a route for which one of two permissions is enough.
func TestExplanationsOfAlternatives(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	const line, both = "GET /api/v1/event-types/", "events:read webhooks:read"
	for scope, want := range map[string]string{
		access.WebhooksRead: access.WebhooksRead, access.EventsRead: access.EventsRead, both: both, access.EventsWrite: "",
	} {
		_, key := storagetest.Key(t, f.Store, owner, strings.Fields(scope)...)
		e := f.explain(t, servertest.Operator, key.Reveal(), line)
		status := f.Do(t, line, servertest.APIKey(key), "").StatusCode
		if e.Allowed != (want != "") || e.Allowed != (status == 200) || e.Allowed && e.Permission != want || !e.Allowed && e.Permission != both {
			t.Errorf("%s: %+v, and the request got %d", scope, e, status)
		}
		if !e.Allowed && !strings.Contains(e.detail("permission"), "does not include "+both) {
			t.Error(e.detail("permission"))
		}
	}
}
