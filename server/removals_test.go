package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestRemovals(t *testing.T) {
	t.Parallel()
	f := start(t)
	acme, token := storagetest.Organization(t, f.store, "acme", "growth", access.RoleOwner)
	_, key := storagetest.Key(t, f.store, acme, access.EventsRead)
	storagetest.Subscription(t, f.store, acme, "https://hooks.acme.example/")
	storagetest.Publish(t, f.store, acme, "order.created")
	known := map[string]string{
		"as": operator, "org": acme.Organization.ID, "user": acme.User.ID, "home": storagetest.Operator(t, f.store).Home.ID,
		"admin": storagetest.Operator(t, f.store).User.ID, "token": bearer(token), "key": "ApiKey " + key.Reveal(), "system": systemID(t, f),
	}
	inAcme := []string{"X-Organization-Id", acme.Organization.ID}
	refused := func(name, line, body string) scenario {
		return scenario{name, call{line, operator, body, inAcme}, 409, "organization_closed", []string{"create a new organization"}, nil}
	}
	f.run(t, known, []scenario{
		ok("an erasure can be counted first", "POST "+users+"{user}/erase/", `{"dry_run":true}`, 200,
			`{"id":"{user}","erased_at":null,"complete":false,"api_keys":1,"access_tokens":1,"memberships":1}`),
		ok("a count changes nothing", "GET "+users+"{user}/", "", 200, `"name":"acme-owner"`, `"erased_at":null`),
		ok("a user is erased", "POST "+users+"{user}/erase/", "", 202, `"erased_at":"20`, `"complete":false,"api_keys":1,"access_tokens":1,"memberships":1}`),
		ok("lists show who is erased", "GET "+users, "", 200, `"email":null,"name":"erased user","external_id":null,"is_active":false`, `"erased_at":"20`),
		bad("nobody makes a token of an erased user", "POST "+users+"{user}/access-tokens/", `{"organization_id":"{org}"}`, 409, "user_erased"),
		bad("an erased user becomes no member", "PUT "+orgs+"{org}/members/{user}/", `{"role":"owner"}`, 409, "user_erased"),
		bad("the last operator is not erased", "POST "+users+"{admin}/erase/", "", 409, "last_operator"),
		bad("the built-in user is not erased", "POST "+users+"{system}/erase/", "", 409, "built_in"),
		bad("nobody else is erased", "POST "+users+"nobody/erase/", "", 404, "not_found"),
		{"the token of an erased user is refused", call{"GET /api/v1/whoami/", "{token}", "", nil}, 401, "", nil, nil},
		{"the key of an erased user is refused", call{"GET /api/v1/whoami/", "{key}", "", nil}, 401, "", nil, nil},
	})
	t.Run("an erasure says when it is complete", func(t *testing.T) { f.finish(t, users+acme.User.ID+"/erase/") })

	f.run(t, known, []scenario{
		ok("a closure can be counted first", "POST "+orgs+"{org}/close/", `{"dry_run":true}`, 200, `{"id":"{org}","closed_at":null,"complete":false,"api_keys":0,`,
			`"subscriptions":1,"pending_deliveries":`),
		bad("nobody closes the own organization", "POST "+orgs+"{home}/close/", "", 409, "in_use"),
		ok("an organization is closed", "POST "+orgs+"{org}/close/", "", 202, `"closed_at":"20`, `"complete":false`, `"subscriptions":1`),
		ok("lists show what is closed", "GET "+orgs, "", 200, `"name":"closed organization","plan":"growth","external_id":null,"closed_at":"20`),
		refused("a closed organization gets no event", "POST /api/v1/events/", `{"type":"a","data":{}}`),
		refused("a closed organization gets no batch of events", "POST /api/v1/events/batch/", `{"events":[{"type":"a","data":{}}]}`),
		refused("a closed organization gets no key", "POST /api/v1/api-keys/", `{"name":"a","scope":"events:read"}`),
		refused("a closed organization gets no subscription", "POST /api/v1/webhooks/subscriptions/", `{"url":"https://example.com/"}`),
		refused("a closed organization gets no member", "PUT "+orgs+acme.Organization.ID+"/members/"+known["admin"]+"/", `{"role":"owner"}`),
		refused("a closed organization gets no other plan", "PATCH "+orgs+acme.Organization.ID+"/", `{"plan":"business"}`),
		ok("its log can be read", "GET /api/v1/audit-events/?organization=all", "", 200, `"type":"organization_closed"`, `"type":"user_erased"`),
	})
	t.Run("a closure says when it is complete", func(t *testing.T) { f.finish(t, orgs+acme.Organization.ID+"/close/") })
}

// finish repeats a request until the response says that it is complete.
func (f *testServer) finish(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		got := f.do(t, call{"POST " + path, operator, "", nil})
		if complete := strings.Contains(got.body, `"complete":true`); complete != (got.StatusCode == 200) {
			t.Fatalf("status %d: %s", got.StatusCode, got.body)
		} else if complete {
			return
		}
	}
	t.Errorf("POST %s is not complete", path)
}
