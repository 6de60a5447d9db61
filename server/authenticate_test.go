package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestMalformedAndUnknownLookAlike(t *testing.T) {
	t.Parallel()
	f := start(t)
	strip := func(a servertest.Response) string {
		return strings.ReplaceAll(a.Text, a.Header.Get("X-Request-Id"), "")
	}
	for sort, as := range map[string]struct{ malformed, unknown string }{
		"key":                  {"ApiKey svc_x", servertest.APIKey(access.Mint("svc"))},
		"token":                {"Bearer kat_" + strings.Repeat("a", 36), servertest.Bearer(access.Mint(access.TokenPrefix))},
		"token without a form": {"Bearer x", "Bearer an-operator-might-have-chosen-this"},
	} {
		t.Run(sort, func(t *testing.T) {
			malformed := f.Do(t, "GET /api/v1/whoami/", as.malformed, "").Want(t, 401, "invalid_key")
			unknown := f.Do(t, "GET /api/v1/whoami/", as.unknown, "").Want(t, 401, "invalid_key")
			if diff := cmp.Diff(strip(malformed), strip(unknown)); diff != "" {
				t.Errorf("response (-malformed +unknown):\n%s", diff)
			}
		})
	}
}

// TestOrderOfChecks has, for each check, a key that fails this check and every later one. The first failure decides the response.
func TestOrderOfChecks(t *testing.T) {
	t.Parallel()
	f := start(t)
	keys := f.failingKeys(t)
	as := func(state string) string { return servertest.APIKey(keys[state].credential) }
	another, _ := storagetest.Organization(t, f.Store, "another", "growth", access.RoleOwner)
	theirs, _ := storagetest.Key(t, f.Store, another, access.APIKeysRead)
	other, _ := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	_, otherKey := storagetest.Key(t, f.Store, other, access.APIKeysRead)

	const counted, free = true, false
	for _, tt := range []struct {
		check, as string
		named     bool // the request names another organization
		status    int
		code      string
		window    bool // whether the response shows the window
	}{
		{"the form and the checksum of the key", "ApiKey svc_" + strings.Repeat("a", 36), true, 401, "invalid_key", free},
		{"whether the key exists", servertest.APIKey(access.Mint("svc")), true, 401, "invalid_key", free},
		{"whether it is revoked", as("revoked"), true, 401, "key_revoked", free},
		{"whether it has expired", as("expired"), true, 401, "key_expired", free},
		{"whether its creator is active", as("inactive"), true, 401, "creator_inactive", free},
		{"whether its creator is a member", as("removed"), true, 401, "creator_inactive", free},
		{"whether the plan has API keys", as("downgraded"), true, 403, "plan_capability_required", counted},
		{"the rate limit", as("limited"), true, 429, "rate_limited", counted},
		{"the organization that the request names", as("foreign"), true, 404, "not_found", counted},
		{"the permission", as("powerless"), false, 403, "permission_denied", counted},
		{"the organization that owns the resource", servertest.APIKey(otherKey), false, 404, "not_found", counted},
	} {
		t.Run(tt.check, func(t *testing.T) {
			c := servertest.NewCall("GET /api/v1/api-keys/"+theirs.ID+"/", tt.as, "")
			if tt.named {
				c.Header = []string{"X-Organization-Id", another.Organization.ID}
			}
			got := f.Call(t, c).Want(t, tt.status, tt.code)
			if shown := got.Header.Get("RateLimit") != ""; shown != tt.window {
				t.Errorf("RateLimit %q", got.Header.Get("RateLimit"))
			}
			if retry := got.Header.Get("Retry-After"); (retry != "") != (tt.status == 429) {
				t.Errorf("status %d with Retry-After %q", tt.status, retry)
			}
		})
	}
}

func TestOrganizationNamed(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, key := storagetest.Key(t, f.Store, owner, access.APIKeysRead)
	other, _ := storagetest.Organization(t, f.Store, "other", "free", access.RoleOwner)
	theirs := other.Organization.ID
	whoami := func(as, named string) servertest.Response {
		return f.Do(t, "GET /api/v1/whoami/", as, "", "X-Organization-Id", named)
	}
	t.Run("may be the caller's own", func(t *testing.T) {
		whoami(servertest.Bearer(token), owner.Organization.ID).Want(t, 200, "")
		whoami(servertest.APIKey(key), owner.Organization.ID).Want(t, 200, "")
	})
	t.Run("may be another one with platform:act_as, and whoami shows its plan", func(t *testing.T) {
		got := whoami(servertest.Operator, theirs).Want(t, 200, "")
		if !strings.Contains(got.Text, theirs) || !strings.Contains(got.Text, `"plan":{"name":"free","api_keys":false,`) {
			t.Errorf("got %s", got.Text)
		}
	})
	t.Run("is not ignored if the name of the header is wrong", func(t *testing.T) {
		got := f.Do(t, "GET /api/v1/whoami/", servertest.Operator, "", "X-Organization", theirs).Want(t, 400, "invalid_parameter")
		if !strings.Contains(got.Field("detail"), "X-Organization-Id") {
			t.Errorf("got %s", got.Text)
		}
	})
	t.Run("does not change the plan that applies to a key", func(t *testing.T) {
		_, key := storagetest.Key(t, f.Store, storagetest.Operator(t, f.Store), access.PlatformActAs)
		f.Move(t, storagetest.Operator(t, f.Store).Organization.ID, "growth")
		got := whoami(servertest.APIKey(key), theirs).Want(t, 200, "")
		checkWindow(t, got, 600, 599)
		if !strings.Contains(got.Text, `"plan":{"name":"free",`) {
			t.Errorf("got %s", got.Text)
		}
	})
	for name, named := range map[string]string{
		"another": theirs, "none": "", "a malformed one": "org_1", "an id of another type": other.User.ID,
		"one that does not exist": "org_01h455vb4pex5vsknk084sn02q",
	} {
		t.Run("is not found without platform:act_as: "+name, func(t *testing.T) {
			got := whoami(servertest.Bearer(token), named).Want(t, 404, "not_found")
			if !strings.Contains(got.Field("detail"), "which acts only in its own. Leave the header X-Organization-Id out.") {
				t.Errorf("%s", got.Text)
			}
		})
		if named != theirs {
			t.Run("is not found with platform:act_as either: "+name, func(t *testing.T) {
				whoami(servertest.Operator, named).Want(t, 404, "not_found")
			})
		}
	}
}

// failing is a store that cannot look up credentials.
type failing struct {
	server.Store
	err error
}

func (s failing) PrincipalByKey(context.Context, access.Digest) (access.Principal, error) {
	return access.Principal{}, s.err
}

func (s failing) PrincipalByToken(context.Context, access.Digest) (access.Principal, error) {
	if s.err == nil {
		panic("the store is upside down")
	}
	return access.Principal{}, s.err
}

func TestUnreadableDatabase(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"an error of the driver":  errors.New("disk I/O error in SELECT secret"),
		"a fault of the database": fault.New(fault.Unavailable, "storage_unavailable", "Later.").Because(errors.New("secret")),
		"a timeout":               context.DeadlineExceeded,
	} {
		t.Run("is 503 and never 401: "+name, func(t *testing.T) {
			t.Parallel()
			f := start(t, func(o *server.Options) { o.Store = failing{o.Store, err} })
			for _, as := range []string{servertest.APIKey(access.Mint("svc")), servertest.Operator} {
				got := f.Do(t, "GET /api/v1/whoami/", as, "").Want(t, 503, "storage_unavailable")
				if got.Header.Get("Retry-After") == "" || strings.Contains(got.Text, "secret") {
					t.Errorf("Retry-After %q, %s", got.Header.Get("Retry-After"), got.Text)
				}
			}
			if !strings.Contains(f.Log.String(), err.Error()) && !strings.Contains(f.Log.String(), "secret") {
				t.Errorf("the log does not say why: %s", f.Log.String())
			}
		})
	}
}

func TestPanics(t *testing.T) {
	t.Parallel()
	f := start(t, func(o *server.Options) { o.Store = failing{o.Store, nil} })
	got := f.Do(t, "GET /api/v1/whoami/", servertest.Operator, "").Want(t, 500, "internal_error")
	if strings.Contains(got.Text, "upside down") {
		t.Errorf("the response says what panicked: %s", got.Text)
	}
	if text := f.Log.String(); !strings.Contains(text, "upside down") || !strings.Contains(text, got.Header.Get("X-Request-Id")) {
		t.Errorf("the log does not say what panicked: %s", text)
	}
}

// panicking is a store that panics in a handler.
type panicking struct{ server.Store }

func (panicking) KeyPage(context.Context, int64, access.KeyFilter) (access.Page[access.Key], error) {
	panic("the store is upside down")
}

func TestPanicOfAHandlerStillShowsTheWindow(t *testing.T) {
	t.Parallel()
	f := start(t, func(o *server.Options) { o.Store = panicking{o.Store} })
	owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, key := storagetest.Key(t, f.Store, owner, access.APIKeysRead)
	checkWindow(t, f.Do(t, "GET /api/v1/api-keys/", servertest.APIKey(key), "").Want(t, 500, "internal_error"), 600, 599)
}

func TestAbortedHandler(t *testing.T) {
	t.Parallel()
	f := start(t, func(o *server.Options) {
		o.Tester = servertest.Tester(func(context.Context) (webhook.Attempt, error) { panic(http.ErrAbortHandler) })
	})
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URL+"/api/v1/webhooks/subscriptions/sub_01h455vb4pex5vsknk084sn02q/test/", nil)
	r.Header.Set("Authorization", servertest.Operator)
	if response, err := servertest.Client.Do(r); err == nil {
		response.Body.Close()
		t.Errorf("status %d, want no response at all", response.StatusCode)
	}
	if !strings.Contains(f.Log.String(), `"code":"aborted"`) {
		t.Errorf("the log does not say so: %s", f.Log.String())
	}
}

func TestUnroutedRequestsOfAKey(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, key := storagetest.Key(t, f.Store, owner, access.APIKeysRead)
	for i, line := range []string{"GET /nothing/", "PUT /api/v1/api-keys/", "PATCH /api/v1/api-keys/x/"} {
		got := f.Do(t, line, servertest.APIKey(key), "")
		if got.StatusCode != 404 && got.StatusCode != 405 {
			t.Errorf("%s: %d", line, got.StatusCode)
		}
		if want := []string{"599", "598", "597"}[i]; got.Header.Get("X-RateLimit-Remaining") != want {
			t.Errorf("%s: %q requests remain, want %s", line, got.Header.Get("X-RateLimit-Remaining"), want)
		}
	}
}

func FuzzAuthorization(f *testing.F) {
	s := build(f)
	handler := s.Server
	for _, seed := range []string{"", "ApiKey", "ApiKey svc_", "Bearer kat_x", "Bearer a,b", "ApiKey\x00", ", ,", "apikey  svc_é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, path := range []string{"/api/v1/whoami/", "/api/v1/authz/forward/"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Header["Authorization"] = []string{value}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code != 400 && w.Code != 401 && w.Code != 429 {
				t.Errorf("%s: status %d", path, w.Code)
			}
		}
	})
}

// TestWhoseCredential refuses the credentials of a user who may not act, and names the user.
func TestWhoseCredential(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, key := storagetest.Key(t, f.Store, owner, access.EventsRead)
	ask := func(want string) {
		t.Helper()
		for _, as := range []string{servertest.Bearer(token), servertest.APIKey(key)} {
			if got := f.Do(t, "GET /api/v1/whoami/", as, "").Want(t, 401, ""); !strings.Contains(got.Field("detail"), owner.User.ID+", is "+want) {
				t.Error(got.Text)
			}
		}
	}
	f.Do(t, "PATCH "+servertest.Users+owner.User.ID+"/", servertest.Operator, `{"is_active":false}`).Want(t, 200, "")
	ask("not active; an operator can activate the user.")
	f.Do(t, "PATCH "+servertest.Users+owner.User.ID+"/", servertest.Operator, `{"is_active":true}`).Want(t, 200, "")
	f.Do(t, "DELETE "+servertest.Orgs+owner.Home.ID+"/members/"+owner.User.ID+"/", servertest.Operator, "").Want(t, 204, "")
	ask("no longer a member of the organization; an operator can add the user again.")
}
