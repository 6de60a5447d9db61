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

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestRotation(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	known := map[string]string{"as": servertest.Bearer(token), "org": owner.Organization.ID, "user": owner.User.ID}
	_, other := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	first, _ := storagetest.Key(t, f.Store, owner, access.EventsRead, access.APIKeysWrite)
	known["first"] = first.ID
	const path = "/api/v1/api-keys/"
	f.Run(t, known, []servertest.Scenario{
		servertest.Bad("refuses a grace of more than a week", "POST "+path+"{first}/rotate/", `{"grace_seconds":604801}`, 422, "validation_failed", `"field":"grace_seconds","code":"out_of_range"`),
		servertest.Bad("refuses a grace below 0", "POST "+path+"{first}/rotate/", `{"grace_seconds":-1}`, 422, "validation_failed", `"field":"grace_seconds"`),
		servertest.Bad("refuses half a second", "POST "+path+"{first}/rotate/", `{"grace_seconds":0.5}`, 422, "validation_failed", `"field":"grace_seconds","code":"wrong_type"`),
		servertest.Bad("refuses a null", "POST "+path+"{first}/rotate/", `{"grace_seconds":null}`, 422, "validation_failed", `"field":"grace_seconds","code":"wrong_type"`),
		servertest.Bad("has no other field", "POST "+path+"{first}/rotate/", `{"scope":"events:write"}`, 422, "validation_failed", `"field":"scope","code":"unknown_field"`),
		servertest.Bad("is not served by GET", "GET "+path+"{first}/rotate/", "", 405, "method_not_allowed", "Allow: POST"),
		{Name: "is not found for other organizations", Call: servertest.NewCall("POST "+path+"{first}/rotate/", servertest.Bearer(other), ""), Status: 404, Code: "not_found"},
		{Name: "is not found for other organizations, even with an invalid body", Call: servertest.NewCall("POST "+path+"{first}/rotate/", servertest.Bearer(other), `{"x":1}`), Status: 404, Code: "not_found"},
		servertest.OK("has not changed the key yet", "GET "+path+"{first}/", "", 200, `"status":"active"`, `"replaces":null`, `"rotated_to":null`),
		servertest.Shows("responds with a new key, like a creation", "POST "+path+"{first}/rotate/", `{"grace_seconds":604800}`, 201,
			`"name":"test"`, `"scope":"api_keys:write events:read"`, `"scope_not_granted":""`, `"key":"svc_`, `"status":"active"`,
			`"organization_id":"{org}"`, `"created_by":"{user}","creator":{"name":"acme-owner","kind":"person"}`, `"expires_at":null`, `"replaces":"{first}"`, `"rotated_to":null`, "Location: "+path+"key_"),
		servertest.OK("names the new key in the old one", "GET "+path+"{first}/", "", 200, `"status":"active"`, `"rotated_to":"{last}"`),
		servertest.OK("lists both while both are valid", "GET "+path, "", 200, `"id":"{last}"`, `"id":"{first}"`),
		{Name: "the new one works", Call: servertest.NewCall("GET /api/v1/whoami/", "ApiKey {key}", ""), Status: 200, Want: []string{`"id":"{last}"`}},
		servertest.Bad("is refused a second time", "POST "+path+"{first}/rotate/", "", 409, "already_rotated", "{last}"),
		servertest.Shows("rotates the new key too, without a body", "POST "+path+"{last}/rotate", "", 201, `"replaces":"{last}"`),
		servertest.OK("is in the audit log", "GET /api/v1/audit-events/?type=api_key_rotated", "", 200,
			`"target":{"type":"api_key","id":"{first}"}`, `"grace_seconds":604800`, `"new_key_id":"{last}"`),
		servertest.OK("is one audit event, not a creation and a revocation", "GET /api/v1/audit-events/?type=api_key_revoked", "", 200, `"data":[]`),
		servertest.OK("revokes", "DELETE "+path+"{last}/", "", 204),
		servertest.Bad("is refused to a revoked key", "POST "+path+"{last}/rotate/", "", 409, "key_not_active", "revoked"),
	})
	t.Run("needs a plan that includes API keys", func(t *testing.T) {
		key, _ := storagetest.Key(t, f.Store, owner, access.EventsRead)
		f.Move(t, owner.Organization.ID, "free")
		f.Do(t, "POST "+path+key.ID+"/rotate/", servertest.Bearer(token), "").Want(t, 403, "plan_capability_required")
		f.Move(t, owner.Organization.ID, "growth")
	})
	t.Run("needs the permission, with a key and with a token", func(t *testing.T) {
		key, raw := storagetest.Key(t, f.Store, owner, access.APIKeysRead)
		f.Do(t, "POST "+path+key.ID+"/rotate/", servertest.APIKey(raw), "").Want(t, 403, "permission_denied")
	})
	t.Run("is sent to subscriptions to audit events", func(t *testing.T) {
		key, _ := storagetest.Key(t, f.Store, owner, access.EventsRead)
		storagetest.Subscription(t, f.Store, owner, "https://example.com/", "api_key_rotated")
		created := f.Do(t, "POST "+path+key.ID+"/rotate/", servertest.Bearer(token), "").Want(t, 201, "")
		event := f.List(t, servertest.Bearer(token), "/api/v1/events/?limit=1").Data[0]
		got := f.Do(t, fmt.Sprintf("GET /api/v1/events/%s/", event["id"]), servertest.Bearer(token), "").Want(t, 200, "")
		for _, want := range []string{`"type":"api_key_rotated"`, key.ID, created.Field("id"), `"state":"pending"`} {
			if !strings.Contains(got.Text, want) {
				t.Errorf("no %s in %s", want, got.Text)
			}
		}
		if strings.Contains(got.Text, created.Field("key")) {
			t.Error("the event shows the key")
		}
	})
}

// TestKeysRotateThemselves has a key rotate itself. The response arrives, although the request revokes the key.
func TestKeysRotateThemselves(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	for grace, after := range map[string]int{`{"grace_seconds":0}`: 401, `{"grace_seconds":60}`: 200} {
		key, raw := storagetest.Key(t, f.Store, owner, access.APIKeysWrite, access.EventsRead)
		var mu sync.Mutex
		var statuses []int
		var created servertest.Response
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				got := f.Do(t, "POST /api/v1/api-keys/"+key.ID+"/rotate/", servertest.APIKey(raw), grace)
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
		f.Do(t, "GET /api/v1/whoami/", servertest.APIKey(raw), "").Want(t, after, "")
		f.Do(t, "GET /api/v1/whoami/", "ApiKey "+created.Field("key"), "").Want(t, 200, "")
		if created.Field("scope") != "api_keys:write events:read" {
			t.Errorf("scope %s", created.Field("scope"))
		}
	}
}

// TestRotatedKeysShareTheirWindow uses a key and its two successors at once. All of them share the limit of one key.
func TestRotatedKeysShareTheirWindow(t *testing.T) {
	t.Parallel()
	f := start(t)
	const limit = 300
	f.Plan(t, "small", true, true, fmt.Sprint(limit))
	owner, token := storagetest.Organization(t, f.Store, "acme", "small", access.RoleOwner)
	key, raw := storagetest.Key(t, f.Store, owner, access.EventsRead)
	keys := []string{raw.Reveal()}
	for id := key.ID; len(keys) < 3; {
		created := f.Do(t, "POST /api/v1/api-keys/"+id+"/rotate/", servertest.Bearer(token), `{"grace_seconds":3600}`).Want(t, 201, "")
		id, keys = created.Field("id"), append(keys, created.Field("key"))
	}
	var passed, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for j := range (limit + 200) / 20 {
				switch got := f.Do(t, "GET /api/v1/whoami/", "ApiKey "+keys[(i+j)%len(keys)], ""); got.StatusCode {
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
		old := f.Do(t, "POST "+path, servertest.Operator, `{"name":"x","scope":"events:read","expires_at":"`+stamp(time.Hour)+`"}`).Want(t, 201, "")
		created := f.Do(t, "POST "+path+old.Field("id")+"/rotate/", servertest.Operator, `{"grace_seconds":90}`).Want(t, 201, "")
		look := func(status, verdict string, code int) {
			t.Helper()
			f.Do(t, "GET /api/v1/whoami/", "ApiKey "+old.Field("key"), "").Want(t, code, "")
			read := f.Do(t, "GET "+path+old.Field("id")+"/", servertest.Operator, "").Want(t, 200, "")
			if read.Field("status") != status || read.Field("expires_at") != stamp(90*time.Second) || read.Field("rotated_to") != created.Field("id") {
				t.Errorf("read %s", read.Text)
			}
			listed := f.Do(t, "GET "+path+"?status="+status, servertest.Operator, "").Want(t, 200, "")
			if !strings.Contains(listed.Text, `"id":"`+old.Field("id")+`"`) {
				t.Errorf("not listed as %s: %s", status, listed.Text)
			}
			verified := f.Do(t, "POST /api/v1/auth/verify/", servertest.Operator, `{"key":"`+old.Field("key")+`"}`).Want(t, 200, "")
			var v struct{ Code string }
			if err := json.Unmarshal([]byte(verified.Text), &v); err != nil || v.Code != verdict {
				t.Errorf("verified %s, %v", verified.Text, err)
			}
		}
		time.Sleep(90*time.Second - time.Millisecond)
		look("active", "valid", 200)
		time.Sleep(time.Millisecond)
		look("expired", "key_expired", 401)
		if created.Field("expires_at") != stamp(time.Hour) {
			t.Errorf("the new key ends at %s", created.Field("expires_at"))
		}
		f.Do(t, "GET /api/v1/whoami/", "ApiKey "+created.Field("key"), "").Want(t, 200, "")
		f.Do(t, "POST "+path+old.Field("id")+"/rotate/", servertest.Operator, "").Want(t, 409, "already_rotated")
		time.Sleep(time.Hour - 90*time.Second)
		f.Do(t, "GET /api/v1/whoami/", "ApiKey "+created.Field("key"), "").Want(t, 401, "key_expired")
		f.Do(t, "POST "+path+created.Field("id")+"/rotate/", servertest.Operator, "").Want(t, 409, "key_not_active")
	})
}
