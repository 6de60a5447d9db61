package platform_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestApplied(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	_, hostToken := storagetest.Organization(t, f.Store, "host", "enterprise", access.RoleOperator)
	_, customer := storagetest.Organization(t, f.Store, "customer", "growth", access.RoleOwner)
	host := servertest.Bearer(hostToken)
	const subs = "/api/v1/webhooks/subscriptions/"
	applying := []string{"X-Keyhook-Apply", "true"}
	listed := func() (list []string) {
		for _, a := range f.List(t, host, "/api/v1/applied/").Data {
			list = append(list, fmt.Sprint(a["kind"], " ", a["key"]))
		}
		slices.Reverse(list)
		return list
	}
	do := func(line, body string, status int, header ...string) servertest.Response {
		return f.Do(t, line, host, body, append(applying, header...)...).Want(t, status, "")
	}
	f.Do(t, "POST "+servertest.Orgs, host, `{"name":"By hand","plan":"growth","external_id":"hand"}`).Want(t, 201, "")
	do("PATCH "+servertest.Orgs+"hand/", `{"name":"By apply"}`, 200)
	do("PUT "+servertest.Orgs+"hand/", `{"name":"By put","plan":"growth"}`, 200)
	if got := listed(); len(got) > 0 {
		t.Fatalf("an object that was there is listed after a change: %v", got)
	}

	do("POST /api/v1/plans/", `{"name":"pro","api_rate_limit_per_minute":10,"webhooks":true}`, 201)
	do("POST /api/v1/permissions/", `{"key":"orders:read"}`, 201)
	do("POST /api/v1/roles/", `{"name":"clerk","permissions":["orders:read"]}`, 201)
	org := do("POST "+servertest.Orgs, `{"name":"Acme","plan":"pro","external_id":"acme"}`, 201).Field("id")
	user := do("PUT "+servertest.Users+"ada/", `{"name":"Ada","email":"ada@example.com"}`, 201).Field("id")
	do("PUT "+servertest.Orgs+"acme/members/ada/", `{"role":"clerk"}`, 200)
	sub := do("POST "+subs, `{"url":"https://example.com/"}`, 201, "X-Organization-Id", "acme").Field("id")
	member := org + "/" + user

	t.Run("lists what apply created, with names or ids", func(t *testing.T) {
		want := []string{"plan pro", "permission orders:read", "role clerk", "organization " + org, "user " + user, "member " + member, "subscription " + sub}
		if d := cmp.Diff(want, listed()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
	t.Run("forgets an object that stays, on request", func(t *testing.T) {
		f.Do(t, "POST /api/v1/plans/", host, `{"name":"kept","api_rate_limit_per_minute":10}`, applying...).Want(t, 201, "")
		f.Do(t, "DELETE /api/v1/applied/plan/kept/", host, "").Want(t, 204, "")
		f.Do(t, "GET /api/v1/plans/kept/", host, "").Want(t, 200, "")
		f.Do(t, "DELETE /api/v1/applied/plan/kept/", host, "").Want(t, 404, "not_found")
		f.Do(t, "DELETE /api/v1/applied/other/kept/", host, "").Want(t, 404, "not_found")
		f.Do(t, "DELETE /api/v1/applied/plan/pro/", servertest.Bearer(customer), "").Want(t, 403, "permission_denied")
		f.Do(t, "PUT "+servertest.Orgs+"acme/members/bob/", host, `{"role":"clerk"}`, applying...).Want(t, 404, "not_found")
		bob := do("PUT "+servertest.Users+"bob/", `{"name":"Bob","email":"bob@example.com"}`, 201).Field("id")
		do("PUT "+servertest.Orgs+"acme/members/bob/", `{"role":"clerk"}`, 200)
		f.Do(t, "DELETE /api/v1/applied/member/"+org+"%2F"+bob+"/", host, "").Want(t, 204, "")
		f.Do(t, "DELETE /api/v1/applied/user/"+bob+"/", host, "").Want(t, 204, "")
		f.Do(t, "DELETE "+servertest.Orgs+"acme/members/bob/", host, "").Want(t, 204, "")
	})
	t.Run("forgets what is deleted, so a later one of the same name is not listed", func(t *testing.T) {
		hand := func(line, body string, status int, header ...string) {
			f.Do(t, line, host, body, header...).Want(t, status, "")
		}
		hand("DELETE "+subs+sub+"/", "", 204, "X-Organization-Id", "acme")
		hand("DELETE "+servertest.Orgs+"acme/members/ada/", "", 204)
		hand("PUT "+servertest.Orgs+"acme/members/ada/", `{"role":"owner"}`, 200)
		do("PUT "+servertest.Orgs+"acme/members/ada/", `{"role":"clerk"}`, 200)
		if d := cmp.Diff([]string{"plan pro", "permission orders:read", "role clerk", "organization " + org, "user " + user}, listed()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		hand("DELETE "+servertest.Orgs+"acme/members/ada/", "", 204)
		hand("DELETE "+servertest.Users+"ada/", "", 204)
		hand("DELETE /api/v1/roles/clerk/", "", 204)
		hand("DELETE /api/v1/permissions/orders:read/", "", 204)
		hand("PATCH "+servertest.Orgs+"acme/", `{"plan":"growth"}`, 200)
		hand("DELETE /api/v1/plans/pro/", "", 204)
		hand("POST /api/v1/plans/", `{"name":"pro","api_rate_limit_per_minute":10}`, 201)
		if d := cmp.Diff([]string{"organization " + org}, listed()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
	t.Run("forgets what ends with an organization or with a user", func(t *testing.T) {
		kept := listed()
		do("POST "+servertest.Orgs, `{"name":"Leaving","plan":"growth","external_id":"leaving"}`, 201)
		for _, name := range []string{"eve", "joe"} {
			do("PUT "+servertest.Users+name+"/", `{"name":"`+name+`","email":"`+name+`@example.com"}`, 201)
			do("PUT "+servertest.Orgs+"acme/members/"+name+"/", `{"role":"member"}`, 200)
			do("PUT "+servertest.Orgs+"leaving/members/"+name+"/", `{"role":"member"}`, 200)
		}
		do("POST "+subs, `{"url":"https://example.com/"}`, 201, "X-Organization-Id", "leaving")
		f.Do(t, "POST "+servertest.Orgs+"leaving/close/", host, `{"dry_run":true}`).Want(t, 200, "")
		if got := listed(); len(got) != len(kept)+8 {
			t.Fatalf("%v", got)
		}
		f.Do(t, "POST "+servertest.Orgs+"leaving/close/", host, "").Want(t, 202, "")
		if got := listed(); len(got) != len(kept)+4 { // the users, and the members of acme
			t.Errorf("%v", got)
		}
		f.Do(t, "POST "+servertest.Users+"eve/erase/", host, "").Want(t, 202, "")
		f.Do(t, "POST "+servertest.Users+"joe/erase/", host, "").Want(t, 202, "")
		if d := cmp.Diff(kept, listed()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
	t.Run("needs platform:write for the header, and platform:read for the list", func(t *testing.T) {
		f.Do(t, "POST "+subs, servertest.Bearer(customer), `{"url":"https://example.com/"}`, applying...).Want(t, http.StatusForbidden, "permission_denied")
		f.Do(t, "GET /api/v1/applied/", servertest.Bearer(customer), "").Want(t, http.StatusForbidden, "permission_denied")
	})
	t.Run("refuses any other value of the header", func(t *testing.T) {
		f.Do(t, "POST /api/v1/plans/", host, `{"name":"x","api_rate_limit_per_minute":1}`, "X-Keyhook-Apply", "false").
			Want(t, http.StatusBadRequest, "invalid_parameter")
	})
}
