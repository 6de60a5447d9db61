package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// windowHeaders are the headers of a rate window.
var windowHeaders = []string{"RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}

// key creates an organization on a plan with this limit, and a key of it with every permission except the platform permissions.
func (f *testServer) key(t testing.TB, name, limit string) (access.Principal, access.Credential) {
	t.Helper()
	f.Plan(t, name, true, true, limit)
	owner, _ := storagetest.Organization(t, f.Store, name, name, access.RoleOwner)
	_, key := storagetest.Key(t, f.Store, owner, access.APIKeysRead, access.APIKeysWrite, access.WebhooksRead, access.WebhooksWrite, access.EventsWrite)
	return owner, key
}

func TestWindowHeaders(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, key := f.key(t, "small", "11")
	as := servertest.APIKey(key)
	_, reader := storagetest.Key(t, f.Store, owner, access.APIKeysRead)

	remaining := 11
	for _, tt := range []struct {
		call   servertest.Call
		status int
	}{
		{servertest.NewCall("GET /api/v1/whoami/", as, ""), 200},
		{servertest.NewCall("HEAD /api/v1/whoami", as, ""), 200},
		{servertest.NewCall("POST /api/v1/api-keys/", as, `{"name":"n","scope":"api_keys:read"}`), 201},
		{servertest.NewCall("DELETE /api/v1/webhooks/subscriptions/sub_x/", as, ""), 404},
		{servertest.NewCall("GET /api/v1/plans/", as, ""), 403},
		{servertest.NewCall("PUT /api/v1/api-keys/", as, ""), 405},
		{servertest.NewCall("POST /api/v1/api-keys/", as, `{`), 400},
		{servertest.NewCall("POST /api/v1/api-keys/", as, `{"name":""}`), 422},
		{servertest.NewCall("GET /api/v1/whoami/", as, "", "X-Organization-Id", "org_x"), 404},
		{servertest.NewCall("POST /api/v1/api-keys/", as, `{}`, "Content-Type", "text/plain"), 415},
		{servertest.NewCall("POST /api/v1/webhooks/subscriptions/sub_x/test/", as, ""), 404},
		{servertest.NewCall("GET /api/v1/whoami/", as, ""), 429},
		{servertest.NewCall("GET /nothing/", as, ""), 429},
	} {
		remaining = max(0, remaining-1)
		t.Run(fmt.Sprintf("are in a response with status %d, counted once: %s", tt.status, tt.call.Line), func(t *testing.T) {
			got := f.Call(t, tt.call).Want(t, tt.status, "")
			checkWindow(t, got, 11, remaining)
		})
	}
	t.Run("are separate for each key", func(t *testing.T) {
		checkWindow(t, f.Do(t, "GET /api/v1/whoami/", servertest.APIKey(reader), "").Want(t, 200, ""), 11, 10)
	})
	t.Run("change when the limit is raised within the window", func(t *testing.T) {
		f.Do(t, "PATCH /api/v1/plans/small/", servertest.Operator, `{"api_rate_limit_per_minute":20}`).Want(t, 200, "")
		checkWindow(t, f.Do(t, "GET /api/v1/whoami/", as, "").Want(t, 200, ""), 20, 8)
	})
	t.Run("are absent if the limit is null", func(t *testing.T) {
		f.Do(t, "PATCH /api/v1/plans/small/", servertest.Operator, `{"api_rate_limit_per_minute":null}`).Want(t, 200, "")
		checkNoWindow(t, f.Do(t, "GET /api/v1/whoami/", as, "").Want(t, 200, ""))
	})
	t.Run("refuse every request if the limit is 0", func(t *testing.T) {
		f.Do(t, "PATCH /api/v1/plans/small/", servertest.Operator, `{"api_rate_limit_per_minute":0}`).Want(t, 200, "")
		checkWindow(t, f.Do(t, "GET /api/v1/whoami/", as, "").Want(t, 429, "rate_limited"), 0, 0)
	})
	t.Run("are absent for an access token", func(t *testing.T) {
		checkNoWindow(t, f.Do(t, "GET /api/v1/whoami/", servertest.Operator, ""))
	})
	t.Run("are absent for an invalid key", func(t *testing.T) {
		checkNoWindow(t, f.Do(t, "GET /api/v1/whoami/", servertest.APIKey(access.Mint("svc")), "").Want(t, 401, ""))
	})
}

// checkWindow checks every header of the window, and whether they agree.
func checkWindow(t *testing.T, a servertest.Response, limit, remaining int) {
	t.Helper()
	got := map[string]string{}
	for _, name := range windowHeaders {
		got[name] = a.Header.Get(name)
	}
	found := regexp.MustCompile(`;t=([0-9]+)$`).FindStringSubmatch(got["RateLimit"])
	if found == nil {
		t.Fatalf("RateLimit %q", got["RateLimit"])
	}
	left, _ := strconv.Atoi(found[1])
	reset, _ := strconv.ParseInt(got["X-RateLimit-Reset"], 10, 64)
	if until := time.Until(time.Unix(reset, 0)); left < 1 || left > 60 || until < 0 || until > 61*time.Second {
		t.Errorf("t=%d, X-RateLimit-Reset in %s", left, until)
	}
	want := map[string]string{
		"RateLimit-Policy":      fmt.Sprintf(`"plan";q=%d;w=60`, limit),
		"RateLimit":             fmt.Sprintf(`"plan";r=%d;t=%d`, remaining, left),
		"X-RateLimit-Limit":     strconv.Itoa(limit),
		"X-RateLimit-Remaining": strconv.Itoa(remaining),
		"X-RateLimit-Reset":     strconv.FormatInt(reset, 10),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	retry, _ := strconv.Atoi(a.Header.Get("Retry-After"))
	if a.StatusCode == http.StatusTooManyRequests && (retry < 1 || retry > 60) {
		t.Errorf("Retry-After %q", a.Header.Get("Retry-After"))
	}
	if a.StatusCode != http.StatusTooManyRequests && a.Header.Get("Retry-After") != "" {
		t.Errorf("status %d with Retry-After", a.StatusCode)
	}
}

// TestWindowHeadersInTime begins a window within a second. Both times are rounded up, so that a caller who waits so long gets a new window.
func TestWindowHeadersInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t)
		_, key := f.key(t, "small", "1")
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1300 * time.Millisecond)))
		end := time.Now().Add(time.Minute)
		for _, after := range []time.Duration{0, 200 * time.Millisecond, 30*time.Second + 500*time.Millisecond} {
			time.Sleep(time.Until(end.Add(after - time.Minute)))
			got := f.Do(t, "GET /api/v1/whoami/", servertest.APIKey(key), "")
			left := strconv.Itoa(int((time.Until(end) + time.Second - 1) / time.Second))
			reset := strconv.FormatInt(end.Unix()+1, 10)
			if got.Header.Get("X-RateLimit-Reset") != reset || !strings.HasSuffix(got.Header.Get("RateLimit"), ";t="+left) || after > 0 && got.Header.Get("Retry-After") != left {
				t.Errorf("after %s: %v, want %s in %s s", after, got.Header, reset, left)
			}
		}
		time.Sleep(time.Until(time.Unix(end.Unix()+1, 0)))
		f.Do(t, "GET /api/v1/whoami/", servertest.APIKey(key), "").Want(t, 200, "")
	})
}

func checkNoWindow(t *testing.T, a servertest.Response) {
	t.Helper()
	for _, name := range windowHeaders {
		if got := a.Header.Get(name); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestWindowUnderConcurrency(t *testing.T) {
	t.Parallel()
	const limit = 100
	f := start(t)
	_, key := f.key(t, "hundred", strconv.Itoa(limit))
	var passed, refused, left atomic.Int64
	left.Store(limit + 200)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				switch got := f.Do(t, "GET /api/v1/whoami/", servertest.APIKey(key), ""); got.StatusCode {
				case http.StatusOK:
					passed.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if passed.Load() != limit || refused.Load() != 200 {
		t.Errorf("%d passed and %d were refused, want %d and 200", passed.Load(), refused.Load(), limit)
	}
}

func TestSteadyStreamDoesNotExtendTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t)
		owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
		_, key := storagetest.Key(t, f.Store, owner, access.APIKeysRead)
		get := func() int {
			r := httptest.NewRequest(http.MethodGet, "/api/v1/whoami/", nil)
			r.Header.Set("Authorization", servertest.APIKey(key))
			w := httptest.NewRecorder()
			f.Server.ServeHTTP(w, r)
			return w.Code
		}
		const perSecond, limit = 20, 600 // used up after 30 s, asked for throughout
		for minute := range 3 {
			passed := 0
			for range 60 * perSecond {
				if get() == http.StatusOK {
					passed++
				}
				time.Sleep(time.Second / perSecond)
			}
			if passed != limit {
				t.Errorf("minute %d: %d requests passed, want %d", minute, passed, limit)
			}
		}
	})
}

func TestWhatIsRefusedBeforeTheWindowDoesNotCount(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.Plan(t, "without", false, false, "600")
	owner, key := f.key(t, "with", "600")
	for range 5 {
		f.Move(t, owner.Organization.ID, "without")
		got := f.Do(t, "GET /api/v1/whoami/", servertest.APIKey(key), "").Want(t, 403, "plan_capability_required")
		checkWindow(t, got, 600, 600)
		f.Do(t, "GET /api/v1/whoami/", "Bearer "+key.Reveal(), "").Want(t, 401, "wrong_scheme")
	}
	f.Move(t, owner.Organization.ID, "with")
	checkWindow(t, f.Do(t, "GET /api/v1/whoami/", servertest.APIKey(key), "").Want(t, 200, ""), 600, 599)
}

func TestRevocationHoldsAtOnce(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOwner)
	for range 20 {
		key, credential := storagetest.Key(t, f.Store, owner, access.APIKeysRead)
		var revoked atomic.Bool
		var late atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 20 {
					after := revoked.Load()
					got := f.Do(t, "GET /api/v1/whoami/", servertest.APIKey(credential), "")
					if after && got.StatusCode != http.StatusUnauthorized {
						late.Add(1)
					}
				}
			})
		}
		f.Do(t, "DELETE /api/v1/api-keys/"+key.ID+"/", servertest.Bearer(token), "").Want(t, 204, "")
		revoked.Store(true)
		f.Do(t, "GET /api/v1/whoami/", servertest.APIKey(credential), "").Want(t, 401, "key_revoked")
		wg.Wait()
		if late.Load() > 0 {
			t.Fatalf("%d requests were accepted after the revocation", late.Load())
		}
	}
}

func TestChangesHoldFromTheNextRequestOn(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, key := storagetest.Key(t, f.Store, owner, access.WebhooksRead, access.WebhooksWrite, access.AuditRead)
	list := func(status int, code string) {
		t.Helper()
		f.Do(t, "POST /api/v1/webhooks/subscriptions/", servertest.APIKey(key), `{"url":"https://example.com/"}`).Want(t, status, code)
	}
	role := func(name string) {
		t.Helper()
		f.Do(t, "PUT /api/v1/organizations/"+owner.Organization.ID+"/members/"+owner.User.ID+"/", servertest.Operator, `{"role":"`+name+`"}`).Want(t, 200, "")
	}
	list(201, "")
	f.Move(t, owner.Organization.ID, "free")
	list(403, "plan_capability_required")
	f.Move(t, owner.Organization.ID, "growth")
	list(201, "")
	role(access.RoleMember)
	list(403, "permission_denied")
	role(access.RoleOperator) // the scope of the key still limits it
	list(201, "")
	f.Do(t, "GET /api/v1/plans/", servertest.APIKey(key), "").Want(t, 403, "permission_denied")
	f.Do(t, "PATCH /api/v1/users/"+owner.User.ID+"/", servertest.Operator, `{"is_active":false}`).Want(t, 200, "")
	list(401, "creator_inactive")
	f.Do(t, "PATCH /api/v1/users/"+owner.User.ID+"/", servertest.Operator, `{"is_active":true}`).Want(t, 200, "")
	list(201, "")
}
