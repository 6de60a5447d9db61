package platform_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestPutByExternalID(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	system := storagetest.Must[access.Principal](t)(f.Store.Directory.PrincipalOfSystem(t.Context())).User.ID
	known := map[string]string{"as": servertest.Operator, "system": system}
	keep := func(name string) func(*testing.T) { return func(*testing.T) { known[name] = known["last"] } }
	f.Run(t, known, []servertest.Scenario{
		servertest.OK("creates an organization", "PUT "+servertest.Orgs+"acme/", `{"name":" Acme ","plan":"growth"}`, 201,
			`"name":"Acme","plan":"growth","external_id":"acme"`, "Location: /api/v1/organizations/org_"),
	})
	t.Run("the organization is kept", keep("org"))
	f.Run(t, known, []servertest.Scenario{
		servertest.OK("finds the same organization again", "PUT "+servertest.Orgs+"acme", `{"name":"Acme","plan":"growth"}`, 200, `{"id":"{org}","name":"Acme","plan":"growth","external_id":"acme","closed_at":null}`),
		servertest.OK("changes the organization", "PUT "+servertest.Orgs+"acme/", `{"name":"ACME","plan":"business"}`, 200, `{"id":"{org}","name":"ACME","plan":"business","external_id":"acme","closed_at":null}`),
		servertest.OK("changes the organization by its id", "PUT "+servertest.Orgs+"{org}/", `{"name":"Acme","plan":"growth"}`, 200, `{"id":"{org}","name":"Acme","plan":"growth","external_id":"acme","closed_at":null}`),
		servertest.Bad("names a plan that does not exist", "PUT "+servertest.Orgs+"new/", `{"name":"New","plan":"gold"}`, 422, "", `"field":"plan","code":"unknown_plan"`),
		servertest.Bad("leaves nothing half done", "GET "+servertest.Orgs+"new/", "", 404, "not_found"),
		servertest.Bad("needs all fields to create", "PUT "+servertest.Orgs+"new/", `{}`, 422, "", `"field":"name","code":"missing"`, `"field":"plan","code":"missing"`),
		servertest.Bad("needs a plan to create", "PUT "+servertest.Orgs+"new/", `{"name":"New"}`, 422, "", `[{"field":"plan","code":"missing"`),
		servertest.OK("keeps a plan that it does not name", "PUT "+servertest.Orgs+"acme/", `{"name":"Acme 2"}`, 200, `"name":"Acme 2","plan":"growth"`),
		servertest.OK("keeps a name that it does not name", "PUT "+servertest.Orgs+"acme/", `{"plan":"business"}`, 200, `"name":"Acme 2","plan":"business"`),
		servertest.OK("changes nothing without a field", "PUT "+servertest.Orgs+"acme/", `{}`, 200, `"name":"Acme 2","plan":"business"`),
		servertest.OK("changes both again", "PUT "+servertest.Orgs+"acme/", `{"name":"Acme","plan":"growth"}`, 200, `"name":"Acme","plan":"growth"`),
		servertest.Bad("has nothing to clear", "PUT "+servertest.Orgs+"acme/", `{"plan":null}`, 422, "", `"field":"plan","code":"wrong_type"`),
		servertest.Bad("takes no other external id", "PUT "+servertest.Orgs+"acme/", `{"name":"A","plan":"free","external_id":"b"}`, 422, "", `"field":"external_id","code":"unknown_field"`),
		servertest.Bad("does not create an organization with an id", "PUT "+servertest.Orgs+"org_"+servertest.SomeID+"/", `{"name":"A","plan":"free"}`, 422, "", `"field":"external_id","code":"invalid"`, "There is no organization with this id"),
		servertest.Bad("refuses the id of another type", "PUT "+servertest.Orgs+"usr_"+servertest.SomeID+"/", `{"name":"A","plan":"free"}`, 422, "", `"field":"external_id","code":"invalid"`),
		servertest.Bad("refuses what no external id can be", "PUT "+servertest.Orgs+strings.Repeat("a", 256)+"/", `{"name":"A","plan":"free"}`, 422, "", `"field":"external_id","code":"invalid"`),
		servertest.Bad("refuses a control character", "PUT "+servertest.Users+"a%00b/", `{"name":"A"}`, 422, "", `"field":"external_id","code":"invalid"`),
		servertest.Bad("refuses an empty external id", "PUT "+servertest.Users+"/", `{"name":"A"}`, 404, "not_found"),

		servertest.OK("creates a user without an e-mail address", "PUT "+servertest.Users+"ada/", `{"name":"Ada"}`, 201, `"email":null,"name":"Ada","external_id":"ada","is_active":true,"kind":"person"`, "Location: /api/v1/users/usr_"),
	})
	t.Run("the user is kept", keep("user"))
	f.Run(t, known, []servertest.Scenario{
		servertest.OK("finds the same user again", "PUT "+servertest.Users+"ada/", `{"name":"Ada"}`, 200, `{"id":"{user}","email":null`),
		servertest.OK("adds an e-mail address", "PUT "+servertest.Users+"ada/", `{"name":"Ada","email":"ada@example.com"}`, 200, `{"id":"{user}","email":"ada@example.com"`),
		servertest.OK("keeps an e-mail address that it does not name", "PUT "+servertest.Users+"{user}/", `{"name":"Ada L."}`, 200, `{"id":"{user}","email":"ada@example.com","name":"Ada L."`),
		servertest.OK("creates many users without an e-mail address", "PUT "+servertest.Users+"bob/", `{"name":"Bob"}`, 201, `"email":null`),
		servertest.Bad("does not take the e-mail address of another user", "PUT "+servertest.Users+"bob/", `{"name":"Bob","email":"ADA@example.com"}`, 409, "already_exists", `"conflicting_id":"{user}"`),
		servertest.Bad("does not create a user with a taken e-mail address", "PUT "+servertest.Users+"eve/", `{"name":"Eve","email":"ada@example.com"}`, 409, "already_exists", `"conflicting_id":"{user}"`),
		servertest.OK("keeps a name", "PUT "+servertest.Users+"bob/", `{"email":"bob@example.com"}`, 200, `"email":"bob@example.com","name":"Bob"`),
		servertest.OK("removes an e-mail address", "PUT "+servertest.Users+"bob/", `{"email":null}`, 200, `"email":null,"name":"Bob"`),
		servertest.Bad("needs a name to create", "PUT "+servertest.Users+"eve/", `{"email":"eve@example.com"}`, 422, "", `"field":"name","code":"missing"`),
		servertest.Bad("does not create a user with an id", "PUT "+servertest.Users+"usr_"+servertest.SomeID+"/", `{"name":"A"}`, 422, "", `"field":"external_id","code":"invalid"`, "There is no user with this id"),
		servertest.Bad("does not change the built-in user", "PUT "+servertest.Users+"{system}/", `{"name":"A"}`, 409, "built_in"),
	})
	t.Run("writes no audit event if nothing changes", func(t *testing.T) {
		count := func() int {
			return len(f.List(t, servertest.Operator, "/api/v1/audit-events/?organization=all&limit=200").Data)
		}
		before := count()
		f.Do(t, "PUT "+servertest.Orgs+"acme/", servertest.Operator, `{"name":"Acme","plan":"growth"}`).Want(t, 200, "")
		f.Do(t, "PUT "+servertest.Users+"ada/", servertest.Operator, `{"name":"Ada L."}`).Want(t, 200, "")
		f.Do(t, "PUT "+servertest.Users+"ada/", servertest.Operator, `{"name":"Ada L.","email":"ada@example.com"}`).Want(t, 200, "")
		if after := count(); after != before {
			t.Errorf("%d audit events more", after-before)
		}
		f.Do(t, "PUT "+servertest.Users+"ada/", servertest.Operator, `{"name":"Ada"}`).Want(t, 200, "")
		if after := count(); after != before+1 {
			t.Errorf("%d audit events more for a change", after-before)
		}
	})
	t.Run("changes the e-mail address of a user only for those who have what the user has", func(t *testing.T) {
		f.Do(t, "PUT "+servertest.Orgs+"acme/members/ada/", servertest.Operator, `{"role":"operator"}`).Want(t, 200, "")
		f.Do(t, "POST /api/v1/roles/", servertest.Operator, `{"name":"desk","permissions":["platform:write"]}`).Want(t, 201, "")
		_, desk := storagetest.Organization(t, f.Store, "desk", "growth", "desk")
		f.Do(t, "PUT "+servertest.Users+"ada/", servertest.Bearer(desk), `{"name":"Ada","email":"eve@example.com"}`).Want(t, 403, "permission_denied")
	})
}

// TestOneOfManyPutsCreates puts one organization from 20 connections.
func TestOneOfManyPutsCreates(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	var wait sync.WaitGroup
	var mu sync.Mutex
	statuses, ids := map[int]int{}, map[string]bool{}
	for range 20 {
		wait.Go(func() {
			got := f.Do(t, "PUT "+servertest.Orgs+"acme/", servertest.Operator, `{"name":"Acme","plan":"growth"}`)
			mu.Lock()
			defer mu.Unlock()
			statuses[got.StatusCode]++
			ids[got.Field("id")] = true
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
	f := servertest.Start(t)
	calls := []servertest.Call{
		servertest.NewCall("PUT "+servertest.Orgs+"a/", servertest.Operator, `{"name":"A","plan":"growth"}`),
		servertest.NewCall("PATCH "+servertest.Orgs+"a/", servertest.Operator, `{"external_id":"b"}`),
		servertest.NewCall("PATCH "+servertest.Orgs+"b/", servertest.Operator, `{"external_id":"a"}`),
		servertest.NewCall("DELETE "+servertest.Orgs+"b/", servertest.Operator, ""),
		servertest.NewCall("GET /api/v1/api-keys/", servertest.Operator, "", "X-Organization-Id", "a"),
	}
	allowed := map[int]bool{200: true, 201: true, 204: true, 404: true, 409: true}
	var wait sync.WaitGroup
	for i := range 20 {
		wait.Go(func() {
			for n := range 10 {
				c := calls[(i+n)%len(calls)]
				if got := f.Call(t, c); !allowed[got.StatusCode] {
					t.Errorf("%s: %d %s", c.Line, got.StatusCode, got.Text)
				}
			}
		})
	}
	wait.Wait()
	seen := map[any]bool{}
	for _, o := range f.List(t, servertest.Operator, servertest.Orgs).Data {
		if id := o["external_id"]; id != nil && seen[id] {
			t.Errorf("two organizations have the external id %v", id)
		} else {
			seen[id] = true
		}
	}
}
