package server_test

import (
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestTwoCallsACustomer signs a customer up as a back end does, with ids of its own only, and again after a failure.
func TestTwoCallsACustomer(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.Do(t, "POST /api/v1/roles/", servertest.Operator, `{"name":"backend","permissions":["platform:write","platform:act_as","api_keys:write","events:write"]}`).Want(t, 201, "")
	_, token := storagetest.Organization(t, f.Store, "backend", "growth", "backend")
	as, in := servertest.Bearer(token), []string{"X-Organization-Id", "acme-17"}
	f.Do(t, "PUT "+servertest.Orgs+"acme-17/", as, `{"name":"Acme","plan":"growth"}`).Want(t, 201, "")
	f.Do(t, "PUT "+servertest.Orgs+"acme-17/", as, `{"name":"Acme","plan":"growth"}`).Want(t, 200, "")
	key := f.Do(t, "POST /api/v1/api-keys/", as, `{"name":"default","scope":"events:write events:read"}`, in...).Want(t, 201, "")
	known := map[string]string{"as": servertest.Operator, "key": "ApiKey " + key.Field("key"), "account": key.Field("created_by")}
	f.Run(t, known, []servertest.Scenario{
		{Name: "the key acts as the service account", Call: servertest.NewCall("GET /api/v1/whoami/", "{key}", ""), Status: 200,
			Want: []string{`"id":"{account}","email":null,"name":"Service account","kind":"service"`, `"name":"Acme"`, `"permissions":["events:write"]`}},
		servertest.OK("the service account is listed among the members", "GET "+servertest.Orgs+"acme-17/members/", "", 200, `{"user_id":"{account}","email":null,"name":"Service account","role":"owner","kind":"service"}`),
		servertest.OK("the service account is listed among the users", "GET "+servertest.Users, "", 200, `"id":"{account}"`, `"kind":"service","organization_name":"Acme"`),
		servertest.Bad("the service account gets no token", "POST "+servertest.Users+"{account}/access-tokens/", `{"organization_id":"acme-17"}`, 422, "service_account", "Nobody signs in"),
		servertest.Bad("the service account gets no external id", "PATCH "+servertest.Users+"{account}/", `{"external_id":"sub-1"}`, 422, "service_account"),
		servertest.Bad("the service account gets no other role", "PUT "+servertest.Orgs+"acme-17/members/{account}/", `{"role":"operator"}`, 409, "service_account"),
		servertest.Bad("the service account stays while a key is live", "DELETE "+servertest.Orgs+"acme-17/members/{account}/", "", 409, "in_use", "revoke these keys first"),
	})
	t.Run("the audit log of the customer names the back end", func(t *testing.T) {
		for _, e := range f.List(t, "Bearer "+storagetest.OperatorToken, "/api/v1/audit-events/?organization=all&type=api_key_created").Data {
			actor, _ := e["actor"].(map[string]any)
			details, _ := e["details"].(map[string]any)
			if actor["name"] != "backend-backend" || details["created_by"] != known["account"] {
				t.Errorf("%v", e)
			}
		}
	})
	t.Run("a key for a member is created by the member's own id", func(t *testing.T) {
		f.Do(t, "PUT "+servertest.Users+"ada/", servertest.Operator, `{"name":"Ada"}`).Want(t, 201, "")
		body := `{"name":"ada","scope":"events:write","user_id":"ada"}`
		f.Do(t, "POST /api/v1/api-keys/", as, body, in...).Want(t, 422, "validation_failed")
		ada := f.Do(t, "PUT "+servertest.Orgs+"acme-17/members/ada/", servertest.Operator, `{"role":"owner"}`).Want(t, 200, "").Field("user_id")
		if got := f.Do(t, "POST /api/v1/api-keys/", as, body, in...).Want(t, 201, ""); got.Field("created_by") != ada {
			t.Error(got.Text)
		}
		_, owner := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
		f.Do(t, "POST /api/v1/api-keys/", servertest.Bearer(owner), body).Want(t, 403, "permission_denied")
		f.Do(t, "POST /api/v1/api-keys/", as, `{"name":"x","scope":"events:write","user_id":7}`, in...).Want(t, 422, "validation_failed")
		f.Do(t, "POST /api/v1/api-keys/", as, `{"name":"x","scope":"events:write","user_id":""}`, in...).Want(t, 422, "validation_failed")
	})
}
