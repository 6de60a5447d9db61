package server_test

import (
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestPlans(t *testing.T) {
	t.Parallel()
	f := start(t)
	const path = "/api/v1/plans/"
	f.Run(t, map[string]string{"as": servertest.Operator}, []servertest.Scenario{
		servertest.OK("exist from the start", "GET "+path, "", 200,
			`{"name":"free","api_keys":false,"webhooks":false,"api_rate_limit_per_minute":60,"max_subscriptions":0,"max_api_keys":0,"max_stored_bytes_per_day":100000000}`,
			`{"name":"growth","api_keys":true,"webhooks":true,"api_rate_limit_per_minute":600,"max_subscriptions":100,"max_api_keys":50,"max_stored_bytes_per_day":10000000000}`,
			`{"name":"business","api_keys":true,"webhooks":true,"api_rate_limit_per_minute":3000,"max_subscriptions":500,"max_api_keys":250,"max_stored_bytes_per_day":50000000000}`,
			`{"name":"enterprise","api_keys":true,"webhooks":true,"api_rate_limit_per_minute":null,"max_subscriptions":null,"max_api_keys":null,"max_stored_bytes_per_day":null}`),
		servertest.OK("are read by name", "GET "+path+"growth", "", 200, `"name":"growth"`),
		servertest.OK("are created", "POST "+path, `{"name":"gold_1-a","api_keys":true,"webhooks":false,"api_rate_limit_per_minute":10}`, 201,
			`{"name":"gold_1-a","api_keys":true,"webhooks":false,"api_rate_limit_per_minute":10,"max_subscriptions":null,"max_api_keys":null,"max_stored_bytes_per_day":null}`, "Location: /api/v1/plans/gold_1-a/"),
		servertest.OK("have no capability unless it is requested", "POST "+path, `{"name":"bare","api_rate_limit_per_minute":0}`, 201, `"api_keys":false,"webhooks":false,"api_rate_limit_per_minute":0`),
		servertest.Bad("are never unlimited by omission", "POST "+path, `{"name":"oops"}`, 422, "validation_failed", `"field":"api_rate_limit_per_minute","code":"missing"`),
		servertest.Bad("have a unique name", "POST "+path, `{"name":"growth","api_rate_limit_per_minute":1}`, 409, "already_exists"),
		servertest.Bad("have a name that fits in a path", "POST "+path, `{"name":"Gold Plan","api_rate_limit_per_minute":1}`, 422, "validation_failed", `"field":"name","code":"invalid"`),
		servertest.Bad("have no negative limit", "POST "+path, `{"name":"x","api_rate_limit_per_minute":-1}`, 422, "validation_failed", `"code":"out_of_range"`),
		servertest.Bad("have no rate limit above the maximum", "PATCH "+path+"growth/", `{"api_rate_limit_per_minute":99999999999999999999}`, 422, "validation_failed", `"code":"out_of_range"`),
		servertest.Bad("have a whole limit", "PATCH "+path+"growth/", `{"api_rate_limit_per_minute":1e3}`, 422, "validation_failed", `"code":"wrong_type"`),
		servertest.OK("are changed", "PATCH "+path+"growth/", `{"api_rate_limit_per_minute":1200}`, 200,
			`{"name":"growth","api_keys":true,"webhooks":true,"api_rate_limit_per_minute":1200,"max_subscriptions":100,"max_api_keys":50,"max_stored_bytes_per_day":10000000000}`),
		servertest.OK("are created with limits", "POST "+path, `{"name":"small","api_rate_limit_per_minute":1,"max_subscriptions":3,"max_api_keys":4,"max_stored_bytes_per_day":5}`, 201, `"max_subscriptions":3,"max_api_keys":4,"max_stored_bytes_per_day":5}`),
		servertest.OK("have their limits changed one by one", "PATCH "+path+"small/", `{"max_subscriptions":5}`, 200, `"max_subscriptions":5,"max_api_keys":4,"max_stored_bytes_per_day":5}`),
		servertest.OK("get the built-in limits by null", "PATCH "+path+"small/", `{"max_subscriptions":null,"max_api_keys":null,"max_stored_bytes_per_day":null}`, 200, `"max_subscriptions":null,"max_api_keys":null,"max_stored_bytes_per_day":null}`),
		servertest.Bad("have no limits above the built-in ones", "PATCH "+path+"small/", `{"max_subscriptions":5001,"max_api_keys":10001}`, 422, "validation_failed",
			`"field":"max_subscriptions","code":"out_of_range"`, `"field":"max_api_keys","code":"out_of_range"`),
		servertest.OK("become unlimited only by null", "PATCH "+path+"growth/", `{"api_rate_limit_per_minute":null}`, 200, `"api_rate_limit_per_minute":null`),
		servertest.OK("keep fields that a change does not name", "PATCH "+path+"growth/", `{"webhooks":false}`, 200, `"api_keys":true,"webhooks":false,"api_rate_limit_per_minute":null`),
		servertest.Bad("are not renamed", "PATCH "+path+"growth/", `{"name":"grown"}`, 422, "validation_failed", `"field":"name","code":"unknown_field"`),
		servertest.OK("are deleted if no organization has them", "DELETE "+path+"gold_1-a/", "", 204),
		servertest.Bad("are not found after that", "GET "+path+"gold_1-a/", "", 404, "not_found"),
		servertest.Bad("are not deleted while an organization has them", "DELETE "+path+"enterprise/", "", 409, "in_use"),
		servertest.Bad("are not found by a malformed name", "PATCH "+path+"Gold%20Plan/", `{}`, 404, "not_found"),
		servertest.Bad("are not found without a name", "GET "+path+"/", "", 404, "not_found"),
	})
}

func TestPermissionsAndRoles(t *testing.T) {
	t.Parallel()
	f := start(t)
	const permissions, roles = "/api/v1/permissions/", "/api/v1/roles/"
	f.Run(t, map[string]string{"as": servertest.Operator}, []servertest.Scenario{
		servertest.OK("built-in permissions exist from the start", "GET "+permissions, "", 200, `"key":"platform:act_as"`, `"key":"api_keys:read"`, `"built_in":true`),
		servertest.OK("permissions are created", "POST "+permissions, `{"key":"orders:line_items:read","description":"Read orders"}`, 201,
			`{"key":"orders:line_items:read","description":"Read orders","built_in":false,"internal":false,"roles":["operator","owner","customer","member"]}`, "Location: /api/v1/permissions/orders:line_items:read/"),
		servertest.OK("permissions of your own staff are created", "POST "+permissions, `{"key":"refunds:read","internal":true}`, 201, `"internal":true,"roles":["operator"]`),
		servertest.Bad("permissions are internal or not", "POST "+permissions, `{"key":"a:b","internal":"yes"}`, 422, "validation_failed", `"field":"internal","code":"wrong_type"`),
		servertest.Bad("permissions stay internal", "PATCH "+permissions+"refunds:read/", `{"description":"","internal":false}`, 422, "validation_failed", `"field":"internal","code":"unknown_field"`),
		servertest.OK("permissions show their roles in the list", "GET "+permissions, "", 200, `"key":"refunds:read","description":"","built_in":false,"internal":true,"roles":["operator"]`),
		servertest.Bad("permissions are created once", "POST "+permissions, `{"key":"orders:line_items:read"}`, 409, "already_exists"),
		servertest.Bad("permissions are words with colons", "POST "+permissions, `{"key":"orders"}`, 422, "validation_failed", `"field":"key","code":"invalid"`),
		servertest.Bad("permissions have a bounded key", "POST "+permissions, `{"key":"orders:`+strings.Repeat("a", 100)+`"}`, 422, "validation_failed", `"field":"key","code":"too_long"`),
		servertest.OK("permissions are read", "GET "+permissions+"orders:line_items:read", "", 200, `"key":"orders:line_items:read","description":"Read orders"`),
		servertest.OK("permissions are described", "PATCH "+permissions+"orders:line_items:read/", `{"description":"All of them"}`, 200, `"description":"All of them"`),
		servertest.Bad("permissions have nothing else to change", "PATCH "+permissions+"orders:line_items:read/", `{"key":"x:y"}`, 422, "validation_failed", "unknown_field", `"field":"description","code":"missing"`),
		servertest.Bad("built-in permissions are not deleted", "DELETE "+permissions+"audit:read/", "", 409, "built_in"),
		servertest.OK("built-in roles exist from the start", "GET "+roles, "", 200, `{"name":"operator","permissions":["api_keys:read",`, `"name":"owner"`,
			`{"name":"member","permissions":["api_keys:read","audit:read","events:read","orders:line_items:read","webhooks:read"],"built_in":true}`),
		servertest.OK("roles are created", "POST "+roles, `{"name":"clerk","permissions":["orders:line_items:read","events:read","events:read"]}`, 201,
			`{"name":"clerk","permissions":["events:read","orders:line_items:read"],"built_in":false}`, "Location: /api/v1/roles/clerk/"),
		servertest.Bad("roles are created once", "POST "+roles, `{"name":"clerk","permissions":[]}`, 409, "already_exists"),
		servertest.Bad("roles grant only permissions that exist", "POST "+roles, `{"name":"x","permissions":["orders:write"]}`, 422, "unknown_permission", `"field":"permissions`),
		servertest.Bad("roles grant permissions", "POST "+roles, `{"name":"x","permissions":["events:read","*"]}`, 422, "unknown_permission", `"field":"permissions.1"`),
		servertest.OK("roles are changed", "PATCH "+roles+"clerk/", `{"permissions":[]}`, 200, `"permissions":[]`),
		servertest.OK("roles are read", "GET "+roles+"clerk", "", 200, `{"name":"clerk","permissions":[],"built_in":false}`),
		servertest.Bad("built-in roles are not changed", "PATCH "+roles+"member/", `{"permissions":[]}`, 409, "built_in"),
		servertest.Bad("built-in roles are not deleted", "DELETE "+roles+"operator/", "", 409, "built_in"),
		servertest.OK("roles are deleted if nobody has them", "DELETE "+roles+"clerk/", "", 204),
		servertest.Bad("roles are not found after that", "GET "+roles+"clerk/", "", 404, "not_found"),
		servertest.OK("permissions are deleted if nothing grants them", "DELETE "+permissions+"orders:line_items:read/", "", 204),
		servertest.Bad("permissions are not found by a malformed key", "GET "+permissions+"orders/", "", 404, "not_found"),
	})
}

func TestOrganizationsAndUsers(t *testing.T) {
	t.Parallel()
	f := start(t)
	const orgs, users = "/api/v1/organizations/", "/api/v1/users/"
	known := map[string]string{"as": servertest.Operator, "default": storagetest.Operator(t, f.Store).Organization.ID}
	keep := func(name string) func(*testing.T) { return func(*testing.T) { known[name] = known["last"] } }
	f.Run(t, known, []servertest.Scenario{
		servertest.OK("organizations are created", "POST "+orgs, `{"name":" Acme ","plan":"growth","external_id":"ext-1"}`, 201, `"name":"Acme","plan":"growth","external_id":"ext-1"`, "Location: /api/v1/organizations/org_"),
	})
	t.Run("the organization is kept", keep("org"))
	f.Run(t, known, []servertest.Scenario{
		servertest.OK("organizations are read", "GET "+orgs+"{org}/", "", 200, `{"id":"{org}","name":"Acme","plan":"growth","external_id":"ext-1","closed_at":null}`),
		servertest.OK("organizations are moved and renamed", "PATCH "+orgs+"{org}/", `{"plan":"free","name":"ACME","external_id":null}`, 200, `"name":"ACME","plan":"free","external_id":null`),
		servertest.Bad("organizations have an existing plan", "PATCH "+orgs+"{org}/", `{"plan":"gold"}`, 422, "", `"field":"plan","code":"unknown_plan"`),
		servertest.Bad("organizations need a plan", "POST "+orgs, `{"name":"x"}`, 422, "", `"field":"plan","code":"missing"`),
		servertest.Bad("organizations have an external id or none", "PATCH "+orgs+"{org}/", `{"external_id":""}`, 422, "", `"field":"external_id","code":"invalid"`),
		servertest.OK("organizations take a free external id", "POST "+orgs, `{"name":"Other","plan":"free","external_id":"ext-1"}`, 201),
		servertest.Bad("organizations have a unique external id", "PATCH "+orgs+"{org}/", `{"external_id":"ext-1"}`, 409, "already_exists"),
		servertest.OK("empty organizations are deleted", "DELETE "+orgs+"{last}/", "", 204),
		servertest.Bad("organizations are not found after that", "GET "+orgs+"{last}/", "", 404, "not_found"),

		servertest.OK("users are created", "POST "+users, `{"email":"ada@example.com","name":"Ada","external_id":"sub-1"}`, 201, `"email":"ada@example.com","name":"Ada","external_id":"sub-1","is_active":true`, "Location: /api/v1/users/usr_"),
	})
	t.Run("the user is kept", keep("user"))
	f.Run(t, known, []servertest.Scenario{
		servertest.OK("users may be inactive from the beginning", "POST "+users, `{"email":"off@example.com","is_active":false}`, 201, `"is_active":false`),
		servertest.OK("(and are read so)", "GET "+users+"{last}/", "", 200, `"is_active":false`),
		servertest.OK("users without a name get their e-mail address as the name", "POST "+users, `{"email":"bob@example.com"}`, 201, `"name":"bob@example.com"`),
		servertest.Bad("users have a unique e-mail address", "POST "+users, `{"email":"ADA@example.com","name":"x"}`, 409, "already_exists"),
		servertest.Bad("users have an e-mail address", "POST "+users, `{"email":"Ada <ada@example.com>","name":"x"}`, 422, "", `"field":"email","code":"invalid"`),
		servertest.OK("users without anything are deleted", "DELETE "+users+"{last}/", "", 204),
		servertest.OK("users are changed", "PATCH "+users+"{user}/", `{"name":"Ada L.","is_active":false}`, 200, `"name":"Ada L.","external_id":"sub-1","is_active":false`),
		servertest.OK("users are read", "GET "+users+"{user}", "", 200, `"is_active":false`),
		servertest.OK("users can be activated again", "PATCH "+users+"{user}/", `{"is_active":true}`, 200, `"is_active":true`),

		servertest.Bad("tokens are for members", "POST "+users+"{user}/access-tokens/", `{"organization_id":"{org}"}`, 409, "not_a_member", "PUT /api/v1/organizations/"),
		servertest.OK("members are set", "PUT "+orgs+"{org}/members/{user}/", `{"role":"member"}`, 200, `{"user_id":"{user}","email":"ada@example.com","name":"Ada L.","role":"member","kind":"person"}`),
		servertest.OK("members are set again", "PUT "+orgs+"{org}/members/{user}", `{"role":"owner"}`, 200, `"role":"owner"`),
		servertest.Bad("members have a role that exists", "PUT "+orgs+"{org}/members/{user}/", `{"role":"king"}`, 422, "", `"field":"role","code":"unknown_role"`),
		servertest.Bad("members are existing users", "PUT "+orgs+"{org}/members/usr_01h455vb4pex5vsknk084sn02q/", `{"role":"owner"}`, 404, "not_found"),
		servertest.Bad("members belong to an existing organization", "PUT "+orgs+"org_01h455vb4pex5vsknk084sn02q/members/{user}/", `{"role":"owner"}`, 404, "not_found"),
		servertest.OK("members are listed", "GET "+orgs+"{org}/members/", "", 200, `"user_id":"{user}"`),
		servertest.Bad("organizations with members are not deleted", "DELETE "+orgs+"{org}/", "", 409, "in_use", "it has members", "; close it instead."),
		servertest.Bad("users with memberships are not deleted", "DELETE "+users+"{user}/", "", 409, "in_use"),

		servertest.Shows("tokens are created, and shown once", "POST "+users+"{user}/access-tokens/", `{"organization_id":"{org}","name":"laptop"}`, 201,
			`"name":"laptop"`, `"token_prefix":"kat_`, `"status":"active"`, `"user_id":"{user}"`, `"organization_id":"{org}"`, `"token":"kat_`, "Location: /api/v1/users/{user}/access-tokens/tok_"),
		servertest.OK("tokens are read without the token", "GET "+users+"{user}/access-tokens/{last}/", "", 200, `"id":"{last}"`),
		servertest.OK("tokens are listed", "GET "+users+"{user}/access-tokens/", "", 200, `"id":"{last}"`),
		{Name: "tokens work", Call: servertest.NewCall("GET /api/v1/whoami/", "Bearer {token}", ""), Status: 200, Want: []string{`"key":null`, `"email":"ada@example.com"`, `"organization":{"id":"{org}","name":"ACME","external_id":null}`}},
		servertest.Bad("tokens of another user are not found", "GET "+users+"usr_01h455vb4pex5vsknk084sn02q/access-tokens/{last}/", "", 404, "not_found"),
		servertest.Bad("tokens are for organizations that exist", "POST "+users+"{user}/access-tokens/", `{"organization_id":"org_01h455vb4pex5vsknk084sn02q"}`, 422, "", `"field":"organization_id","code":"unknown_organization","message":"There is no such organization; list them with GET /api/v1/organizations/."`),
		servertest.Bad("tokens are for organizations", "POST "+users+"{user}/access-tokens/", `{"organization_id":"x"}`, 422, "", `"field":"organization_id","code":"unknown_organization","message":"There is no such organization; list them with GET /api/v1/organizations/."`),
		servertest.OK("tokens are revoked", "DELETE "+users+"{user}/access-tokens/{last}/", "", 204),
		{Name: "revoked tokens fail at once", Call: servertest.NewCall("GET /api/v1/whoami/", "Bearer {token}", ""), Status: 401, Code: "token_revoked"},
		servertest.OK("tokens are revoked again", "DELETE "+users+"{user}/access-tokens/{last}", "", 204),

		servertest.Shows("tokens of members are created", "POST "+users+"{user}/access-tokens/", `{"organization_id":"{org}"}`, 201),
		servertest.OK("members are removed", "DELETE "+orgs+"{org}/members/{user}/", "", 204),
		{Name: "tokens of former members fail at once", Call: servertest.NewCall("GET /api/v1/whoami/", "Bearer {token}", ""), Status: 401, Code: "user_inactive"},
		servertest.Bad("members are not found after that", "DELETE "+orgs+"{org}/members/{user}/", "", 404, "not_found"),
	})
}

func TestAudit(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	as := servertest.Bearer(token)
	created := f.Do(t, "POST /api/v1/api-keys/", as, `{"name":"ci","scope":"events:read"}`).Want(t, 201, "")
	event := f.List(t, as, "/api/v1/audit-events/?type=api_key_created").Data[0]
	for _, field := range []string{"id", "at"} {
		if event[field] == "" || event[field] == nil {
			t.Errorf("no %s", field)
		}
	}
	for name, want := range map[string]string{
		"type": "api_key_created", "organization_id": owner.Organization.ID, "organization_name": owner.Organization.Name, "ip": "127.0.0.1", "request_id": created.Header.Get("X-Request-Id"),
	} {
		if event[name] != want {
			t.Errorf("%s %v, want %s", name, event[name], want)
		}
	}
	actor, _ := event["actor"].(map[string]any)
	if actor["type"] != "user" || actor["id"] != owner.User.ID || actor["name"] != owner.User.Name {
		t.Errorf("actor %v", actor)
	}
	if _, isObject := event["details"].(map[string]any); !isObject {
		t.Errorf("details %v", event["details"])
	}
	for query, want := range map[string]int{
		"target=" + created.Field("id"): 1, "target=" + owner.User.ID + "&type=api_key_created": 0,
		"type=api_key_created": 1, "type=api_key_revoked": 0, "type=api_key_created&actor=" + owner.User.ID: 1, "type=api_key_created&actor=system": 0,
		"type=api_key_created&since=2020-01-01T00:00:00Z": 1, "type=api_key_created&until=2020-01-01T00:00:00Z": 0,
	} {
		if got := len(f.List(t, as, "/api/v1/audit-events/?"+query).Data); got != want {
			t.Errorf("%s: %d events, want %d", query, got, want)
		}
	}
	f.Do(t, "PATCH /api/v1/organizations/"+owner.Organization.ID+"/", servertest.Operator, `{"external_id":"customer-42"}`).Want(t, 200, "")
	f.Do(t, "PATCH /api/v1/users/"+owner.User.ID+"/", servertest.Operator, `{"external_id":"lady"}`).Want(t, 200, "")
	f.Do(t, "POST /api/v1/webhooks/subscriptions/", as, `{"url":"https://example.com/","external_id":"orders"}`).Want(t, 201, "")
	key := f.Do(t, "POST /api/v1/api-keys/", as, `{"name":"b","scope":"webhooks:write","external_id":"backend"}`).Want(t, 201, "")
	f.Do(t, "PATCH /api/v1/webhooks/subscriptions/orders/", "ApiKey "+key.Field("key"), `{"description":"x"}`).Want(t, 200, "")
	for _, tt := range []struct {
		as, query string
		want      int
	}{
		{as, "target=orders", 2},
		{as, "target=orders&type=api_key_created", 0},
		{as, "target=unknown", 0},
		{as, "target=growth", 0},
		{as, "target=customer-42", 2},
		{as, "target=" + owner.User.ID, 1},
		{as, "target=lady", 0}, // a customer does not learn the external ids of users
		{servertest.Operator, "organization=all&target=customer-42&type=organization_updated", 1},
		{servertest.Operator, "organization=all&target=lady&type=user_updated", 1},
		{servertest.Operator, "organization=all&target=orders", 0},
		{servertest.Operator, "target=orders", 0},
		{as, "actor=lady", 0},
		{as, "actor=backend", 1},
		{as, "target=backend", 1},
		{servertest.Operator, "organization=all&actor=lady&type=api_key_created", 2},
		{servertest.Operator, "organization=all&actor=backend", 0},
		{servertest.Operator, "actor=backend", 0},
		{as, "actor=user", 0}, // not the type of an actor
	} {
		if got := len(f.List(t, tt.as, "/api/v1/audit-events/?"+tt.query).Data); got != tt.want {
			t.Errorf("%s: %d events, want %d", tt.query, got, tt.want)
		}
	}
	for query, want := range map[string]bool{"": true, "?audit_events=true": true, "?audit_events=false": false} {
		if got := len(f.List(t, as, "/api/v1/events/"+query).Data) > 0; got != want {
			t.Errorf("the list of events%s has audit events: %t", query, got)
		}
	}
	f.Do(t, "GET /api/v1/events/?audit_events=no", as, "").Want(t, 400, "invalid_parameter")
	entry := "GET /api/v1/audit-events/" + event["id"].(string) + "/"
	if got := f.Do(t, entry, as, "").Want(t, 200, ""); got.Field("type") != "api_key_created" || got.Field("id") != event["id"] {
		t.Errorf("the entry is %s", got.Text)
	}
	_, other := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	f.Do(t, entry, servertest.Bearer(other), "").Want(t, 404, "not_found")
	later := f.List(t, servertest.Bearer(other), "/api/v1/audit-events/?limit=1").Data[0]
	f.Do(t, "GET /api/v1/audit-events/"+later["id"].(string)+"/", as, "").Want(t, 404, "not_found") // although it has an older one
	f.Do(t, strings.Replace(entry, "aud_", "evt_", 1), as, "").Want(t, 404, "not_found")
	for _, query := range []string{"type=Key", "since=today", "until=", "target=", "actor=" + created.Field("organization_id")} {
		f.Do(t, "GET /api/v1/audit-events/?"+query, as, "").Want(t, 400, "invalid_parameter")
	}
}
