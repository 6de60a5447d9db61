package server_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestPutByExternalID(t *testing.T) {
	t.Parallel()
	f := start(t)
	known := map[string]string{"as": operator}
	keep := func(name string) func(*testing.T) { return func(*testing.T) { known[name] = known["last"] } }
	f.run(t, known, []scenario{
		ok("creates an organization", "PUT "+orgs+"acme/", `{"name":" Acme ","plan":"growth"}`, 201,
			`"name":"Acme","plan":"growth","external_id":"acme"`, "Location: /api/v1/organizations/org_"),
	})
	t.Run("the organization is kept", keep("org"))
	f.run(t, known, []scenario{
		ok("finds the same organization again", "PUT "+orgs+"acme", `{"name":"Acme","plan":"growth"}`, 200, `{"id":"{org}","name":"Acme","plan":"growth","external_id":"acme","closed_at":null}`),
		ok("changes the organization", "PUT "+orgs+"acme/", `{"name":"ACME","plan":"business"}`, 200, `{"id":"{org}","name":"ACME","plan":"business","external_id":"acme","closed_at":null}`),
		ok("changes the organization by its id", "PUT "+orgs+"{org}/", `{"name":"Acme","plan":"growth"}`, 200, `{"id":"{org}","name":"Acme","plan":"growth","external_id":"acme","closed_at":null}`),
		bad("names a plan that does not exist", "PUT "+orgs+"new/", `{"name":"New","plan":"gold"}`, 422, "", `"field":"plan","code":"unknown_plan"`),
		bad("leaves nothing half done", "GET "+orgs+"new/", "", 404, "not_found"),
		bad("needs all fields to create", "PUT "+orgs+"new/", `{}`, 422, "", `"field":"name","code":"missing"`, `"field":"plan","code":"missing"`),
		bad("needs a plan to create", "PUT "+orgs+"new/", `{"name":"New"}`, 422, "", `[{"field":"plan","code":"missing"`),
		ok("keeps a plan that it does not name", "PUT "+orgs+"acme/", `{"name":"Acme 2"}`, 200, `"name":"Acme 2","plan":"growth"`),
		ok("keeps a name that it does not name", "PUT "+orgs+"acme/", `{"plan":"business"}`, 200, `"name":"Acme 2","plan":"business"`),
		ok("changes nothing without a field", "PUT "+orgs+"acme/", `{}`, 200, `"name":"Acme 2","plan":"business"`),
		ok("changes both again", "PUT "+orgs+"acme/", `{"name":"Acme","plan":"growth"}`, 200, `"name":"Acme","plan":"growth"`),
		bad("has nothing to clear", "PUT "+orgs+"acme/", `{"plan":null}`, 422, "", `"field":"plan","code":"wrong_type"`),
		bad("takes no other external id", "PUT "+orgs+"acme/", `{"name":"A","plan":"free","external_id":"b"}`, 422, "", `"field":"external_id","code":"unknown_field"`),
		bad("does not create an organization with an id", "PUT "+orgs+"org_"+someID+"/", `{"name":"A","plan":"free"}`, 422, "", `"field":"external_id","code":"invalid"`, "There is no organization with this id"),
		bad("refuses the id of another type", "PUT "+orgs+"usr_"+someID+"/", `{"name":"A","plan":"free"}`, 422, "", `"field":"external_id","code":"invalid"`),
		bad("refuses what no external id can be", "PUT "+orgs+strings.Repeat("a", 256)+"/", `{"name":"A","plan":"free"}`, 422, "", `"field":"external_id","code":"too_long"`),
		bad("refuses a control character", "PUT "+users+"a%00b/", `{"name":"A"}`, 422, "", `"field":"external_id","code":"invalid"`),
		bad("refuses an empty external id", "PUT "+users+"/", `{"name":"A"}`, 404, "not_found"),

		ok("creates a user without an e-mail address", "PUT "+users+"ada/", `{"name":"Ada"}`, 201, `"email":null,"name":"Ada","external_id":"ada","is_active":true,"kind":"person"`, "Location: /api/v1/users/usr_"),
	})
	t.Run("the user is kept", keep("user"))
	f.run(t, known, []scenario{
		ok("finds the same user again", "PUT "+users+"ada/", `{"name":"Ada"}`, 200, `{"id":"{user}","email":null`),
		ok("adds an e-mail address", "PUT "+users+"ada/", `{"name":"Ada","email":"ada@example.com"}`, 200, `{"id":"{user}","email":"ada@example.com"`),
		ok("keeps an e-mail address that it does not name", "PUT "+users+"{user}/", `{"name":"Ada L."}`, 200, `{"id":"{user}","email":"ada@example.com","name":"Ada L."`),
		ok("creates many users without an e-mail address", "PUT "+users+"bob/", `{"name":"Bob"}`, 201, `"email":null`),
		bad("does not take the e-mail address of another user", "PUT "+users+"bob/", `{"name":"Bob","email":"ADA@example.com"}`, 409, "already_exists", `"conflicting_id":"{user}"`),
		bad("does not create a user with a taken e-mail address", "PUT "+users+"eve/", `{"name":"Eve","email":"ada@example.com"}`, 409, "already_exists", `"conflicting_id":"{user}"`),
		ok("keeps a name", "PUT "+users+"bob/", `{"email":"bob@example.com"}`, 200, `"email":"bob@example.com","name":"Bob"`),
		ok("removes an e-mail address", "PUT "+users+"bob/", `{"email":null}`, 200, `"email":null,"name":"Bob"`),
		bad("needs a name to create", "PUT "+users+"eve/", `{"email":"eve@example.com"}`, 422, "", `"field":"name","code":"missing"`),
		bad("does not create a user with an id", "PUT "+users+"usr_"+someID+"/", `{"name":"A"}`, 422, "", `"field":"external_id","code":"invalid"`, "There is no user with this id"),
		bad("does not change the built-in user", "PUT "+users+systemID(t, f)+"/", `{"name":"A"}`, 409, "built_in"),
	})
	t.Run("writes no audit event if nothing changes", func(t *testing.T) {
		count := func() int { return len(f.list(t, operator, "/api/v1/audit-events/?organization=all&limit=200").Data) }
		before := count()
		f.do(t, call{"PUT " + orgs + "acme/", operator, `{"name":"Acme","plan":"growth"}`, nil}).want(t, 200, "")
		f.do(t, call{"PUT " + users + "ada/", operator, `{"name":"Ada L."}`, nil}).want(t, 200, "")
		f.do(t, call{"PUT " + users + "ada/", operator, `{"name":"Ada L.","email":"ada@example.com"}`, nil}).want(t, 200, "")
		if after := count(); after != before {
			t.Errorf("%d audit events more", after-before)
		}
		f.do(t, call{"PUT " + users + "ada/", operator, `{"name":"Ada"}`, nil}).want(t, 200, "")
		if after := count(); after != before+1 {
			t.Errorf("%d audit events more for a change", after-before)
		}
	})
	t.Run("changes the e-mail address of a user only for those who have what the user has", func(t *testing.T) {
		f.do(t, call{"PUT " + orgs + "acme/members/ada/", operator, `{"role":"operator"}`, nil}).want(t, 200, "")
		f.do(t, call{"POST /api/v1/roles/", operator, `{"name":"desk","permissions":["platform:write"]}`, nil}).want(t, 201, "")
		_, desk := storagetest.Organization(t, f.store, "desk", "growth", "desk")
		f.do(t, call{"PUT " + users + "ada/", bearer(desk), `{"name":"Ada","email":"eve@example.com"}`, nil}).want(t, 403, "permission_denied")
	})
}

// systemID is the id of the built-in user.
func systemID(t *testing.T, f *testServer) string {
	t.Helper()
	system, err := f.store.Directory.PrincipalOfSystem(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return system.User.ID
}

// TestOneOfManyPutsCreates puts one organization from 20 connections.
func TestOneOfManyPutsCreates(t *testing.T) {
	t.Parallel()
	f := start(t)
	var wait sync.WaitGroup
	var mu sync.Mutex
	statuses, ids := map[int]int{}, map[string]bool{}
	for range 20 {
		wait.Go(func() {
			got := f.do(t, call{"PUT " + orgs + "acme/", operator, `{"name":"Acme","plan":"growth"}`, nil})
			mu.Lock()
			defer mu.Unlock()
			statuses[got.StatusCode]++
			ids[got.field("id")] = true
		})
	}
	wait.Wait()
	if statuses[http.StatusCreated] != 1 || statuses[http.StatusOK] != 19 || len(ids) != 1 {
		t.Errorf("statuses %v, ids %v", statuses, ids)
	}
}

// TestExternalIDsMoveUnderLoad puts, renames and deletes organizations with the same two external ids from 20 connections. Every
// answer is one that the documents name, and afterwards at most one organization has each external id.
func TestExternalIDsMoveUnderLoad(t *testing.T) {
	t.Parallel()
	f := start(t)
	calls := []call{
		{"PUT " + orgs + "a/", operator, `{"name":"A","plan":"growth"}`, nil},
		{"PATCH " + orgs + "a/", operator, `{"external_id":"b"}`, nil},
		{"PATCH " + orgs + "b/", operator, `{"external_id":"a"}`, nil},
		{"DELETE " + orgs + "b/", operator, "", nil},
		{"GET /api/v1/api-keys/", operator, "", []string{"X-Organization-Id", "a"}},
	}
	allowed := map[int]bool{200: true, 201: true, 204: true, 404: true, 409: true}
	var wait sync.WaitGroup
	for i := range 20 {
		wait.Go(func() {
			for n := range 10 {
				c := calls[(i+n)%len(calls)]
				if got := f.do(t, c); !allowed[got.StatusCode] {
					t.Errorf("%s: %d %s", c.line, got.StatusCode, got.body)
				}
			}
		})
	}
	wait.Wait()
	seen := map[any]bool{}
	for _, o := range f.list(t, operator, orgs).Data {
		if id := o["external_id"]; id != nil && seen[id] {
			t.Errorf("two organizations have the external id %v", id)
		} else {
			seen[id] = true
		}
	}
}
