package server_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestRotation(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.store, "acme", "growth", access.RoleOwner)
	known := map[string]string{"as": bearer(token), "org": owner.Organization.ID, "user": owner.User.ID}
	_, other := storagetest.Organization(t, f.store, "other", "growth", access.RoleOwner)
	first, _ := storagetest.Key(t, f.store, owner, access.EventsRead, access.APIKeysWrite)
	known["first"] = first.ID
	const path = "/api/v1/api-keys/"
	f.run(t, known, []scenario{
		bad("refuses a grace of more than a week", "POST "+path+"{first}/rotate/", `{"grace_seconds":604801}`, 422, "validation_failed", `"field":"grace_seconds","code":"out_of_range"`),
		bad("refuses a grace below 0", "POST "+path+"{first}/rotate/", `{"grace_seconds":-1}`, 422, "validation_failed", `"field":"grace_seconds"`),
		bad("refuses half a second", "POST "+path+"{first}/rotate/", `{"grace_seconds":0.5}`, 422, "validation_failed", `"field":"grace_seconds","code":"wrong_type"`),
		bad("refuses a null", "POST "+path+"{first}/rotate/", `{"grace_seconds":null}`, 422, "validation_failed", `"field":"grace_seconds","code":"wrong_type"`),
		bad("has no other field", "POST "+path+"{first}/rotate/", `{"scope":"events:write"}`, 422, "validation_failed", `"field":"scope","code":"unknown_field"`),
		bad("is not served by GET", "GET "+path+"{first}/rotate/", "", 405, "method_not_allowed", "Allow: POST"),
		{"is not found for other organizations", call{"POST " + path + "{first}/rotate/", bearer(other), "", nil}, 404, "not_found", nil, nil},
		{"is not found for other organizations, even with an invalid body", call{"POST " + path + "{first}/rotate/", bearer(other), `{"x":1}`, nil}, 404, "not_found", nil, nil},
		ok("has not changed the key yet", "GET "+path+"{first}/", "", 200, `"status":"active"`, `"replaces":null`, `"rotated_to":null`),
		shows("responds with a new key, like a creation", "POST "+path+"{first}/rotate/", `{"grace_seconds":604800}`, 201,
			`"name":"test"`, `"scope":"api_keys:write events:read"`, `"scope_not_granted":""`, `"key":"svc_`, `"status":"active"`,
			`"organization_id":"{org}"`, `"created_by":"{user}","creator":{"name":"acme-owner","kind":"person"}`, `"expires_at":null`, `"replaces":"{first}"`, `"rotated_to":null`, "Location: "+path+"key_"),
		ok("names the new key in the old one", "GET "+path+"{first}/", "", 200, `"status":"active"`, `"rotated_to":"{last}"`),
		ok("lists both while both are valid", "GET "+path, "", 200, `"id":"{last}"`, `"id":"{first}"`),
		{"the new one works", call{"GET /api/v1/whoami/", "ApiKey {key}", "", nil}, 200, "", []string{`"id":"{last}"`}, nil},
		bad("is refused a second time", "POST "+path+"{first}/rotate/", "", 409, "already_rotated", "{last}"),
		shows("rotates the new key too, without a body", "POST "+path+"{last}/rotate", "", 201, `"replaces":"{last}"`),
		ok("is in the audit log", "GET /api/v1/audit-events/?type=api_key_rotated", "", 200,
			`"target":{"type":"api_key","id":"{first}"}`, `"grace_seconds":604800`, `"new_key_id":"{last}"`),
		ok("is one audit event, not a creation and a revocation", "GET /api/v1/audit-events/?type=api_key_revoked", "", 200, `"data":[]`),
		ok("revokes", "DELETE "+path+"{last}/", "", 204),
		bad("is refused to a revoked key", "POST "+path+"{last}/rotate/", "", 409, "key_not_active", "revoked"),
	})
	t.Run("needs a plan that includes API keys", func(t *testing.T) {
		key, _ := storagetest.Key(t, f.store, owner, access.EventsRead)
		f.move(t, owner.Organization.ID, "free")
		f.do(t, call{"POST " + path + key.ID + "/rotate/", bearer(token), "", nil}).want(t, 403, "plan_capability_required")
		f.move(t, owner.Organization.ID, "growth")
	})
	t.Run("needs the permission, with a key and with a token", func(t *testing.T) {
		key, raw := storagetest.Key(t, f.store, owner, access.APIKeysRead)
		f.do(t, call{"POST " + path + key.ID + "/rotate/", apiKey(raw), "", nil}).want(t, 403, "permission_denied")
	})
	t.Run("is sent to subscriptions to audit events", func(t *testing.T) {
		key, _ := storagetest.Key(t, f.store, owner, access.EventsRead)
		storagetest.Subscription(t, f.store, owner, "https://example.com/", "api_key_rotated")
		created := f.do(t, call{"POST " + path + key.ID + "/rotate/", bearer(token), "", nil}).want(t, 201, "")
		event := f.list(t, bearer(token), "/api/v1/events/?limit=1").Data[0]
		got := f.do(t, call{fmt.Sprintf("GET /api/v1/events/%s/", event["id"]), bearer(token), "", nil}).want(t, 200, "")
		for _, want := range []string{`"type":"api_key_rotated"`, key.ID, created.field("id"), `"state":"pending"`} {
			if !strings.Contains(got.body, want) {
				t.Errorf("no %s in %s", want, got.body)
			}
		}
		if strings.Contains(got.body, created.field("key")) {
			t.Error("the event shows the key")
		}
	})
}

// TestKeysRotateThemselves has a key rotate itself. The response arrives, although the request revokes the key.
func TestKeysRotateThemselves(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, _ := storagetest.Organization(t, f.store, "acme", "growth", access.RoleOwner)
	for grace, after := range map[string]int{`{"grace_seconds":0}`: 401, `{"grace_seconds":60}`: 200} {
		key, raw := storagetest.Key(t, f.store, owner, access.APIKeysWrite, access.EventsRead)
		var mu sync.Mutex
		var statuses []int
		var created testResponse
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				got := f.do(t, call{"POST /api/v1/api-keys/" + key.ID + "/rotate/", apiKey(raw), grace, nil})
				mu.Lock()
				defer mu.Unlock()
				statuses = append(statuses, got.StatusCode)
				if got.StatusCode == 201 {
					created = got
				}
			})
		}
		wg.Wait()
		slices.Sort(statuses)
		if statuses[0] != 201 || slices.Index(statuses, 201) != 0 || statuses[1] == 201 {
			t.Fatalf("%s: %v", grace, statuses)
		}
		f.do(t, call{"GET /api/v1/whoami/", apiKey(raw), "", nil}).want(t, after, "")
		f.do(t, call{"GET /api/v1/whoami/", "ApiKey " + created.field("key"), "", nil}).want(t, 200, "")
		if created.field("scope") != "api_keys:write events:read" {
			t.Errorf("scope %s", created.field("scope"))
		}
	}
}

// TestRotatedKeysShareTheirWindow uses a key and its two successors at once. All of them share the limit of one key.
func TestRotatedKeysShareTheirWindow(t *testing.T) {
	t.Parallel()
	f := start(t)
	const limit = 300
	f.plan(t, "small", true, true, fmt.Sprint(limit))
	owner, token := storagetest.Organization(t, f.store, "acme", "small", access.RoleOwner)
	key, raw := storagetest.Key(t, f.store, owner, access.EventsRead)
	keys := []string{raw.Reveal()}
	for id := key.ID; len(keys) < 3; {
		created := f.do(t, call{"POST /api/v1/api-keys/" + id + "/rotate/", bearer(token), `{"grace_seconds":3600}`, nil}).want(t, 201, "")
		id, keys = created.field("id"), append(keys, created.field("key"))
	}
	var passed, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for j := range (limit + 200) / 20 {
				switch got := f.do(t, call{"GET /api/v1/whoami/", "ApiKey " + keys[(i+j)%len(keys)], "", nil}); got.StatusCode {
				case 200:
					passed.Add(1)
				case 429:
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

// TestGrace reads, lists, verifies and uses a rotated key at the end of its grace period.
func TestGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t)
		const path = "/api/v1/api-keys/"
		begin := time.Now()
		stamp := func(d time.Duration) string { return begin.Add(d).UTC().Format("2006-01-02T15:04:05.000Z") }
		old := f.do(t, call{"POST " + path, operator, `{"name":"x","scope":"events:read","expires_at":"` + stamp(time.Hour) + `"}`, nil}).want(t, 201, "")
		created := f.do(t, call{"POST " + path + old.field("id") + "/rotate/", operator, `{"grace_seconds":90}`, nil}).want(t, 201, "")
		look := func(status, verdict string, code int) {
			t.Helper()
			f.do(t, call{"GET /api/v1/whoami/", "ApiKey " + old.field("key"), "", nil}).want(t, code, "")
			read := f.do(t, call{"GET " + path + old.field("id") + "/", operator, "", nil}).want(t, 200, "")
			if read.field("status") != status || read.field("expires_at") != stamp(90*time.Second) || read.field("rotated_to") != created.field("id") {
				t.Errorf("read %s", read.body)
			}
			listed := f.do(t, call{"GET " + path + "?status=" + status, operator, "", nil}).want(t, 200, "")
			if !strings.Contains(listed.body, `"id":"`+old.field("id")+`"`) {
				t.Errorf("not listed as %s: %s", status, listed.body)
			}
			verified := f.do(t, call{"POST /api/v1/auth/verify/", operator, `{"key":"` + old.field("key") + `"}`, nil}).want(t, 200, "")
			var v struct{ Code string }
			if err := json.Unmarshal([]byte(verified.body), &v); err != nil || v.Code != verdict {
				t.Errorf("verified %s, %v", verified.body, err)
			}
		}
		time.Sleep(90*time.Second - time.Millisecond)
		look("active", "valid", 200)
		time.Sleep(time.Millisecond)
		look("expired", "key_expired", 401)
		if created.field("expires_at") != stamp(time.Hour) {
			t.Errorf("the new key ends at %s", created.field("expires_at"))
		}
		f.do(t, call{"GET /api/v1/whoami/", "ApiKey " + created.field("key"), "", nil}).want(t, 200, "")
		f.do(t, call{"POST " + path + old.field("id") + "/rotate/", operator, "", nil}).want(t, 409, "already_rotated")
		time.Sleep(time.Hour - 90*time.Second)
		f.do(t, call{"GET /api/v1/whoami/", "ApiKey " + created.field("key"), "", nil}).want(t, 401, "key_expired")
		f.do(t, call{"POST " + path + created.field("id") + "/rotate/", operator, "", nil}).want(t, 409, "key_not_active")
	})
}
