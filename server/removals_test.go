package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestRemovals(t *testing.T) {
	t.Parallel()
	f := start(t)
	acme, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, key := storagetest.Key(t, f.Store, acme, access.EventsRead)
	storagetest.Subscription(t, f.Store, acme, "https://hooks.acme.example/")
	storagetest.Publish(t, f.Store, acme, "order.created")
	system := storagetest.Must[access.Principal](t)(f.Store.Directory.PrincipalOfSystem(t.Context())).User.ID
	known := map[string]string{
		"as": servertest.Operator, "org": acme.Organization.ID, "user": acme.User.ID, "home": storagetest.Operator(t, f.Store).Home.ID,
		"admin": storagetest.Operator(t, f.Store).User.ID, "token": servertest.Bearer(token), "key": "ApiKey " + key.Reveal(), "system": system,
	}
	inAcme := []string{"X-Organization-Id", acme.Organization.ID}
	refused := func(name, line, body string) servertest.Scenario {
		return servertest.Scenario{Name: name, Call: servertest.NewCall(line, servertest.Operator, body, inAcme...), Status: 409, Code: "organization_closed", Want: []string{"create a new organization"}}
	}
	f.Run(t, known, []servertest.Scenario{
		servertest.OK("an erasure can be counted first", "POST "+servertest.Users+"{user}/erase/", `{"dry_run":true}`, 200,
			`{"id":"{user}","erased_at":null,"complete":false,"api_keys":1,"access_tokens":1,"memberships":1}`),
		servertest.OK("a count changes nothing", "GET "+servertest.Users+"{user}/", "", 200, `"name":"acme-owner"`, `"erased_at":null`),
		servertest.OK("a user is erased", "POST "+servertest.Users+"{user}/erase/", "", 202, `"erased_at":"20`, `"complete":false,"api_keys":1,"access_tokens":1,"memberships":1}`),
		servertest.OK("lists show who is erased", "GET "+servertest.Users, "", 200, `"email":null,"name":"erased user","external_id":null,"is_active":false`, `"erased_at":"20`),
		servertest.Bad("nobody makes a token of an erased user", "POST "+servertest.Users+"{user}/access-tokens/", `{"organization_id":"{org}"}`, 409, "user_erased"),
		servertest.Bad("an erased user becomes no member", "PUT "+servertest.Orgs+"{org}/members/{user}/", `{"role":"owner"}`, 409, "user_erased"),
		servertest.Bad("the last operator is not erased", "POST "+servertest.Users+"{admin}/erase/", "", 409, "last_operator"),
		servertest.Bad("the built-in user is not erased", "POST "+servertest.Users+"{system}/erase/", "", 409, "built_in"),
		servertest.Bad("nobody else is erased", "POST "+servertest.Users+"nobody/erase/", "", 404, "not_found"),
		{Name: "the token of an erased user is refused", Call: servertest.NewCall("GET /api/v1/whoami/", "{token}", ""), Status: 401},
		{Name: "the key of an erased user is refused", Call: servertest.NewCall("GET /api/v1/whoami/", "{key}", ""), Status: 401},
	})
	t.Run("an erasure says when it is complete", func(t *testing.T) { f.finish(t, servertest.Users+acme.User.ID+"/erase/") })

	f.Run(t, known, []servertest.Scenario{
		servertest.OK("a closure can be counted first", "POST "+servertest.Orgs+"{org}/close/", `{"dry_run":true}`, 200, `{"id":"{org}","closed_at":null,"complete":false,"api_keys":0,`,
			`"subscriptions":1,"pending_deliveries":`),
		servertest.Bad("nobody closes the own organization", "POST "+servertest.Orgs+"{home}/close/", "", 409, "in_use"),
		servertest.OK("an organization is closed", "POST "+servertest.Orgs+"{org}/close/", "", 202, `"closed_at":"20`, `"complete":false`, `"subscriptions":1`),
		servertest.OK("lists show what is closed", "GET "+servertest.Orgs, "", 200, `"name":"closed organization","plan":"growth","external_id":null,"closed_at":"20`),
		refused("a closed organization gets no event", "POST /api/v1/events/", `{"type":"a","data":{}}`),
		refused("a closed organization gets no batch of events", "POST /api/v1/events/batch/", `{"events":[{"type":"a","data":{}}]}`),
		refused("a closed organization gets no key", "POST /api/v1/api-keys/", `{"name":"a","scope":"events:read"}`),
		refused("a closed organization gets no subscription", "POST /api/v1/webhooks/subscriptions/", `{"url":"https://example.com/"}`),
		refused("a closed organization gets no member", "PUT "+servertest.Orgs+acme.Organization.ID+"/members/"+known["admin"]+"/", `{"role":"owner"}`),
		refused("a closed organization gets no other plan", "PATCH "+servertest.Orgs+acme.Organization.ID+"/", `{"plan":"business"}`),
		servertest.OK("its log can be read", "GET /api/v1/audit-events/?organization=all", "", 200, `"type":"organization_closed"`, `"type":"user_erased"`),
	})
	t.Run("a closure says when it is complete", func(t *testing.T) { f.finish(t, servertest.Orgs+acme.Organization.ID+"/close/") })
}

// finish repeats a request until the response says that it is complete.
func (f *testServer) finish(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		got := f.Do(t, "POST "+path, servertest.Operator, "")
		if complete := strings.Contains(got.Text, `"complete":true`); complete != (got.StatusCode == 200) {
			t.Fatalf("status %d: %s", got.StatusCode, got.Text)
		} else if complete {
			return
		}
	}
	t.Errorf("POST %s is not complete", path)
}
