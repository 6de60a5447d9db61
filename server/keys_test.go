package server_test

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	known := map[string]string{"as": servertest.Bearer(token), "org": owner.Organization.ID, "user": owner.User.ID}
	const path = "/api/v1/api-keys/"
	f.Run(t, known, []servertest.Scenario{
		servertest.Shows("are created, and shown once", "POST "+path, `{"name":"ci","scope":"webhooks:read api_keys:read webhooks:read"}`, 201,
			`"name":"ci"`, `"scope":"api_keys:read webhooks:read"`, `"scope_not_granted":""`, `"key":"svc_`, `"status":"active"`,
			`"organization_id":"{org}"`, `"created_by":"{user}"`, `"expires_at":null`, `"last_used_at":null`, `"revoked_at":null`,
			"Location: /api/v1/api-keys/key_"),
		servertest.OK("are read without the key", "GET "+path+"{last}/", "", 200, `"id":"{last}"`, `"key_prefix":"svc_`, `…"`),
		{Name: "work", Call: servertest.NewCall("GET /api/v1/whoami/", "ApiKey {key}", ""), Status: 200,
			Want: []string{`"id":"{user}"`, `"permissions":["api_keys:read","webhooks:read"]`, `"key":{"id":"{last}","name":"ci","scope":"api_keys:read webhooks:read","external_id":null}`,
				`"plan":{"name":"growth","api_keys":true,"webhooks":true,"api_rate_limit_per_minute":600,"max_subscriptions":100,"max_api_keys":50,"max_stored_bytes_per_day":10000000000}`}},
		servertest.OK("are listed", "GET "+path, "", 200, `{last}`, `"has_more":false`, `"next_cursor":null`),
		servertest.Bad("are not changed", "PATCH "+path+"{last}/", `{"scope":"events:read"}`, 405, "method_not_allowed", "Allow: DELETE, GET, HEAD"),
		servertest.Bad("are not replaced", "PUT "+path+"{last}/", `{}`, 405, "method_not_allowed"),
		servertest.OK("are revoked", "DELETE "+path+"{last}/", "", 204),
		{Name: "fail at once after that", Call: servertest.NewCall("GET /api/v1/whoami/", "ApiKey {key}", ""), Status: 401, Code: "key_revoked"},
		servertest.OK("are revoked again", "DELETE "+path+"{last}", "", 204),
		servertest.OK("have one audit event of their revocation", "GET /api/v1/audit-events/?type=api_key_revoked", "", 200, `"has_more":false`, `"target":{"type":"api_key","id":"{last}"}`),
		servertest.OK("are not listed any more", "GET "+path, "", 200, `"data":[]`),
		servertest.OK("are listed as revoked", "GET "+path+"?status=revoked", "", 200, `{last}`, `"status":"revoked"`),
		servertest.OK("are listed with all", "GET "+path+"?status=all", "", 200, `{last}`),
		servertest.OK("are not listed as expired", "GET "+path+"?status=expired", "", 200, `"data":[]`),
		servertest.OK("are read when revoked", "GET "+path+"{last}", "", 200, `"status":"revoked"`),
		servertest.Bad("are not listed by another status", "GET "+path+"?status=lost", "", 400, "invalid_parameter", "status"),
		servertest.Shows("do not get permissions that their creator does not have", "POST "+path, `{"name":"x","scope":"platform:read events:read platform:write"}`, 201,
			`"scope":"events:read"`, `"scope_not_granted":"platform:read platform:write"`),
		servertest.Bad("are not created without a permission", "POST "+path, `{"name":"x","scope":"platform:read platform:act_as"}`, 422, "scope_not_grantable", `"field":"scope"`),
		servertest.Bad("refuse an unknown permission", "POST "+path, `{"name":"x","scope":"events:read orders:read"}`, 422, "unknown_permission", `"field":"scope"`, "orders:read"),
		servertest.Bad("refuse a malformed permission", "POST "+path, `{"name":"x","scope":"events:read *"}`, 422, "unknown_permission", `"field":"scope"`),
		servertest.Bad("need a scope", "POST "+path, `{"name":"x","scope":"  "}`, 422, "validation_failed", `"field":"scope","code":"blank"`),
		servertest.Bad("need both fields", "POST "+path, `{}`, 422, "validation_failed", `"field":"name","code":"missing"`, `"field":"scope","code":"missing"`),
		servertest.Bad("do not expire in the past", "POST "+path, `{"name":"x","scope":"events:read","expires_at":"2020-01-01T00:00:00Z"}`, 422, "validation_failed", "in_the_past"),
		servertest.Bad("expire at a time", "POST "+path, `{"name":"x","scope":"events:read","expires_at":"tomorrow"}`, 422, "validation_failed", `"field":"expires_at","code":"invalid"`),
		servertest.Shows("may never expire", "POST "+path, `{"name":"x","scope":"events:read","expires_at":null}`, 201, `"expires_at":null`),
		servertest.Shows("may expire at a time of any time zone", "POST "+path, `{"name":"x","scope":"events:read","expires_at":"2100-01-01T01:00:00.5+01:00"}`, 201,
			`"expires_at":"2100-01-01T00:00:00.500Z"`),
		servertest.Bad("have a bounded scope", "POST "+path, `{"name":"x","scope":"`+strings.Repeat("a:b ", 20_000)+`"}`, 413, "too_large"),
		servertest.Bad("have a scope of existing permissions", "POST "+path, `{"name":"x","scope":"`+strings.Repeat("a:b ", 10_000)+`"}`, 422, "unknown_permission"),
	})
	t.Run("need a plan that includes them", func(t *testing.T) {
		f.Move(t, owner.Organization.ID, "free")
		f.Do(t, "POST "+path, servertest.Bearer(token), `{"name":"x","scope":"events:read"}`).Want(t, 403, "plan_capability_required")
	})
}

func TestKeyForm(t *testing.T) {
	t.Parallel()
	f := start(t, func(o *server.Options) { o.KeyPrefix, o.BaseURL = "acme", "https://example.com/hooks/" })
	got := f.Do(t, "POST /api/v1/api-keys/", servertest.Operator, `{"name":"x","scope":"events:read"}`).Want(t, 201, "")
	key := got.Field("key")
	if !regexp.MustCompile(`^acme_[0-9A-Za-z]{36}$`).MatchString(key) || got.Field("key_prefix") != key[:11]+"…" {
		t.Errorf("key %d characters, prefix %s", len(key), got.Field("key_prefix"))
	}
	if want := "/hooks/api/v1/api-keys/" + got.Field("id") + "/"; got.Header.Get("Location") != want {
		t.Errorf("Location %q, want %q", got.Header.Get("Location"), want)
	}
	f.Do(t, "GET /api/v1/whoami/", "ApiKey "+key, "").Want(t, 200, "")
	f.Do(t, "GET /api/v1/whoami/", "Bearer "+key, "").Want(t, 401, "wrong_scheme")
	for path, want := range map[string]string{
		"whoami/":                           `Send an API key as "Authorization: ApiKey acme_…" or an access token as "Authorization: Bearer kat_…".`,
		gate[len("/api/v1/"):] + "forward/": `Send an API key as "Authorization: ApiKey acme_…".`,
	} {
		if got := f.Do(t, "GET /api/v1/"+path, "", "").Want(t, 401, "missing_credential"); got.Field("detail") != want {
			t.Errorf("%s says %q", path, got.Field("detail"))
		}
	}
	owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, older := storagetest.Key(t, f.Store, owner, access.EventsRead) // with the old prefix
	f.Do(t, "GET /api/v1/whoami/", servertest.APIKey(older), "").Want(t, 200, "")
	f.Do(t, "GET /api/v1/whoami/", servertest.Bearer(older), "").Want(t, 401, "wrong_scheme")
}

func TestKeysMadeByKeys(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, parent := storagetest.Key(t, f.Store, owner, access.APIKeysWrite, access.EventsRead)
	got := f.Do(t, "POST /api/v1/api-keys/", servertest.APIKey(parent), `{"name":"x","scope":"api_keys:write events:read webhooks:read"}`).Want(t, 201, "")
	if got.Field("scope") != "api_keys:write events:read" || got.Field("scope_not_granted") != "webhooks:read" {
		t.Errorf("granted %q, not %q", got.Field("scope"), got.Field("scope_not_granted"))
	}
}

// TestOtherOrganizations asks for every resource of another organization, for unknown ids, and for malformed ids. The responses must
// not differ. An id of another type has a response of its own, which must not tell whether that id exists.
func TestOtherOrganizations(t *testing.T) {
	t.Parallel()
	f := start(t)
	victim, _ := storagetest.Organization(t, f.Store, "victim", "growth", access.RoleOwner)
	key, _ := storagetest.Key(t, f.Store, victim, access.EventsRead)
	sub, _ := storagetest.Subscription(t, f.Store, victim, "https://example.com/", "user.created")
	f.Attempted(t, victim, sub, 1)
	event := storagetest.Publish(t, f.Store, victim, "user.created")
	own, attacker := storagetest.Organization(t, f.Store, "attacker", "growth", access.RoleOwner)
	otherType := fmt.Sprint(f.List(t, servertest.Operator, "/api/v1/audit-events/").Data[0]["id"])
	const subs = "/api/v1/webhooks/subscriptions/"
	for line, tt := range map[string]struct{ theirs, body string }{
		"GET /api/v1/api-keys/{}/":           {key.ID, ""},
		"DELETE /api/v1/api-keys/{}/":        {key.ID, ""},
		"POST /api/v1/api-keys/{}/rotate/":   {key.ID, ""},
		"GET " + subs + "{}/":                {sub.ID, ""},
		"PATCH " + subs + "{}/":              {sub.ID, `{"is_active":false}`},
		"DELETE " + subs + "{}/":             {sub.ID, ""},
		"POST " + subs + "{}/rotate-secret/": {sub.ID, ""},
		"GET " + subs + "{}/deliveries/":     {sub.ID, ""},
		"GET /api/v1/events/{}/":             {event.ID, ""},
	} {
		t.Run("are not found by "+line, func(t *testing.T) {
			prefix, _, _ := strings.Cut(tt.theirs, "_")
			ask := func(id string) string {
				got := f.Do(t, strings.Replace(line, "{}", id, 1), servertest.Bearer(attacker), tt.body).Want(t, 404, "not_found")
				return strings.ReplaceAll(got.Text, got.Header.Get("X-Request-Id"), "")
			}
			ids := []string{
				prefix + "_01h455vb4pex5vsknk084sn02q", strings.ToUpper(tt.theirs), "%00", "..", "%2e%2e", "%ff%fe", "x", prefix + "_",
				prefix + "_81h455vb4pex5vsknk084sn02q", strings.Repeat("a", 3000), tt.theirs + "%20", "1%27%20OR%201=1",
			}
			foreign := ask(tt.theirs)
			for _, id := range ids {
				// The client cleans ".." before it asks.
				if diff := cmp.Diff(foreign, ask(id)); diff != "" && id != ".." {
					t.Errorf("%s can be distinguished (-foreign +this):\n%s", id, diff)
				}
			}
			otherForeign, unknown := ask(otherType), ask("aud_01h455vb4pex5vsknk084sn02q")
			if diff := cmp.Diff(otherForeign, unknown); diff != "" {
				t.Errorf("(-foreign +unknown):\n%s", diff)
			}
		})
	}
	t.Run("are not listed", func(t *testing.T) {
		for _, path := range []string{"/api/v1/api-keys/?status=all", subs, "/api/v1/events/", "/api/v1/audit-events/"} {
			for _, item := range f.List(t, servertest.Bearer(attacker), path).Data {
				if item["organization_id"] != own.Organization.ID {
					t.Errorf("%s shows %v", path, item)
				}
			}
		}
	})
	t.Run("are unchanged", func(t *testing.T) {
		after, err := f.Store.History.Subscription(t.Context(), victim.Organization.RowID, sub.ID)
		if err != nil || !after.Active() {
			t.Errorf("%+v %v", after, err)
		}
	})
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t)
		at := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		key := f.Do(t, "POST /api/v1/api-keys/", servertest.Operator, `{"name":"x","scope":"events:read","expires_at":"`+at+`"}`).Want(t, 201, "")
		path := "/api/v1/users/" + storagetest.Operator(t, f.Store).User.ID + "/access-tokens/"
		token := f.Do(t, "POST "+path, servertest.Operator, `{"organization_id":"`+key.Field("organization_id")+`","expires_at":"`+at+`"}`).Want(t, 201, "")
		asKey, asToken := servertest.NewCall("GET /api/v1/whoami/", "ApiKey "+key.Field("key"), ""), servertest.NewCall("GET /api/v1/whoami/", "Bearer "+token.Field("token"), "")

		time.Sleep(time.Hour - time.Millisecond)
		f.Call(t, asKey).Want(t, 200, "")
		f.Call(t, asToken).Want(t, 200, "")
		time.Sleep(time.Millisecond)
		f.Call(t, asKey).Want(t, 401, "key_expired")
		f.Call(t, asToken).Want(t, 401, "token_expired")
		for path, id := range map[string]string{"/api/v1/api-keys/": key.Field("id"), path: token.Field("id")} {
			if got := f.Do(t, "GET "+path+id, servertest.Operator, "").Field("status"); got != "expired" {
				t.Errorf("%s: status %s", path, got)
			}
		}
	})
}

// TestUnusedKeys lists keys by their last use, or by their creation if they were never used.
func TestUnusedKeys(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	as, begin := servertest.Bearer(token), time.Now()
	key, _ := storagetest.Key(t, f.Store, owner, access.EventsRead)
	time.Sleep(time.Until(begin.Add(50 * time.Millisecond)))
	prefix := "&prefix=" + url.QueryEscape(key.KeyPrefix)
	for query, want := range map[string]int{
		"": 1, "?unused_for=1ms": 1, "?unused_for=1h": 0, "?unused_for=2160h&status=all": 0, "?unused_for=87600h": 0,
		"?unused_for=1ms" + prefix: 1, "?unused_for=1h" + prefix: 0, "?unused_for=1ms&status=revoked" + prefix: 0,
	} {
		if got := len(f.List(t, as, "/api/v1/api-keys/"+query).Data); got != want {
			t.Errorf("%s: %d keys, want %d", query, got, want)
		}
	}
	storagetest.Exec(t, f.Store, "UPDATE api_keys SET created_at = created_at - 1800000")
	for query, want := range map[string]int{"?unused_for=29m": 1, "?unused_for=31m": 0} {
		if got := len(f.List(t, as, "/api/v1/api-keys/"+query).Data); got != want {
			t.Errorf("half an hour after the creation, %s: %d keys, want %d", query, got, want)
		}
	}
	for _, wrong := range []string{"90d", "0s", "-1h", "x", "87600h0m1s", "1000000h", ""} {
		f.Do(t, "GET /api/v1/api-keys/?unused_for="+wrong, as, "").Want(t, 400, "invalid_parameter")
	}
}

// TestAKeyIsRotatedAndRevokedAtOnce revokes a key by its external id while a rotation moves the external id to another key.
func TestAKeyIsRotatedAndRevokedAtOnce(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	as := servertest.Bearer(token)
	const path = "/api/v1/api-keys/"
	f.Do(t, "POST "+path, as, `{"name":"a","scope":"api_keys:read","external_id":"backend"}`).Want(t, 201, "")
	gate, waits := make(chan struct{}), make(chan struct{})
	var calls sync.WaitGroup
	calls.Go(func() {
		err := f.Store.File.Write(context.Background(), sqlite.Work{Payer: owner.Organization.RowID}, func(*sqlite.Tx) error { close(waits); <-gate; return nil })
		if err != nil {
			t.Error(err)
		}
	})
	<-waits
	var rotated, revoked servertest.Response
	calls.Go(func() { rotated = f.Do(t, "POST "+path+"backend/rotate/", as, "") })
	<-time.After(200 * time.Millisecond) // the rotation waits for the writer, and the revocation behind it
	calls.Go(func() { revoked = f.Do(t, "DELETE "+path+"backend/", as, "") })
	<-time.After(200 * time.Millisecond)
	close(gate)
	calls.Wait()
	revoked.Want(t, 204, "")
	if rotated.StatusCode == 201 {
		f.Do(t, "GET /api/v1/whoami/", "ApiKey "+rotated.Field("key"), "").Want(t, 401, "key_revoked")
	}
}
