package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// from makes a request from a peer, and returns the status and the code of the response.
func (f *testServer) from(peer, authorization string) (status int, code string) {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/whoami/", nil)
	r.RemoteAddr = peer
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	f.Server.ServeHTTP(w, r)
	var p struct{ Code string }
	_ = json.Unmarshal(w.Body.Bytes(), &p)
	if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
		p.Code += " without Retry-After"
	}
	return w.Code, p.Code
}

// exhaust sends unknown keys from a peer until the peer is throttled. It returns the number of failures.
func (f *testServer) exhaust(t *testing.T, peer string) (failures int) {
	t.Helper()
	for range 1000 {
		status, code := f.from(peer, servertest.APIKey(access.Mint("svc")))
		if status == http.StatusTooManyRequests && code == "too_many_failures" {
			return failures
		}
		if status != http.StatusUnauthorized {
			t.Fatalf("status %d %s", status, code)
		}
		failures++
	}
	t.Fatal("1000 failures, and still not throttled")
	return 0
}

func TestThrottle(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (f *testServer, key string) {
		f = build(t)
		owner, _ := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOwner)
		_, credential := storagetest.Key(t, f.Store, owner, access.APIKeysRead)
		return f, servertest.APIKey(credential)
	}
	const peer = "198.51.100.7:1000"
	t.Run("refuses every invalid credential of an address after many failures, on other ports too", func(t *testing.T) {
		t.Parallel()
		f, _ := setup(t)
		f.exhaust(t, peer)
		for _, as := range []string{"ApiKey svc_x", servertest.APIKey(access.Mint("svc")), servertest.Bearer(access.Mint(access.TokenPrefix))} {
			if status, code := f.from("198.51.100.7:2000", as); status != 429 || code != "too_many_failures" {
				t.Errorf("%.12s: %d %s", as, status, code)
			}
		}
	})
	t.Run("counts malformed credentials and wrong schemes as well", func(t *testing.T) {
		t.Parallel()
		f, _ := setup(t)
		for range 10 {
			f.from(peer, "ApiKey svc_x")
			f.from(peer, "Basic x")
		}
		if status, code := f.from(peer, servertest.APIKey(access.Mint("svc"))); status != 429 || code != "too_many_failures" {
			t.Errorf("%d %s", status, code)
		}
	})
	t.Run("does not count requests without a credential", func(t *testing.T) {
		t.Parallel()
		f, key := setup(t)
		for range 100 {
			f.from(peer, "")
		}
		if status, _ := f.from(peer, key); status != 200 {
			t.Errorf("status %d", status)
		}
	})
	t.Run("does not affect other addresses", func(t *testing.T) {
		t.Parallel()
		f, key := setup(t)
		f.exhaust(t, peer)
		if status, _ := f.from("198.51.100.8:1000", key); status != 200 {
			t.Errorf("status %d", status)
		}
	})
	t.Run("accepts valid credentials from the same address, even if they were never used before", func(t *testing.T) {
		t.Parallel()
		f, key := setup(t)
		f.exhaust(t, peer)
		for _, as := range []string{key, servertest.Operator} {
			if status, code := f.from(peer, as); status != 200 {
				t.Errorf("%.12s: %d %s", as, status, code)
			}
		}
	})
	t.Run("forgets a credential that is no longer valid", func(t *testing.T) {
		t.Parallel()
		f := build(t)
		owner, _ := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOwner)
		key, credential := storagetest.Key(t, f.Store, owner, access.APIKeysRead)
		f.from(peer, servertest.APIKey(credential))
		f.exhaust(t, peer)
		if err := f.Store.Directory.RevokeKey(t.Context(), owner.Actor("", ""), owner.Organization.RowID, key.ID); err != nil {
			t.Fatal(err)
		}
		if status, code := f.from(peer, servertest.APIKey(credential)); status != 401 {
			t.Errorf("first: %d %s", status, code)
		}
		if status, code := f.from(peer, servertest.APIKey(credential)); status != 429 {
			t.Errorf("second: %d %s", status, code)
		}
	})
	t.Run("counts an IPv6 host by its /64", func(t *testing.T) {
		t.Parallel()
		f, _ := setup(t)
		f.exhaust(t, "[2001:db8:1:2::1]:1000")
		for peer, want := range map[string]int{"[2001:db8:1:2:ffff::9]:1": 429, "[2001:db8:1:3::1]:1": 401} {
			if status, _ := f.from(peer, "ApiKey svc_x"); status != want {
				t.Errorf("%s: status %d, want %d", peer, status, want)
			}
		}
	})
	t.Run("exempts loopback and the socket", func(t *testing.T) {
		t.Parallel()
		f, key := setup(t)
		for _, peer := range []string{"127.0.0.1:1", "[::1]:1", "127.9.9.9:1", "@", ""} {
			for range 200 {
				if status, _ := f.from(peer, "ApiKey svc_x"); status != 401 {
					t.Fatalf("%s: status %d", peer, status)
				}
			}
			if status, _ := f.from(peer, key); status != 200 {
				t.Errorf("%s: status %d", peer, status)
			}
		}
	})
}

// An address that fails all the time gets a limited number of lookups a second. A credential that was valid once needs none of them.
func TestThrottleBoundsLookups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t)
		owner, _ := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOwner)
		_, first := storagetest.Key(t, f.Store, owner, access.APIKeysRead)
		_, second := storagetest.Key(t, f.Store, owner, access.APIKeysRead)
		const peer = "198.51.100.7:1"
		flood := func() {
			for range 600 {
				f.from(peer, servertest.APIKey(access.Mint("svc")))
			}
		}
		wantStatus := func(when string, credential access.Credential, want int) {
			t.Helper()
			if status, code := f.from(peer, servertest.APIKey(credential)); status != want {
				t.Errorf("%s: %d %s, want %d", when, status, code, want)
			}
		}
		flood()
		wantStatus("an unused key after the flood", first, 429)
		time.Sleep(time.Second)
		wantStatus("a second later", first, 200)
		flood()
		wantStatus("a used key after the flood", first, 200)
		wantStatus("another unused key", second, 429)
	})
}

func TestThrottleLetsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t)
		const peer = "198.51.100.7:1"
		f.exhaust(t, peer)
		time.Sleep(10 * time.Minute)
		if again := f.exhaust(t, peer); again != 20 {
			t.Errorf("after ten minutes %d failures until throttled, want 20", again)
		}
	})
}

func TestClientAddress(t *testing.T) {
	t.Parallel()
	f := build(t, func(o *server.Options) {
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	})
	for name, tt := range map[string]struct {
		peer      string
		forwarded []string
		want      string
	}{
		"the peer":                                    {"192.0.2.1:5", nil, "192.0.2.1"},
		"the peer, whatever its header says":          {"192.0.2.1:5", []string{"198.51.100.1"}, "192.0.2.1"},
		"the address that a proxy forwards":           {"10.0.0.1:5", []string{"198.51.100.1"}, "198.51.100.1"},
		"the address that an IPv6 proxy forwards":     {"[fd00::1]:5", []string{"2001:db8::1"}, "2001:db8::1"},
		"the proxy, if it has no header":              {"10.0.0.1:5", nil, "10.0.0.1"},
		"the last hop that is not a proxy":            {"10.0.0.1:5", []string{"127.0.0.1, 198.51.100.1, 10.9.9.9"}, "198.51.100.1"},
		"not an address that the client wrote":        {"10.0.0.1:5", []string{"127.0.0.1,10.1.1.1", "198.51.100.1"}, "198.51.100.1"},
		"the hop after a word that is not an address": {"10.0.0.1:5", []string{"198.51.100.1, unknown, 10.2.2.2"}, "10.2.2.2"},
		"the first hop, if all are proxies":           {"10.0.0.1:5", []string{"10.3.3.3, 10.2.2.2"}, "10.3.3.3"},
		"an address with its port":                    {"10.0.0.1:5", []string{"198.51.100.1:4711"}, "198.51.100.1"},
		"an IPv6 address in brackets":                 {"10.0.0.1:5", []string{"[2001:db8::1]"}, "2001:db8::1"},
		"an IPv6 address with its port":               {"10.0.0.1:5", []string{"[2001:db8::1]:99"}, "2001:db8::1"},
		"an IPv4 address in the form of IPv6":         {"10.0.0.1:5", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		"a proxy whose address has the form of IPv6":  {"[::ffff:10.0.0.1]:5", []string{"198.51.100.1"}, "198.51.100.1"},
		"the proxy, if its header is empty":           {"10.0.0.1:5", []string{""}, "10.0.0.1"},
		"the proxy, if its header is a comma":         {"10.0.0.1:5", []string{","}, "10.0.0.1"},
		"a link-local address without its zone":       {"10.0.0.1:5", []string{"fe80::1%eth0"}, "fe80::1"},
	} {
		t.Run("is "+name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/nothing/"+strconv.Itoa(len(name)), nil)
			r.RemoteAddr = tt.peer
			r.Header["X-Forwarded-For"] = tt.forwarded
			w := httptest.NewRecorder()
			f.Server.ServeHTTP(w, r)
			if got := f.logged(t, w.Header().Get("X-Request-Id"))["client"]; got != tt.want {
				t.Errorf("client %q, want %q", got, tt.want)
			}
		})
	}
}

// logged returns the line of the log about a request.
func (f *testServer) logged(t *testing.T, id string) map[string]any {
	t.Helper()
	var found []map[string]any
	for line := range strings.Lines(f.Log.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		if entry["request_id"] == id {
			found = append(found, entry)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d lines about request %s, want 1", len(found), id)
	}
	return found[0]
}

func TestLog(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	key, credential := storagetest.Key(t, f.Store, owner, access.WebhooksRead)
	const canary = "canary-in-the-query"
	tests := []struct {
		name string
		call servertest.Call
		want map[string]any
	}{
		{"of a request that succeeds", servertest.NewCall("GET /api/v1/webhooks/subscriptions?limit=7", servertest.APIKey(credential), ""), map[string]any{
			"level": "INFO", "method": "GET", "route": "/api/v1/webhooks/subscriptions/", "status": 200.0,
			"user": owner.User.ID, "organization": owner.Organization.ID, "key": key.ID,
		}},
		{"of a request that is refused", servertest.NewCall("GET /api/v1/api-keys/?limit="+canary, servertest.APIKey(credential), ""), map[string]any{
			"level": "INFO", "method": "GET", "route": "/api/v1/api-keys/", "status": 403.0, "code": "permission_denied",
			"user": owner.User.ID, "organization": owner.Organization.ID, "key": key.ID,
		}},
		{"of a request without a route", servertest.NewCall("BREW /"+canary, "", ""), map[string]any{
			"level": "INFO", "method": "other", "route": "none", "status": 404.0, "code": "not_found",
		}},
		{"of a probe", servertest.NewCall("GET /healthz", "", ""), map[string]any{
			"level": "DEBUG", "method": "GET", "route": "/healthz/", "status": 200.0,
		}},
	}
	for _, tt := range tests {
		t.Run("has one line "+tt.name, func(t *testing.T) {
			got := f.Call(t, tt.call)
			entry := f.logged(t, got.Header.Get("X-Request-Id"))
			if size, _ := entry["bytes"].(float64); int(size) != len(got.Text) {
				t.Errorf("bytes %v, want %d", entry["bytes"], len(got.Text))
			}
			for _, always := range []string{"time", "msg", "duration_ms", "bytes", "request_id", "client"} {
				if _, ok := entry[always]; !ok {
					t.Errorf("no %s", always)
				}
				delete(entry, always)
			}
			if diff := cmp.Diff(tt.want, entry); diff != "" {
				t.Errorf("line (-want +got):\n%s", diff)
			}
		})
	}
	if text := f.Log.String(); strings.Contains(text, canary) || strings.Contains(text, credential.Reveal()) {
		t.Errorf("the log has a secret: %s", text)
	}
}

func TestThrottleRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t)
		const peer = "198.51.100.7:1000"
		f.exhaust(t, peer)
		wait := func() time.Duration {
			r, w := httptest.NewRequest(http.MethodGet, "/api/v1/whoami/", nil), httptest.NewRecorder()
			r.RemoteAddr = peer
			r.Header.Set("Authorization", servertest.APIKey(access.Mint("svc")))
			f.Server.ServeHTTP(w, r)
			seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
			if w.Code != 429 || err != nil {
				t.Fatalf("status %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
			}
			return time.Duration(seconds) * time.Second
		}
		if got := wait(); got != 3*time.Second {
			t.Errorf("at once: %s, want 3s", got)
		}
		time.Sleep(1700 * time.Millisecond)
		left := wait()
		if left != 2*time.Second {
			t.Errorf("after 1.7 s: %s, want 2s", left)
		}
		time.Sleep(left)
		if status, _ := f.from(peer, servertest.APIKey(access.Mint("svc"))); status != 401 {
			t.Errorf("status %d after the wait, want 401", status)
		}
	})
}

// TestThrottleOfSignIn guesses credentials of people, which stand in no header.
func TestThrottleOfSignIn(t *testing.T) {
	t.Parallel()
	t.Run("counts unknown sign-in links and unknown sessions", func(t *testing.T) {
		t.Parallel()
		f := build(t)
		for address, guess := range map[string]func() *http.Request{
			"198.51.100.8:1": func() *http.Request {
				r := httptest.NewRequest(http.MethodPost, sessionPath, strings.NewReader(`{"link":"`+access.Mint(access.LinkPrefix).Reveal()+`"}`))
				r.Header.Set("Content-Type", "application/json")
				return r
			},
			"198.51.100.9:1": func() *http.Request {
				r := httptest.NewRequest(http.MethodGet, sessionPath, nil)
				r.AddCookie(&http.Cookie{Name: "keyhook_session", Value: access.MintSession().Reveal()})
				return r
			},
		} {
			last := 0
			for range 30 {
				r := guess()
				r.RemoteAddr = address
				last = f.Handle(r).StatusCode
			}
			if last != http.StatusTooManyRequests {
				t.Errorf("%s: status %d after 30 guesses", address, last)
			}
		}
	})
}
