package server_test

import (
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestTwoCallsACustomer signs a customer up as a back end does, with ids of its own only, and again after a failure.
func TestTwoCallsACustomer(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.do(t, call{"POST /api/v1/roles/", operator, `{"name":"backend","permissions":["platform:write","platform:act_as","api_keys:write","events:write"]}`, nil}).want(t, 201, "")
	_, token := storagetest.Organization(t, f.store, "backend", "growth", "backend")
	as, in := bearer(token), []string{"X-Organization-Id", "acme-17"}
	f.do(t, call{"PUT " + orgs + "acme-17/", as, `{"name":"Acme","plan":"growth"}`, nil}).want(t, 201, "")
	f.do(t, call{"PUT " + orgs + "acme-17/", as, `{"name":"Acme","plan":"growth"}`, nil}).want(t, 200, "")
	key := f.do(t, call{"POST /api/v1/api-keys/", as, `{"name":"default","scope":"events:write events:read"}`, in}).want(t, 201, "")
	known := map[string]string{"as": operator, "key": "ApiKey " + key.field("key"), "account": key.field("created_by")}
	f.run(t, known, []scenario{
		{"the key acts as the service account", call{"GET /api/v1/whoami/", "{key}", "", nil}, 200, "",
			[]string{`"id":"{account}","email":null,"name":"Service account","kind":"service"`, `"name":"Acme"`, `"permissions":["events:write"]`}, nil},
		ok("the service account is listed among the members", "GET "+orgs+"acme-17/members/", "", 200, `{"user_id":"{account}","email":null,"name":"Service account","role":"owner","kind":"service"}`),
		ok("the service account is listed among the users", "GET "+users, "", 200, `"id":"{account}"`, `"kind":"service","organization_name":"Acme"`),
		bad("the service account gets no token", "POST "+users+"{account}/access-tokens/", `{"organization_id":"acme-17"}`, 422, "service_account", "Nobody signs in"),
		bad("the service account gets no external id", "PATCH "+users+"{account}/", `{"external_id":"sub-1"}`, 422, "service_account"),
		bad("the service account gets no other role", "PUT "+orgs+"acme-17/members/{account}/", `{"role":"operator"}`, 409, "service_account"),
		bad("the service account stays while a key is live", "DELETE "+orgs+"acme-17/members/{account}/", "", 409, "in_use", "revoke these keys first"),
	})
	t.Run("the audit log of the customer names the back end", func(t *testing.T) {
		for _, e := range f.list(t, "Bearer "+storagetest.OperatorToken, "/api/v1/audit-events/?organization=all&type=api_key_created").Data {
			actor, _ := e["actor"].(map[string]any)
			details, _ := e["details"].(map[string]any)
			if actor["name"] != "backend-backend" || details["created_by"] != known["account"] {
				t.Errorf("%v", e)
			}
		}
	})
	t.Run("a key for a member is created by the member's own id", func(t *testing.T) {
		f.do(t, call{"PUT " + users + "ada/", operator, `{"name":"Ada"}`, nil}).want(t, 201, "")
		body := `{"name":"ada","scope":"events:write","user_id":"ada"}`
		f.do(t, call{"POST /api/v1/api-keys/", as, body, in}).want(t, 422, "validation_failed")
		ada := f.do(t, call{"PUT " + orgs + "acme-17/members/ada/", operator, `{"role":"owner"}`, nil}).want(t, 200, "").field("user_id")
		if got := f.do(t, call{"POST /api/v1/api-keys/", as, body, in}).want(t, 201, ""); got.field("created_by") != ada {
			t.Error(got.body)
		}
		_, owner := storagetest.Organization(t, f.store, "other", "growth", access.RoleOwner)
		f.do(t, call{"POST /api/v1/api-keys/", bearer(owner), body, nil}).want(t, 403, "permission_denied")
		f.do(t, call{"POST /api/v1/api-keys/", as, `{"name":"x","scope":"events:write","user_id":7}`, in}).want(t, 422, "validation_failed")
		f.do(t, call{"POST /api/v1/api-keys/", as, `{"name":"x","scope":"events:write","user_id":""}`, in}).want(t, 422, "validation_failed")
	})
}
